#include "common/base.h"

#include "common/buf.h"
#include "common/json.h"
#include "common/text.h"
#include "fcgi/jwks.h"
#include "fcgi/jwt.h"
#include "tests/unit/oauth_samples.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct jwt_rules rules = {SAMPLE_ISSUER, SAMPLE_AUDIENCE, SAMPLE_FROM};

static struct jwks keys;

static void start(void)
{
    struct err e = ERR_INIT;
    struct json *j = NULL;
    check(json_parse(SAMPLE_KEYS, strlen(SAMPLE_KEYS), &j, &e) == 0);
    check(jwks_parse(j, &keys, &e) == 0);
    (void)json_free(j);
}

/* Is what was signed (all but the last part) that of a token the issuer made? */
static bool genuine(const char *p, size_t n)
{
    static const char *const tokens[] = {TOKEN_RS256, TOKEN_PS256, TOKEN_ES256, TOKEN_ES384};
    const char *dot = memrchr(p, '.', n);
    for (size_t i = 0; dot && i < ARRAY_LEN(tokens); i++)
        if (strncmp(tokens[i], p, (size_t)(dot - p) + 1) == 0)
            return true;
    return false;
}

static void try_token(const char *p, size_t n)
{
    struct jwt t = {0};
    struct err e = ERR_INIT;
    if (jwt_parse(p, n, &t, &e) < 0) {
        check(e.kind == ERR_UNAUTH && !t.header && !t.claims);
        return;
    }
    bool fits = jwt_check_claims(&t, &rules, &e) == 0;
    const struct jwk *key = jwks_find(&keys, &t);
    if (key && jwks_verify(key, &t, &e) == 0)
        check(fits && genuine(p, n) && jwt_check_scopes(&t, "mail", &e) == 0);
    jwt_release(&t);
}

static void try_keys(const char *p, size_t n)
{
    struct json *j = NULL;
    struct err e = ERR_INIT;
    struct jwks set = {0};
    if (json_parse(p, n, &j, &e) == 0 && jwks_parse(j, &set, &e) == 0)
        check(set.n && set.n <= JWKS_MAX);
    jwks_release(&set);
    (void)json_free(j);
}

static void add_part(struct buf *out, const char *p, size_t n)
{
    size_t at = out->len;
    text_base64(out, p, n);
    while (out->len > at && out->p[out->len - 1] == '=')
        buf_cut(out, out->len - 1);
    for (; at < out->len; at++)
        out->p[at] = (char)(out->p[at] == '+' ? '-' : out->p[at] == '/' ? '_' : out->p[at]);
}

/* Header and claims as plain text, which the fuzzer changes more easily than base64. */
static void try_parts(const char *p, size_t n)
{
    const char *nl = memchr(p, '\n', n);
    size_t head = nl ? (size_t)(nl - p) : n;
    struct buf text = BUF_INIT(1 << 16);
    add_part(&text, p, head);
    buf_addc(&text, '.');
    add_part(&text, p + head, n - head);
    buf_adds(&text, strrchr(TOKEN_ES256, '.'));
    try_token(text.p, text.len);
    buf_release(&text);
}

/* The first byte chooses: k a set of keys, h header and claims, else a token. No forgery passes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *p = (const char *)data + 1;
    if (!keys.n)
        start();
    if (!n)
        return 0;
    if (data[0] == 'k')
        try_keys(p, n - 1);
    else if (data[0] == 'h')
        try_parts(p, n - 1);
    else
        try_token(p, n - 1);
    return 0;
}
