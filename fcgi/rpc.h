/*
 * rpc.h - JSON-RPC: one body (an exchange) with one message, or a batch of them (its operations).
 *
 * An exchange is started once, stepped whenever the runner has rung, and written when it is done.
 * The same code serves HTTP and stdio; on stdio `http` is NULL and what concerns headers and HTTP
 * statuses is skipped.
 * Ids are echoed as they came; whole numbers beyond 2^53 too.
 * Ownership: the exchange owns the body, the tree and the operations. It must stay at its place
 *   from exchange_start until exchange_release.
 */
#ifndef SMCP_FCGI_RPC_H
#define SMCP_FCGI_RPC_H

#include "common/base.h"
#include "common/json.h"
#include "fcgi/app.h"
#include "fcgi/http.h"
#include "fcgi/tool.h"

#define RPC_BATCH_MAX    32
#define RPC_RESPONSE_MAX (256u << 20)

enum rpc_error {
    RPC_PARSE,
    RPC_REQUEST, /* the envelope is wrong */
    RPC_METHOD,  /* no such method */
    RPC_PARAMS,
    RPC_META, /* the modern era's _meta is incomplete */
    RPC_INTERNAL,
    RPC_HEADER,     /* a header contradicts the body */
    RPC_CAPABILITY, /* the client did not declare what this needs */
    RPC_VERSION     /* a protocol version that is not served */
};

struct op;

struct method {
    const char *name;
    int64_t ttl_ms;            /* of the result, modern era; 0: not cacheable */
    int (*run)(struct op *op); /* returns CALL_DONE or CALL_WAITS */
};

/* What differs between the protocol eras; the rows stand side by side in mcp.c. */
struct era {
    const char *name;
    bool modern;
    const struct method *methods;
    size_t n_methods;
};

struct op {
    struct app *app;
    const struct http *http;
    const struct json *msg;
    bool batch;
    unsigned toolsets;
    const struct era *era;
    const struct method *method;
    const char *name;          /* of the method, NULL when there is none */
    const struct json *params; /* object or NULL */
    const struct json *meta;   /* params._meta, object or NULL */
    struct buf id;             /* JSON text; empty: a notification */
    int status;                /* HTTP */
    struct buf notes;          /* notifications that go before the answer, one a line */
    struct buf out;            /* the answer; empty: none */
    struct call call;
    struct json *own_args; /* arguments that we made, not the client */
    int (*finish)(
        struct op *op);  /* writes the answer of a call that waited; NULL: mcp_finish_call */
    bool calling;        /* `call` is in use */
    bool waits;          /* for the runner */
    bool dropped;        /* cancelled: no answer any more */
    int64_t progress_ms; /* last one told */
};

struct exchange {
    struct app *app;
    const struct http *http;
    unsigned toolsets;
    bool progress; /* the face can send notifications while a call runs */
    struct buf body;
    struct json *tree;
    char *big_id; /* an id that the parser would have refused */
    struct op *ops;
    size_t n;
    bool batch;
    int status;
    struct buf error; /* the answer when there are no operations */
};

/* `body` is taken over. `http` may be NULL. */
void exchange_init(struct exchange *x, struct app *app, const struct http *http, struct buf *body);
void exchange_start(struct exchange *x);
void exchange_release(struct exchange *x);

/* Go on with what the runner has answered; true when everything is done. */
bool exchange_step(struct exchange *x);

/* Status and answer (empty: none), once it is done. */
int exchange_status(const struct exchange *x);
void exchange_answer(const struct exchange *x, struct buf *out);

/* The client is gone or has cancelled: stop what may be stopped, drop the answers. */
void exchange_cancel(struct exchange *x);

/* Next progress notification of an operation as one JSON text; false when there is none. */
bool op_take_progress(struct op *op, struct buf *out);

/* The answer is an error. `data` is JSON text or NULL. Returns CALL_DONE. */
int op_fail(struct op *op, enum rpc_error error, const char *data, const char *fmt, ...)
    _printf_(4, 5);

/* Begin and end a result: the caller writes members in between. */
void op_result(struct op *op, struct jw *w);
void op_result_of(struct op *op, struct jw *w, const char *type); /* resultType, modern era */
int op_result_end(struct op *op, struct jw *w);

/* A whole error response; id is JSON text, NULL or "": none is known. */
void rpc_error_text(struct buf *out, bool modern, const char *id, enum rpc_error error,
                    const char *data, const char *message);

/* mcp.c: decide the era, check the message rung by rung, run its method. */
int mcp_start(struct op *op);

/* mcp.c: the method tools/call. */
int mcp_tools_call(struct op *op);

/* mcp.c: write the answer of a tool call that is done. */
int mcp_finish_call(struct op *op);

/* mcp.c: the members of a CallToolResult. */
void mcp_write_call(const struct op *op, struct jw *w);

/* Is this header value or name a version of the modern era? */
bool mcp_modern_version(const char *version);

#endif
