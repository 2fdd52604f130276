#include "fcgi/schema.h"

#include "common/text.h"

#include <math.h>

/* What a value may be, as bits. */
enum {
    T_NULL = 1,
    T_BOOL = 2,
    T_INTEGER = 4,
    T_NUMBER = 8,
    T_STRING = 16,
    T_ARRAY = 32,
    T_OBJECT = 64
};

static const struct {
    const char *name;
    unsigned bit;
    const char *words; /* what an error says is accepted */
} types[] = {
    {"null", T_NULL, "null"},
    {"boolean", T_BOOL, "true or false"},
    {"integer", T_INTEGER, "a whole number"},
    {"number", T_NUMBER, "a number"},
    {"string", T_STRING, "a string"},
    {"array", T_ARRAY, "a list"},
    {"object", T_OBJECT, "an object"},
};

static unsigned type_bit(const struct json *name)
{
    for (size_t i = 0; json_type(name) == JSON_STRING && i < ARRAY_LEN(types); i++)
        if (streq(types[i].name, json_string(name)))
            return types[i].bit;
    return 0;
}

/* The types that a schema allows; all of them when it does not say. */
static unsigned type_bits(const struct json *schema)
{
    const struct json *t = json_get(schema, "type");
    if (!t)
        return 127;
    if (json_type(t) == JSON_STRING)
        return type_bit(t);
    unsigned bits = 0;
    for (const struct json *c = json_first(t); c; c = json_next(c))
        bits |= type_bit(c);
    return bits;
}

/* --- checking a schema ---------------------------------------------------------------------- */

typedef int keyword_check(const struct json *value, struct err *e);

static int keyword_ok(const struct json *value, struct err *e)
{
    (void)value;
    (void)e;
    return 0;
}

static int check_node(const struct json *schema, struct err *e);

static int check_type(const struct json *value, struct err *e)
{
    if (json_type(value) == JSON_STRING && type_bit(value))
        return 0;
    bool good = json_type(value) == JSON_ARRAY && json_len(value) > 0;
    for (const struct json *c = json_first(value); good && c; c = json_next(c))
        good = type_bit(c) != 0;
    return good ? 0 : err_set(e, ERR_INVALID, "schema: bad type");
}

static int check_properties(const struct json *value, struct err *e)
{
    if (json_type(value) != JSON_OBJECT)
        return err_set(e, ERR_INVALID, "schema: properties is not an object");
    for (const struct json *c = json_first(value); c; c = json_next(c))
        if (check_node(c, e) < 0)
            return err_wrap(e, "%s", json_key(c));
    return 0;
}

static int check_additional(const struct json *value, struct err *e)
{
    return json_type(value) == JSON_BOOL ? 0 : check_node(value, e);
}

static int check_list(const struct json *value, struct err *e)
{
    return json_type(value) == JSON_ARRAY ? 0 : err_set(e, ERR_INVALID, "schema: not a list");
}

static int check_strings(const struct json *value, struct err *e)
{
    bool good = json_type(value) == JSON_ARRAY;
    for (const struct json *c = json_first(value); good && c; c = json_next(c))
        good = json_type(c) == JSON_STRING;
    return good ? 0 : err_set(e, ERR_INVALID, "schema: not a list of strings");
}

static int check_number(const struct json *value, struct err *e)
{
    return json_type(value) == JSON_NUMBER ? 0 : err_set(e, ERR_INVALID, "schema: not a number");
}

static const struct {
    const char *name;
    keyword_check *run;
} keywords[] = {
    {"type", check_type},        {"properties", check_properties},
    {"required", check_strings}, {"additionalProperties", check_additional},
    {"enum", check_list},        {"items", check_node},
    {"minimum", check_number},   {"maximum", check_number},
    {"minLength", check_number}, {"maxLength", check_number},
    {"minItems", check_number},  {"maxItems", check_number},
    {"title", keyword_ok},       {"description", keyword_ok},
    {"default", keyword_ok},     {"examples", keyword_ok},
};

static int check_keyword(const struct json *member, struct err *e)
{
    for (size_t i = 0; i < ARRAY_LEN(keywords); i++)
        if (streq(keywords[i].name, json_key(member)))
            return keywords[i].run(member, e);
    return err_set(e, ERR_INVALID, "schema: the keyword \"%.40s\" is not known", json_key(member));
}

static int check_node(const struct json *schema, struct err *e)
{
    if (json_type(schema) != JSON_OBJECT)
        return err_set(e, ERR_INVALID, "schema: not an object");
    for (const struct json *c = json_first(schema); c; c = json_next(c))
        if (check_keyword(c, e) < 0)
            return -1;
    return 0;
}

