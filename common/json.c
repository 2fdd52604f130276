#include "common/json.h"

#include "common/text.h"

#include <cjson/cJSON.h>
#include <math.h>

#define MAX_WHOLE 9007199254740992.0 /* 2^53 */

static const cJSON *node(const struct json *j)
{
    return (const cJSON *)(const void *)j;
}

static const struct json *wrap(const cJSON *c)
{
    return (const struct json *)(const void *)c;
}

/* What cJSON would let through and must not see. */
struct scan {
    const char *p;
    size_t n, i;
    unsigned depth, values;
};

/* At a backslash: \u takes four hexadecimal digits (cJSON reads others as 0), and not 0000. */
static int scan_unicode(const struct scan *s, struct err *e)
{
    const char *p = s->p + s->i;
    if (s->n - s->i < 6 || p[1] != 'u')
        return 0;
    if (memcmp(p, "\\u0000", 6) == 0) {
        err_set(e, ERR_INVALID, "JSON: \\u0000 in a string at byte %zu", s->i);
        return err_fix(e, NULL, "leave the NUL character out; binary data goes by upload_file");
    }
    for (int i = 2; i < 6; i++)
        if (!p[i] || !strchr("0123456789abcdefABCDEF", p[i]))
            return err_set(e, ERR_INVALID, "JSON: not well-formed near byte %zu", s->i);
    return 0;
}

static int scan_string(struct scan *s, struct err *e)
{
    for (s->i++; s->i < s->n && s->p[s->i] != '"'; s->i++) {
        unsigned char c = (unsigned char)s->p[s->i];
        if (c < 0x20)
            return err_set(e, ERR_INVALID, "JSON: control character in a string at byte %zu", s->i);
        if (c != '\\')
            continue;
        if (scan_unicode(s, e) < 0)
            return -1;
        s->i++;
    }
    return 0;
}

static size_t scan_digits(struct scan *s)
{
    size_t from = s->i;
    while (s->i < s->n && s->p[s->i] >= '0' && s->p[s->i] <= '9')
        s->i++;
    return s->i - from;
}

static bool scan_one_of(struct scan *s, const char *chars)
{
    bool hit = s->i < s->n && s->p[s->i] && strchr(chars, s->p[s->i]);
    s->i += hit;
    return hit;
}

/* -12.5e+3 and no other way to write it; ends on the last character of the number. */
static int scan_number(struct scan *s, struct err *e)
{
    size_t from = s->i;
    (void)scan_one_of(s, "-");
    bool zero = s->i < s->n && s->p[s->i] == '0';
    size_t whole = scan_digits(s);
    bool ok = whole == 1 || (whole > 1 && !zero);
    if (scan_one_of(s, "."))
        ok = scan_digits(s) && ok;
    if (scan_one_of(s, "eE")) {
        (void)scan_one_of(s, "+-");
        ok = scan_digits(s) && ok;
    }
    if (!ok || scan_one_of(s, "+-.eE"))
        return err_set(e, ERR_INVALID, "JSON: not a number at byte %zu", from);
    s->i--;
    return 0;
}

