#include "fcgi/jwt.h"

#include "common/text.h"

#include <strings.h>

static const struct jwt_alg jwt_algs[] = {
    {"RS256", "RSA", NULL, 0},
    {"PS256", "RSA", NULL, 0},
    {"ES256", "EC", "P-256", 64},
    {"ES384", "EC", "P-384", 96},
};

/* --- the parts ------------------------------------------------------------------------------ */

struct part {
    const char *p;
    size_t n;
};

static int refuse(struct err *e, const char *why)
{
    err_set(e, ERR_UNAUTH, "this access token is not accepted: %s", why);
    return err_fix(e, "invalid_token", "get a new one from the authorization server");
}

bool jwt_base64url(const char *p, size_t n)
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    for (size_t i = 0; i < n; i++)
        if (!p[i] || !strchr(digits, p[i]))
            return false;
    return n && n % 4 != 1;
}

/* header.claims.signature: exactly two dots, each part not empty. */
static bool split(const char *p, size_t n, struct part ret[3])
{
    for (size_t i = 0; i < 3; i++) {
        const char *dot = i < 2 ? memchr(p, '.', n) : p + n;
        if (!dot || !jwt_base64url(p, (size_t)(dot - p)))
            return false;
        ret[i] = (struct part){p, (size_t)(dot - p)};
        n -= MIN(n, ret[i].n + 1);
        p = dot + (i < 2);
    }
    return true;
}

static int decode(const struct part *part, struct buf *out)
{
    struct buf plain = BUF_INIT(JWT_MAX + 4);
    for (size_t i = 0; i < part->n; i++)
        buf_addc(&plain, (char)(part->p[i] == '-' ? '+' : part->p[i] == '_' ? '/' : part->p[i]));
    while (plain.len % 4)
        buf_addc(&plain, '=');
    int r = text_unbase64(out, plain.p, plain.len);
    buf_release(&plain);
    return r;
}

static int object(const struct part *part, struct json **ret, struct err *e)
{
    struct buf text = BUF_INIT(JWT_MAX);
    struct err why = ERR_INIT;
    int r = decode(part, &text) < 0 || json_parse(text.p, text.len, ret, &why) < 0 ||
            json_type(*ret) != JSON_OBJECT;
    buf_release(&text);
    return r ? refuse(e, "a part of it is not a JSON object") : 0;
}

/* --- the header ----------------------------------------------------------------------------- */

static const char *string(const struct json *obj, const char *key)
{
    const struct json *v = json_get(obj, key);
    return v && json_type(v) == JSON_STRING ? json_string(v) : NULL;
}

static const struct jwt_alg *find_alg(const char *name)
{
    for (size_t i = 0; name && i < ARRAY_LEN(jwt_algs); i++)
        if (streq(jwt_algs[i].name, name))
            return &jwt_algs[i];
    return NULL;
}

/* Absent, "JWT" or "at+jwt", as media types in any case and with or without "application/". */
static bool typ_ok(const struct json *header)
{
    if (!json_get(header, "typ"))
        return true;
    const char *typ = string(header, "typ");
    if (!typ)
        return false;
    if (strncasecmp(typ, "application/", 12) == 0)
        typ += 12;
    return strcasecmp(typ, "JWT") == 0 || strcasecmp(typ, "at+jwt") == 0;
}

static int check_header(struct jwt *t, const struct part *signature, struct err *e)
{
    t->alg = find_alg(string(t->header, "alg"));
    t->kid = string(t->header, "kid");
    if (!t->alg)
        return refuse(e, "its algorithm is none of RS256, PS256, ES256, ES384");
    if (!typ_ok(t->header))
        return refuse(e, "its type is not at+jwt or JWT");
    if (json_get(t->header, "crit"))
        return refuse(e, "it has extensions that are not known here");
    if (json_get(t->header, "kid") && !t->kid)
        return refuse(e, "its key id is not a string");
    if (t->alg->signature && signature->n * 3 / 4 != t->alg->signature)
        return refuse(e, "its signature does not have the length of its algorithm");
    return 0;
}

