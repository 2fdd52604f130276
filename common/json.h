/*
 * json.h - reading JSON (strictly) and writing it (as a stream).
 *
 * Reading: json.c is the only file that knows cJSON, which by itself accepts too much. json_parse
 *   refuses invalid UTF-8, "\u0000", control characters in strings, duplicate keys, text after the
 *   value, numbers that are not finite or reach 2^53 (above it not every whole number has its own
 *   double), anything RFC 8259 does not call a number or white space, more than JSON_MAX_DEPTH
 * levels and more than JSON_MAX_VALUES values. Ownership: the tree belongs to whom json_parse gave
 * it; nodes and strings live as long as it. Writing: struct jw appends to a buf and keeps track of
 * commas and nesting; it has no failure of its own (look at buf_bad of the buffer). Strings must be
 * valid UTF-8: bytes from elsewhere go through text_clean first.
 */
#ifndef SMCP_JSON_H
#define SMCP_JSON_H

#include "common/base.h"
#include "common/buf.h"
#include "common/err.h"

#define JSON_MAX_DEPTH  64
#define JSON_MAX_VALUES 100000

struct json; /* a node: the tree, or a part of it */

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

int json_parse(const char *p, size_t n, struct json **ret, struct err *e) _check_;
struct json *json_free(struct json *j); /* NULL is fine; returns NULL */
static inline void json_freep(struct json **j)
{
    (void)json_free(*j);
}
#define _cleanup_json_ _cleanup_(json_freep)

enum json_type json_type(const struct json *j);
const char *json_type_name(enum json_type t);

/* Member of an object, exact case; NULL when absent or when `obj` is NULL or no object. */
const struct json *json_get(const struct json *obj, const char *key);

/* Children of an object or array in order: first, next; json_key names an object's member. */
const struct json *json_first(const struct json *j);
const struct json *json_next(const struct json *j);
const char *json_key(const struct json *j);
size_t json_len(const struct json *j);

/* Values; the node must be of that type (json_int: a whole number). */
const char *json_string(const struct json *j);
double json_number(const struct json *j);
bool json_is_int(const struct json *j);
int64_t json_int(const struct json *j);
bool json_bool(const struct json *j);

/* Member with a default, for arguments that were validated or that we wrote ourselves. */
const char *json_get_string(const struct json *obj, const char *key, const char *def);
int64_t json_get_int(const struct json *obj, const char *key, int64_t def);
bool json_get_bool(const struct json *obj, const char *key, bool def);

/* The node as compact text. */
void json_print(const struct json *j, struct buf *out);

struct jw {
    struct buf *out;
    bool comma; /* a value was written at this level */
    int depth;
};

#define JW_INIT(buffer)                                                                            \
    {                                                                                              \
        .out = (buffer)                                                                            \
    }

void jw_object(struct jw *w);
void jw_array(struct jw *w);
void jw_end_object(struct jw *w);
void jw_end_array(struct jw *w);
void jw_key(struct jw *w, const char *key);
void jw_string(struct jw *w, const char *s);
void jw_string_n(struct jw *w, const char *p, size_t n);
void jw_int(struct jw *w, int64_t v);
void jw_real(struct jw *w, double v);
void jw_bool(struct jw *w, bool v);
void jw_null(struct jw *w);
void jw_raw(struct jw *w, const char *json, size_t n); /* text that is JSON already */
void jw_json(struct jw *w, const struct json *j);

/* key and value in one call; jw_kstring with NULL writes nothing */
void jw_kstring(struct jw *w, const char *key, const char *s);
void jw_kint(struct jw *w, const char *key, int64_t v);
void jw_kreal(struct jw *w, const char *key, double v);
void jw_kbool(struct jw *w, const char *key, bool v);
void jw_knull(struct jw *w, const char *key);
void jw_kraw(struct jw *w, const char *key, const char *json, size_t n);

/* {"error":..., "code":..., "fix":...}: what a model is told. */
void json_error(struct buf *out, const struct err *e);

#endif