static int scan_all(struct scan *s, struct err *e)
{
    for (; s->i < s->n; s->i++) {
        char c = s->p[s->i];
        if (c == '"' && scan_string(s, e) < 0)
            return -1;
        if ((c == '-' || (c >= '0' && c <= '9')) && scan_number(s, e) < 0)
            return -1;
        if ((unsigned char)c >= 0x7f || ((unsigned char)c < 0x20 && !strchr("\t\r\n", c)) || !c)
            return err_set(e, ERR_INVALID, "JSON: unexpected character at byte %zu", s->i);
        if (c == '{' || c == '[')
            s->depth++;
        if ((c == '}' || c == ']') && s->depth)
            s->depth--;
        s->values += c == ',' || c == '{' || c == '[';
        if (s->depth > JSON_MAX_DEPTH)
            return err_set(e, ERR_INVALID, "JSON: more than %d levels", JSON_MAX_DEPTH);
        if (s->values > JSON_MAX_VALUES)
            return err_set(e, ERR_INVALID, "JSON: more than %d values", JSON_MAX_VALUES);
    }
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

static int check_keys(const cJSON *c, struct err *e)
{
    size_t n = (size_t)cJSON_GetArraySize(c), i = 0;
    if (n < 2)
        return 0;
    _cleanup_free_ const char **keys = xcalloc(n, sizeof *keys);
    for (const cJSON *k = c->child; k; k = k->next)
        keys[i++] = k->string;
    qsort(keys, n, sizeof *keys, by_name);
    for (i = 1; i < n; i++)
        if (streq(keys[i - 1], keys[i]))
            return err_set(e, ERR_INVALID, "JSON: the key \"%.60s\" stands twice", keys[i]);
    return 0;
}

/* Depth is bounded by scan_all. */
static int check_tree(const cJSON *c, struct err *e)
{
    if (cJSON_IsNumber(c)) {
        double v = c->valuedouble;
        if (!isfinite(v) || fabs(v) >= MAX_WHOLE)
            return err_set(e, ERR_INVALID, "JSON: a number is too large");
    }
    if (cJSON_IsObject(c) && check_keys(c, e) < 0)
        return -1;
    for (const cJSON *k = c->child; k; k = k->next)
        if (check_tree(k, e) < 0)
            return -1;
    return 0;
}

int json_parse(const char *p, size_t n, struct json **ret, struct err *e)
{
    struct scan s = {.p = p, .n = n};
    if (!text_utf8_valid(p, n))
        return err_set(e, ERR_INVALID, "JSON: not valid UTF-8");
    if (scan_all(&s, e) < 0)
        return -1;
    const char *end = NULL;
    cJSON *c = cJSON_ParseWithLengthOpts(p, n, &end, false);
    if (!c) {
        size_t at = end ? (size_t)(end - p) : 0;
        return err_set(e, ERR_INVALID, "JSON: not well-formed near byte %zu", at);
    }
    size_t used = (size_t)(end - p);
    while (used < n && strchr(" \t\r\n", p[used]) && p[used])
        used++;
    if (used < n) {
        cJSON_Delete(c);
        return err_set(e, ERR_INVALID, "JSON: text after the value at byte %zu", used);
    }
    if (check_tree(c, e) < 0) {
        cJSON_Delete(c);
        return -1;
    }
    *ret = (struct json *)(void *)c;
    return 0;
}

struct json *json_free(struct json *j)
{
    cJSON_Delete((cJSON *)(void *)j);
    return NULL;
}

enum json_type json_type(const struct json *j)
{
    const cJSON *c = node(j);
    if (cJSON_IsBool(c))
        return JSON_BOOL;
    if (cJSON_IsNumber(c))
        return JSON_NUMBER;
    if (cJSON_IsString(c))
        return JSON_STRING;
    if (cJSON_IsArray(c))
        return JSON_ARRAY;
    return cJSON_IsObject(c) ? JSON_OBJECT : JSON_NULL;
}

const char *json_type_name(enum json_type t)
{
    static const char *const names[] = {"null", "boolean", "number", "string", "array", "object"};
    return names[t];
}

const struct json *json_get(const struct json *obj, const char *key)
{
    return obj && cJSON_IsObject(node(obj)) ? wrap(cJSON_GetObjectItemCaseSensitive(node(obj), key))
                                            : NULL;
}

const struct json *json_first(const struct json *j)
{
    return j ? wrap(node(j)->child) : NULL;
}

const struct json *json_next(const struct json *j)
{
    return wrap(node(j)->next);
}

const char *json_key(const struct json *j)
{
    return node(j)->string;
}

size_t json_len(const struct json *j)
{
    return (size_t)cJSON_GetArraySize(node(j));
}

const char *json_string(const struct json *j)
{
    check(cJSON_IsString(node(j)));
    return node(j)->valuestring;
}

double json_number(const struct json *j)
{
    check(cJSON_IsNumber(node(j)));
    return node(j)->valuedouble;
}

bool json_is_int(const struct json *j)
{
    return cJSON_IsNumber(node(j)) && node(j)->valuedouble == floor(node(j)->valuedouble);
}

int64_t json_int(const struct json *j)
{
    check(json_is_int(j));
    return (int64_t)node(j)->valuedouble;
}

bool json_bool(const struct json *j)
{
    check(cJSON_IsBool(node(j)));
    return cJSON_IsTrue(node(j));
}

const char *json_get_string(const struct json *obj, const char *key, const char *def)
{
    const struct json *j = json_get(obj, key);
    return j && json_type(j) == JSON_STRING ? json_string(j) : def;
}

int64_t json_get_int(const struct json *obj, const char *key, int64_t def)
{
    const struct json *j = json_get(obj, key);
    return j && json_is_int(j) ? json_int(j) : def;
}

bool json_get_bool(const struct json *obj, const char *key, bool def)
{
    const struct json *j = json_get(obj, key);
    return j && json_type(j) == JSON_BOOL ? json_bool(j) : def;
}

static void print(const struct json *j, struct jw *w);

static void print_children(const struct json *j, struct jw *w, bool keys)
{
    for (const struct json *c = json_first(j); c; c = json_next(c)) {
        if (keys)
            jw_key(w, json_key(c));
        print(c, w);
    }
}

static void print(const struct json *j, struct jw *w)
{
    switch (json_type(j)) {
    case JSON_NULL:
        jw_null(w);
        break;
    case JSON_BOOL:
        jw_bool(w, json_bool(j));
        break;
    case JSON_NUMBER:
        if (json_is_int(j))
            jw_int(w, json_int(j));
        else
            jw_real(w, json_number(j));
        break;
    case JSON_STRING:
        jw_string(w, json_string(j));
        break;
    case JSON_ARRAY:
        jw_array(w);
        print_children(j, w, false);
        jw_end_array(w);
        break;
    case JSON_OBJECT:
        jw_object(w);
        print_children(j, w, true);
        jw_end_object(w);
        break;
    }
}

void json_print(const struct json *j, struct buf *out)
{
    struct jw w = JW_INIT(out);
    print(j, &w);
}

void jw_json(struct jw *w, const struct json *j)
{
    print(j, w);
}

static void before_value(struct jw *w)
{
    if (w->comma)
        buf_addc(w->out, ',');
    w->comma = true;
}

static void open_level(struct jw *w, char c)
{
    before_value(w);
    buf_addc(w->out, c);
    w->comma = false;
    w->depth++;
}

static void close_level(struct jw *w, char c)
{
    check(w->depth > 0);
    buf_addc(w->out, c);
    w->comma = true;
    w->depth--;
}

void jw_object(struct jw *w)
{
    open_level(w, '{');
}

void jw_array(struct jw *w)
{
    open_level(w, '[');
}

void jw_end_object(struct jw *w)
{
    close_level(w, '}');
}

void jw_end_array(struct jw *w)
{
    close_level(w, ']');
}

static void add_escape(struct buf *out, unsigned char c)
{
    static const char shorts[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    for (const char *s = shorts; *s; s += 2)
        if ((unsigned char)*s == c) {
            buf_addc(out, '\\');
            buf_addc(out, s[1]);
            return;
        }
    buf_addf(out, "\\u%04x", c);
}

static void add_quoted(struct buf *out, const char *p, size_t n)
{
    buf_addc(out, '"');
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f)
            continue;
        buf_add(out, p + from, i - from);
        add_escape(out, c);
        from = i + 1;
    }
    buf_add(out, p + from, n - from);
    buf_addc(out, '"');
}