int schema_check(const struct json *schema, struct err *e)
{
    if (check_node(schema, e) < 0)
        return -1;
    if (!streq(json_get_string(schema, "type", ""), "object"))
        return err_set(e, ERR_INVALID, "schema: the root is not of type object");
    const struct json *props = json_get(schema, "properties");
    const struct json *required = json_get(schema, "required");
    for (const struct json *c = json_first(required); c; c = json_next(c))
        if (!json_get(props, json_string(c)))
            return err_set(e, ERR_INVALID, "schema: required \"%s\" is no property",
                           json_string(c));
    return 0;
}

/* --- checking a value ----------------------------------------------------------------------- */

static int refuse(const char *name, const struct json *value, struct err *e, const char *accepted)
{
    struct buf text = BUF_INIT(1 << 20), shown = BUF_INIT(512);
    json_print(value, &text);
    text_excerpt(&shown, text.p, text.len, 80);
    err_set(e, ERR_INVALID, "the argument \"%.64s\" is %s; it takes %s", name,
            buf_bad(&text) ? "too large" : shown.p, accepted);
    err_fix(e, "invalid_argument", "correct \"%.64s\" and call again", name);
    buf_release(&text);
    buf_release(&shown);
    return -1;
}

static void accepted_types(unsigned bits, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (bits & types[i].bit)
            buf_addf(out, "%s%s", out->len ? " or " : "", types[i].words);
}

/* The type as which the value is taken, or 0. *ret_number: the value of a number or integer. */
static unsigned taken_as(const struct json *v, unsigned allowed, double *ret_number)
{
    static const unsigned plain[] = {
        [JSON_NULL] = T_NULL,     [JSON_BOOL] = T_BOOL,   [JSON_NUMBER] = T_NUMBER,
        [JSON_STRING] = T_STRING, [JSON_ARRAY] = T_ARRAY, [JSON_OBJECT] = T_OBJECT};
    unsigned t = plain[json_type(v)];
    if (t == T_STRING && !(allowed & T_STRING)) {
        const char *s = json_string(v);
        if ((allowed & T_BOOL) && (streq(s, "true") || streq(s, "false")))
            return T_BOOL;
        if (args_parse_number(s, ret_number))
            t = T_NUMBER;
    } else if (t == T_NUMBER) {
        *ret_number = json_number(v);
    }
    if (t == T_NUMBER && !(allowed & T_NUMBER))
        return (allowed & T_INTEGER) && *ret_number == floor(*ret_number) ? T_INTEGER : 0;
    return t & allowed;
}

static int check_range(const struct json *s, const char *name, const struct json *v, double n,
                       struct err *e)
{
    const struct json *lo = json_get(s, "minimum"), *hi = json_get(s, "maximum");
    char accepted[96];
    if ((!lo || n >= json_number(lo)) && (!hi || n <= json_number(hi)))
        return 0;
    const char *what = type_bits(s) & T_NUMBER ? "a number" : "a whole number";
    if (lo && hi)
        (void)snprintf(accepted, sizeof accepted, "%s from %.15g to %.15g", what, json_number(lo),
                       json_number(hi));
    else if (lo)
        (void)snprintf(accepted, sizeof accepted, "%s of at least %.15g", what, json_number(lo));
    else
        (void)snprintf(accepted, sizeof accepted, "%s of at most %.15g", what, json_number(hi));
    return refuse(name, v, e, accepted);
}

static int check_count(const struct json *s, const char *name, const struct json *v, size_t n,
                       const char *min, const char *max, const char *unit, struct err *e)
{
    int64_t lo = json_get_int(s, min, 0), hi = json_get_int(s, max, INT64_MAX);
    char accepted[96];
    if ((int64_t)n >= lo && (int64_t)n <= hi)
        return 0;
    if ((int64_t)n < lo)
        (void)snprintf(accepted, sizeof accepted, "at least %" PRId64 " %s", lo, unit);
    else
        (void)snprintf(accepted, sizeof accepted, "at most %" PRId64 " %s", hi, unit);
    return refuse(name, v, e, accepted);
}

static bool equal(const struct json *a, const struct json *b)
{
    if (json_type(a) != json_type(b))
        return false;
    if (json_type(a) == JSON_STRING)
        return streq(json_string(a), json_string(b));
    if (json_type(a) == JSON_NUMBER)
        return !(json_number(a) < json_number(b)) && !(json_number(a) > json_number(b));
    return json_type(a) == JSON_BOOL && json_bool(a) == json_bool(b);
}

static int check_enum(const struct json *list, const char *name, const struct json *v,
                      struct err *e)
{
    for (const struct json *c = json_first(list); c; c = json_next(c))
        if (equal(c, v))
            return 0;
    struct buf accepted = BUF_INIT(400);
    buf_adds(&accepted, "one of ");
    json_print(list, &accepted);
    int r = refuse(name, v, e, accepted.p);
    buf_release(&accepted);
    return r;
}

