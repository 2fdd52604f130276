#include "fcgi/jwks.h"

#include <cjose/cjose.h>

#define RSA_LEAST 2048
#define RSA_MOST  8192
#define JWK_TEXT  (16 << 10)

struct jwk {
    cjose_jwk_t *key;
    char *kid; /* NULL: it has none */
    char *alg; /* NULL: any that fits */
    char *crv; /* EC */
    const char *kty;
};

/* NULL when absent; a member of another type counts as something that is never right. */
static const char *member(const struct json *obj, const char *key)
{
    const struct json *v = json_get(obj, key);
    return !v ? NULL : json_type(v) == JSON_STRING ? json_string(v) : "";
}

static bool may_verify(const struct json *j)
{
    const char *use = member(j, "use");
    const struct json *ops = json_get(j, "key_ops");
    if (use && !streq(use, "sig"))
        return false;
    if (!ops)
        return true;
    for (const struct json *op = json_type(ops) == JSON_ARRAY ? json_first(ops) : NULL; op;
         op = json_next(op))
        if (json_type(op) == JSON_STRING && streq(json_string(op), "verify"))
            return true;
    return false;
}

static const char *usable_type(const struct json *j)
{
    const char *kty = member(j, "kty"), *crv = member(j, "crv");
    if (kty && streq(kty, "RSA"))
        return "RSA";
    return kty && crv && streq(kty, "EC") && (streq(crv, "P-256") || streq(crv, "P-384")) ? "EC"
                                                                                          : NULL;
}

/* The library stops the program at base64url that is not quite such: it gets none. */
static bool add_number(struct jw *w, const struct json *j, const char *key)
{
    const char *v = member(j, key);
    if (!v || !jwt_base64url(v, strlen(v)))
        return false;
    jw_kstring(w, key, v);
    return true;
}

/* Only what makes the public key: of a private one the rest is not even read. */
static bool write_public(const struct json *j, const char *kty, struct buf *out)
{
    struct jw w = JW_INIT(out);
    bool rsa = streq(kty, "RSA");
    jw_object(&w);
    jw_kstring(&w, "kty", kty);
    if (!rsa)
        jw_kstring(&w, "crv", member(j, "crv"));
    bool complete = add_number(&w, j, rsa ? "n" : "x") && add_number(&w, j, rsa ? "e" : "y");
    jw_end_object(&w);
    return complete && !buf_bad(out);
}

static cjose_jwk_t *import(const struct json *j, const char *kty)
{
    struct buf text = BUF_INIT(JWK_TEXT);
    cjose_err why;
    cjose_jwk_t *key =
        write_public(j, kty, &text) ? cjose_jwk_import(text.p, text.len, &why) : NULL;
    buf_release(&text);
    if (!key || !streq(kty, "RSA"))
        return key;
    size_t bits = cjose_jwk_get_keysize(key, &why);
    if (bits >= RSA_LEAST && bits <= RSA_MOST)
        return key;
    (void)cjose_jwk_release(key);
    return NULL;
}

static char *copy(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

static void add(struct jwks *set, const struct json *j)
{
    const char *kty = json_type(j) == JSON_OBJECT && may_verify(j) ? usable_type(j) : NULL;
    cjose_jwk_t *key = kty ? import(j, kty) : NULL;
    if (!key)
        return;
    set->keys[set->n++] = (struct jwk){
        .key = key,
        .kid = copy(member(j, "kid")),
        .alg = copy(member(j, "alg")),
        .crv = copy(streq(kty, "EC") ? member(j, "crv") : NULL),
        .kty = kty,
    };
}

int jwks_parse(const struct json *set, struct jwks *ret, struct err *e)
{
    const struct json *list = json_get(set, "keys");
    *ret = (struct jwks){0};
    if (!list || json_type(list) != JSON_ARRAY)
        return err_set(e, ERR_INVALID, "the key set has no array 'keys'");
    ret->keys = xcalloc(JWKS_MAX, sizeof *ret->keys);
    for (const struct json *j = json_first(list); j && ret->n < JWKS_MAX; j = json_next(j))
        add(ret, j);
    if (ret->n)
        return 0;
    jwks_release(ret);
    return err_set(e, ERR_INVALID, "the key set has no usable RSA or EC key");
}

void jwks_release(struct jwks *set)
{
    for (size_t i = 0; i < set->n; i++) {
        (void)cjose_jwk_release(set->keys[i].key);
        free(set->keys[i].kid);
        free(set->keys[i].alg);
        free(set->keys[i].crv);
    }
    free(set->keys);
    *set = (struct jwks){0};
}

static bool fits(const struct jwk *k, const struct jwt_alg *alg)
{
    return streq(k->kty, alg->kty) && (!alg->crv || streq(k->crv, alg->crv)) &&
           (!k->alg || streq(k->alg, alg->name));
}

const struct jwk *jwks_find(const struct jwks *set, const struct jwt *t)
{
    const struct jwk *only = NULL;
    for (size_t i = 0; i < set->n; i++) {
        const struct jwk *k = &set->keys[i];
        if (!fits(k, t->alg))
            continue;
        if (t->kid && k->kid && streq(t->kid, k->kid))
            return k;
        if (t->kid)
            continue;
        if (only)
            return NULL;
        only = k;
    }
    return only;
}

int jwks_verify(const struct jwk *key, const struct jwt *t, struct err *e)
{
    cjose_err why;
    cjose_jws_t *jws = fits(key, t->alg) ? cjose_jws_import(t->text, t->n, &why) : NULL;
    /* The library reads the header by itself: it must have read the same. */
    const char *alg =
        jws ? cjose_header_get(cjose_jws_get_protected(jws), CJOSE_HDR_ALG, &why) : NULL;
    bool good = alg && streq(alg, t->alg->name) && cjose_jws_verify(jws, key->key, &why);
    cjose_jws_release(jws);
    if (good)
        return 0;
    err_set(e, ERR_UNAUTH, "this access token is not accepted: its signature is wrong");
    return err_fix(e, "invalid_token", "get a new one from the authorization server");
}
