/*
 * http.h - one HTTP request and its response, whatever brought it: FastCGI or plain CGI.
 *
 * A face gives the CGI variables and three functions; everything above sees only this header.
 * Ownership: strings belong to the face and live as long as the request.
 * Limits: the body is read up to a maximum that the caller gives, checked against the declared
 *   length first and while reading.
 */
#ifndef SMCP_FCGI_HTTP_H
#define SMCP_FCGI_HTTP_H

#include "common/base.h"
#include "common/buf.h"
#include "common/err.h"

struct http_face {
    ssize_t (*read)(void *ctx, void *p, size_t n); /* 0: end; -1: error */
    int (*write)(void *ctx, const void *p, size_t n);
    int (*flush)(void *ctx);
};

struct http {
    const struct http_face *face;
    void *ctx;
    char **env;  /* "NAME=value", NULL at the end */
    int peer_fd; /* shows when the client has left; -1: cannot be known */
    const char *method;
    struct buf path;  /* SCRIPT_NAME and PATH_INFO; empty when it is not acceptable */
    const char *cors; /* origin to allow in the response, or NULL */
    int status;       /* sent; 0: nothing yet */
};

void http_init(struct http *h, const struct http_face *face, void *ctx, char **env, int peer_fd);
void http_release(struct http *h);

const char *http_var(const struct http *h, const char *name);    /* CGI variable, or NULL */
const char *http_header(const struct http *h, const char *name); /* "Mcp-Method", or NULL */

/* Value of a query parameter, %-decoded, into out. False when it is not there. */
bool http_query(const struct http *h, const char *name, struct buf *out);

/* Whole body. ERR_LIMIT: larger than the buffer's maximum; ERR_INVALID: it ended early. */
int http_body(const struct http *h, struct buf *out, struct err *e) _check_;

/* The whole response. `extra` is lines "Name: value\r\n", or NULL. Body may be empty. */
int http_respond(struct http *h, int status, const char *type, const char *extra, const char *body,
                 size_t n);

/* A stream of server-sent events: the head at once, then comments and events. -1: client left. */
int http_stream(struct http *h);
int http_comment(struct http *h);
int http_event(struct http *h, const char *json, size_t n);

/* Media type of a header value, without its parameters, equal to `type` (case ignored). */
bool http_media_is(const char *value, const char *type);

#endif