static int check_value(const struct json *s, const char *name, const struct json *v, struct err *e);

static int check_items(const struct json *s, const char *name, const struct json *v, struct err *e)
{
    const struct json *items = json_get(s, "items");
    char at[80];
    size_t i = 0;
    for (const struct json *c = items ? json_first(v) : NULL; c; c = json_next(c)) {
        (void)snprintf(at, sizeof at, "%.60s[%zu]", name, i++);
        if (check_value(items, at, c, e) < 0)
            return -1;
    }
    return 0;
}

static int check_members(const struct json *s, const char *name, const struct json *v,
                         struct err *e)
{
    const struct json *props = json_get(s, "properties");
    const struct json *rest = json_get(s, "additionalProperties");
    char at[160];
    for (const struct json *c = json_first(v); c; c = json_next(c)) {
        const struct json *sub = json_get(props, json_key(c));
        (void)snprintf(at, sizeof at, "%.60s.%.80s", name, json_key(c));
        if (!sub && rest && json_type(rest) == JSON_OBJECT)
            sub = rest;
        if (!sub && rest && json_type(rest) == JSON_BOOL && !json_bool(rest))
            return refuse(at, c, e, "no such member");
        if (sub && check_value(sub, at, c, e) < 0)
            return -1;
    }
    return 0;
}

/* The depth of the value is bounded by the parser, that of the schema by us. */
static int check_value(const struct json *s, const char *name, const struct json *v, struct err *e)
{
    double n = 0;
    unsigned allowed = type_bits(s), t = taken_as(v, allowed, &n);
    if (!t) {
        struct buf accepted = BUF_INIT(200);
        accepted_types(allowed, &accepted);
        int r = refuse(name, v, e, accepted.p);
        buf_release(&accepted);
        return r;
    }
    const struct json *list = json_get(s, "enum");
    if (list && check_enum(list, name, v, e) < 0)
        return -1;
    if (t == T_NUMBER || t == T_INTEGER)
        return check_range(s, name, v, n, e);
    if (t == T_STRING)
        return check_count(s, name, v, strlen(json_string(v)), "minLength", "maxLength", "bytes",
                           e);
    if (t == T_ARRAY)
        return check_count(s, name, v, json_len(v), "minItems", "maxItems", "entries", e) < 0
                   ? -1
                   : check_items(s, name, v, e);
    return t == T_OBJECT ? check_members(s, name, v, e) : 0;
}

static int unknown_argument(const struct json *props, const char *key, struct err *e)
{
    const char *near = NULL;
    unsigned best = 4;
    for (const struct json *c = json_first(props); c; c = json_next(c)) {
        unsigned d = text_distance(key, json_key(c));
        if (d < best && d < strlen(json_key(c))) {
            best = d;
            near = json_key(c);
        }
    }
    struct buf shown = BUF_INIT(400);
    text_excerpt(&shown, key, strlen(key), 64);
    err_set(e, ERR_INVALID, "there is no argument \"%s\"%s%s%s", shown.p,
            near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    buf_release(&shown);
    return err_fix(e, "invalid_argument", "leave it out or use a known one");
}

static int check_required(const struct json *schema, const struct args *args, struct err *e)
{
    const struct json *required = json_get(schema, "required");
    for (const struct json *c = json_first(required); c; c = json_next(c)) {
        if (args_has(args, json_string(c)))
            continue;
        err_set(e, ERR_INVALID, "the argument \"%s\" is missing", json_string(c));
        return err_fix(e, "invalid_argument", "add \"%s\"", json_string(c));
    }
    return 0;
}

int schema_validate(const struct json *schema, const struct args *args, struct err *e)
{
    const struct json *props = json_get(schema, "properties");
    for (const struct json *c = json_first(args->obj); c; c = json_next(c)) {
        const char *name = args_name(args, json_key(c));
        const struct json *sub = json_get(props, name);
        if (!sub)
            return unknown_argument(props, name, e);
        if (json_type(c) != JSON_NULL && check_value(sub, name, c, e) < 0)
            return -1;
    }
    return check_required(schema, args, e);
}

static bool is_required(const struct json *schema, const char *name)
{
    const struct json *required = json_get(schema, "required");
    for (const struct json *c = json_first(required); c; c = json_next(c))
        if (streq(json_string(c), name))
            return true;
    return false;
}

void schema_usage(const struct json *schema, const char *tool, struct buf *out)
{
    buf_addf(out, "%s(", tool);
    const char *comma = "";
    const struct json *props = json_get(schema, "properties");
    for (const struct json *c = json_first(props); c; c = json_next(c)) {
        buf_addf(out, "%s%s%s", comma, json_key(c), is_required(schema, json_key(c)) ? "" : "?");
        comma = ", ";
    }
    buf_adds(out, ")");
}