int jwt_parse(const char *text, size_t n, struct jwt *ret, struct err *e)
{
    struct jwt t = {.text = text, .n = n};
    struct part parts[3];
    if (n > JWT_MAX)
        return refuse(e, "it is larger than 8 KB");
    if (!split(text, n, parts))
        return refuse(e, "it is neither the server's token nor a signed JWT");
    if (object(&parts[0], &t.header, e) < 0 || object(&parts[1], &t.claims, e) < 0 ||
        check_header(&t, &parts[2], e) < 0) {
        jwt_release(&t);
        return -1;
    }
    *ret = t;
    return 0;
}

void jwt_release(struct jwt *t)
{
    t->header = json_free(t->header);
    t->claims = json_free(t->claims);
    t->kid = NULL;
}

/* --- the claims ----------------------------------------------------------------------------- */

/* A string, or one of an array of strings. */
static bool contains(const struct json *v, const char *wanted)
{
    if (!v || json_type(v) == JSON_STRING)
        return v && streq(json_string(v), wanted);
    if (json_type(v) != JSON_ARRAY)
        return false;
    for (const struct json *item = json_first(v); item; item = json_next(item))
        if (json_type(item) == JSON_STRING && streq(json_string(item), wanted))
            return true;
    return false;
}

static int check_times(const struct jwt *t, int64_t now_s, struct err *e)
{
    const struct json *exp = json_get(t->claims, "exp"), *nbf = json_get(t->claims, "nbf");
    if (!exp || json_type(exp) != JSON_NUMBER)
        return refuse(e, "it does not say when it expires");
    if ((double)now_s >= json_number(exp) + JWT_LEEWAY_S)
        return refuse(e, "it has expired");
    if (nbf && json_type(nbf) != JSON_NUMBER)
        return refuse(e, "its 'nbf' is not a number");
    if (nbf && (double)now_s < json_number(nbf) - JWT_LEEWAY_S)
        return refuse(e, "it is not valid yet");
    return 0;
}

int jwt_check_claims(const struct jwt *t, const struct jwt_rules *rules, struct err *e)
{
    const char *iss = string(t->claims, "iss");
    if (!iss || !streq(iss, rules->issuer))
        return refuse(e, "it is from another issuer");
    if (!contains(json_get(t->claims, "aud"), rules->audience))
        return refuse(e, "it is meant for another audience");
    return check_times(t, rules->now_s, e);
}

/* The word `s` of n bytes in a list separated by blanks. */
static bool has_word(const char *list, const char *s, size_t n)
{
    while (*list) {
        list += strspn(list, " ");
        size_t len = strcspn(list, " ");
        if (len == n && memcmp(list, s, n) == 0)
            return true;
        list += len;
    }
    return false;
}

/* Servers write scopes as one string of words, or as an array, under either name. */
static bool granted(const struct json *v, const char *scope, size_t n)
{
    if (!v || json_type(v) == JSON_STRING)
        return v && has_word(json_string(v), scope, n);
    if (json_type(v) != JSON_ARRAY)
        return false;
    for (const struct json *item = json_first(v); item; item = json_next(item))
        if (json_type(item) == JSON_STRING && strlen(json_string(item)) == n &&
            memcmp(json_string(item), scope, n) == 0)
            return true;
    return false;
}

int jwt_check_scopes(const struct jwt *t, const char *wanted, struct err *e)
{
    while (*(wanted += strspn(wanted, " "))) {
        size_t n = strcspn(wanted, " ");
        if (!granted(json_get(t->claims, "scope"), wanted, n) &&
            !granted(json_get(t->claims, "scp"), wanted, n)) {
            err_set(e, ERR_FORBIDDEN, "this access token lacks the scope %.*s",
                    (int)MIN(n, (size_t)100), wanted);
            return err_fix(e, "insufficient_scope", "ask the authorization server for that scope");
        }
        wanted += n;
    }
    return 0;
}