void jw_key(struct jw *w, const char *key)
{
    before_value(w);
    add_quoted(w->out, key, strlen(key));
    buf_addc(w->out, ':');
    w->comma = false;
}

void jw_string_n(struct jw *w, const char *p, size_t n)
{
    before_value(w);
    add_quoted(w->out, p, n);
}

void jw_string(struct jw *w, const char *s)
{
    jw_string_n(w, s, strlen(s));
}

void jw_int(struct jw *w, int64_t v)
{
    before_value(w);
    buf_addf(w->out, "%" PRId64, v);
}

void jw_real(struct jw *w, double v)
{
    char text[40];
    before_value(w);
    if (!isfinite(v)) {
        buf_adds(w->out, "null");
        return;
    }
    /* The short form where it is exact: 0.1 and not 0.10000000000000001. */
    (void)snprintf(text, sizeof text, "%.15g", v);
    double back = strtod(text, NULL);
    if (memcmp(&back, &v, sizeof v) != 0)
        (void)snprintf(text, sizeof text, "%.17g", v);
    buf_adds(w->out, text);
}

void jw_bool(struct jw *w, bool v)
{
    before_value(w);
    buf_adds(w->out, v ? "true" : "false");
}

void jw_null(struct jw *w)
{
    before_value(w);
    buf_adds(w->out, "null");
}

void jw_raw(struct jw *w, const char *json, size_t n)
{
    before_value(w);
    buf_add(w->out, json, n);
}

void jw_kstring(struct jw *w, const char *key, const char *s)
{
    if (!s)
        return;
    jw_key(w, key);
    jw_string(w, s);
}

void jw_kint(struct jw *w, const char *key, int64_t v)
{
    jw_key(w, key);
    jw_int(w, v);
}

void jw_kreal(struct jw *w, const char *key, double v)
{
    jw_key(w, key);
    jw_real(w, v);
}

void jw_kbool(struct jw *w, const char *key, bool v)
{
    jw_key(w, key);
    jw_bool(w, v);
}

void jw_knull(struct jw *w, const char *key)
{
    jw_key(w, key);
    jw_null(w);
}

void jw_kraw(struct jw *w, const char *key, const char *json, size_t n)
{
    jw_key(w, key);
    jw_raw(w, json, n);
}

static void clean_string(struct jw *w, const char *key, const char *s)
{
    struct buf clean = BUF_INIT(4096);
    (void)text_clean(&clean, s, strlen(s), 0);
    jw_key(w, key);
    jw_string_n(w, clean.p, clean.len);
    buf_release(&clean);
}

void json_error(struct buf *out, const struct err *e)
{
    struct jw w = JW_INIT(out);
    jw_object(&w);
    clean_string(&w, "error", e->msg);
    jw_kstring(&w, "code", err_code(e));
    clean_string(&w, "fix", err_fix_text(e));
    jw_end_object(&w);
}
