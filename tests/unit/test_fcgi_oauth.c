#include "common/base.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/text.h"
#include "fcgi/jwks.h"
#include "fcgi/jwt.h"
#include "fcgi/keys.h"
#include "fcgi/oauth.h"
#include "tests/unit/oauth_samples.h"
#include "tests/unit/support.h"

#define NOW 1950000000

static const struct jwt_rules rules = {SAMPLE_ISSUER, SAMPLE_AUDIENCE, NOW};

static void add_part(struct buf *out, const char *text)
{
    size_t at = out->len;
    text_base64(out, text, strlen(text));
    while (out->len && out->p[out->len - 1] == '=')
        buf_cut(out, out->len - 1);
    for (char *p = out->p + at; *p; p++)
        *p = (char)(*p == '+' ? '-' : *p == '/' ? '_' : *p);
}

/* A token with some signature of 64 bytes. */
static void make_token(struct buf *out, const char *header, const char *claims)
{
    add_part(out, header);
    buf_addc(out, '.');
    add_part(out, claims);
    buf_addc(out, '.');
    add_part(out, "0123456789012345678901234567890123456789012345678901234567890123");
}

/* --- headers -------------------------------------------------------------------------------- */

static const struct {
    int line;
    const char *header;
    bool ok;
} headers[] = {
    {ROW, "{\"alg\":\"ES256\"}", true},
    {ROW, "{\"alg\":\"RS256\",\"kid\":\"x\",\"typ\":\"JWT\"}", true},
    {ROW, "{\"alg\":\"PS256\",\"typ\":\"at+JWT\"}", true},
    {ROW, "{\"alg\":\"ES256\",\"typ\":\"application/at+jwt\"}", true},
    {ROW, "{\"alg\":\"ES384\"}", false}, /* its signatures have 96 bytes */
    {ROW, "{\"alg\":\"none\"}", false},
    {ROW, "{\"alg\":\"NONE\"}", false},
    {ROW, "{\"alg\":\"HS256\"}", false},
    {ROW, "{\"alg\":\"HS512\"}", false},
    {ROW, "{\"alg\":\"RS1\"}", false},
    {ROW, "{\"alg\":\"es256\"}", false},
    {ROW, "{\"alg\":[\"ES256\"]}", false},
    {ROW, "{\"alg\":null}", false},
    {ROW, "{}", false},
    {ROW, "[]", false},
    {ROW, "{\"alg\":\"none\",\"alg\":\"ES256\"}", false},
    {ROW, "{\"alg\":\"ES256\",\"crit\":[]}", false},
    {ROW, "{\"alg\":\"ES256\",\"typ\":\"secevent+jwt\"}", false},
    {ROW, "{\"alg\":\"ES256\",\"typ\":1}", false},
    {ROW, "{\"alg\":\"ES256\",\"kid\":1}", false},
    {ROW, "{\"alg\":\"ES256\",\"kid\":\"a\\u0000b\"}", false},
};

static void headers_of_tokens(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(headers); i++) {
        struct buf text = BUF_INIT(JWT_MAX);
        struct jwt t = {0};
        struct err e = ERR_INIT;
        make_token(&text, headers[i].header, "{}");
        int r = jwt_parse(text.p, text.len, &t, &e);
        row_true(headers[i].line, (r == 0) == headers[i].ok);
        row_true(headers[i].line, r == 0 || e.kind == ERR_UNAUTH);
        jwt_release(&t);
        buf_release(&text);
    }
}

static const struct {
    int line;
    const char *text;
} shapes[] = {
    {ROW, ""},
    {ROW, "."},
    {ROW, ".."},
    {ROW, "..."},
    {ROW, "eyJhbGciOiJFUzI1NiJ9"},
    {ROW, "eyJhbGciOiJFUzI1NiJ9.e30"},
    {ROW, "eyJhbGciOiJFUzI1NiJ9.e30."},
    {ROW, "eyJhbGciOiJFUzI1NiJ9.e30.AAAA"},
    {ROW, "eyJhbGciOiJFUzI1NiJ9.e30.AAAA.AAAA"},
    {ROW, "eyJhbGciOiJFUzI1NiJ9.e30.AAAAA"},
    {ROW, "eyJhbGciOiJFUzI1NiJ9.e3+.AAAA"},
    {ROW, "eyJhbGciOiJFUzI1NiJ9.e3==.AAAA"},
    {ROW, "eyJhbGciOiJFUzI1NiJ9 .e30.AAAA"},
    {ROW, TOKEN_RS256 "="},
    {ROW, TOKEN_RS256 "\n"},
    {ROW, " " TOKEN_RS256},
    {ROW, TOKEN_RS256 ".AAAA"},
};

static void shapes_that_are_no_token(void **state)
{
    (void)state;
    struct jwt t = {0};
    struct err e = ERR_INIT;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        row_true(shapes[i].line, jwt_parse(shapes[i].text, strlen(shapes[i].text), &t, &e) == -1);
    struct buf large = BUF_INIT(2 * JWT_MAX);
    buf_adds(&large, TOKEN_RS256);
    while (large.len <= JWT_MAX)
        buf_addc(&large, 'A');
    assert_int_equal(jwt_parse(large.p, large.len, &t, &e), -1);
    assert_non_null(strstr(e.msg, "larger"));
    buf_release(&large);
}

/* --- claims --------------------------------------------------------------------------------- */

#define ISS "\"iss\":\"" SAMPLE_ISSUER "\""
#define AUD "\"aud\":\"" SAMPLE_AUDIENCE "\""
#define EXP "\"exp\":1950000001"

static const struct {
    int line;
    const char *claims;
    const char *why; /* NULL: good */
} claims[] = {
    {ROW, "{" ISS "," AUD "," EXP "}", NULL},
    {ROW, "{" ISS ",\"aud\":[\"x\",\"" SAMPLE_AUDIENCE "\",7]," EXP "}", NULL},
    {ROW, "{" ISS "," AUD ",\"exp\":1949999941}", NULL}, /* the leeway, to the second */
    {ROW, "{" ISS "," AUD ",\"exp\":1949999940}", "expired"},
    {ROW, "{" ISS "," AUD ",\"exp\":1949999940.5}", NULL},
    {ROW, "{" ISS "," AUD ",\"exp\":-1}", "expired"},
    {ROW, "{" ISS "," AUD ",\"exp\":\"1950000001\"}", "when it expires"},
    {ROW, "{" ISS "," AUD ",\"exp\":null}", "when it expires"},
    {ROW, "{" ISS "," AUD "}", "when it expires"},
    {ROW, "{" ISS "," AUD "," EXP ",\"nbf\":1950000060}", NULL},
    {ROW, "{" ISS "," AUD "," EXP ",\"nbf\":1950000061}", "not valid yet"},
    {ROW, "{" ISS "," AUD "," EXP ",\"nbf\":true}", "nbf"},
    {ROW, "{" AUD "," EXP "}", "issuer"},
    {ROW, "{\"iss\":\"" SAMPLE_ISSUER "/\"," AUD "," EXP "}", "issuer"},
    {ROW, "{\"iss\":[\"" SAMPLE_ISSUER "\"]," AUD "," EXP "}", "issuer"},
    {ROW, "{" ISS "," EXP "}", "audience"},
    {ROW, "{" ISS ",\"aud\":\"" SAMPLE_AUDIENCE "/\"," EXP "}", "audience"},
    {ROW, "{" ISS ",\"aud\":[]," EXP "}", "audience"},
    {ROW, "{" ISS ",\"aud\":{\"x\":\"" SAMPLE_AUDIENCE "\"}," EXP "}", "audience"},
    {ROW, "{" ISS ",\"aud\":[[\"" SAMPLE_AUDIENCE "\"]]," EXP "}", "audience"},
};

static void claims_of_tokens(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(claims); i++) {
        struct buf text = BUF_INIT(JWT_MAX);
        struct jwt t = {0};
        struct err e = ERR_INIT;
        make_token(&text, "{\"alg\":\"ES256\"}", claims[i].claims);
        row_true(claims[i].line, jwt_parse(text.p, text.len, &t, &e) == 0);
        int r = jwt_check_claims(&t, &rules, &e);
        row_true(claims[i].line, (r == 0) == !claims[i].why);
        row_true(claims[i].line, r == 0 || strstr(e.msg, claims[i].why));
        jwt_release(&t);
        buf_release(&text);
    }
}

static const struct {
    int line;
    const char *claims, *wanted;
    bool ok;
} scopes[] = {
    {ROW, "{}", "", true},
    {ROW, "{}", "  ", true},
    {ROW, "{}", "a", false},
    {ROW, "{\"scope\":\"a b\"}", "a", true},
    {ROW, "{\"scope\":\"a b\"}", "b  a ", true},
    {ROW, "{\"scope\":\"a b\"}", "a c", false},
    {ROW, "{\"scope\":\"ab\"}", "a", false},
    {ROW, "{\"scope\":\"a\"}", "ab", false},
    {ROW, "{\"scope\":\"a\",\"scp\":[\"b\"]}", "a b", true},
    {ROW, "{\"scp\":\"a b\"}", "a b", true},
    {ROW, "{\"scp\":[\"a b\"]}", "a", false},
    {ROW, "{\"scp\":[1,null,\"a\"]}", "a", true},
    {ROW, "{\"scope\":{\"a\":true}}", "a", false},
    {ROW, "{\"scope\":null}", "a", false},
    {ROW, "{\"scope\":\"A\"}", "a", false},
};

static void scopes_of_tokens(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scopes); i++) {
        struct buf text = BUF_INIT(JWT_MAX);
        struct jwt t = {0};
        struct err e = ERR_INIT;
        make_token(&text, "{\"alg\":\"ES256\"}", scopes[i].claims);
        row_true(scopes[i].line, jwt_parse(text.p, text.len, &t, &e) == 0);
        int r = jwt_check_scopes(&t, scopes[i].wanted, &e);
        row_true(scopes[i].line, (r == 0) == scopes[i].ok);
        row_true(scopes[i].line, r == 0 || e.kind == ERR_FORBIDDEN);
        jwt_release(&t);
        buf_release(&text);
    }
}

/* --- keys ----------------------------------------------------------------------------------- */

static int read_set(const char *text, struct jwks *ret, struct err *e)
{
    _cleanup_json_ struct json *j = NULL;
    assert_int_equal(json_parse(text, strlen(text), &j, e), 0);
    return jwks_parse(j, ret, e);
}

static const struct {
    int line;
    const char *set;
    size_t n;
} sets[] = {
    {ROW, SAMPLE_KEYS, 3},
    {ROW, "{\"keys\":[" KEY_P256 "," KEY_P256 "]}", 2},
    {ROW, "{\"keys\":[1,null,\"x\",[],{}," KEY_RSA "]}", 1},
    {ROW, "{\"keys\":[{\"use\":\"enc\",\"kty\":\"RSA\",\"n\":\"AQAB\",\"e\":\"AQAB\"}]}", 0},
    {ROW, "{\"keys\":[{\"kty\":\"RSA\",\"n\":\"AQAB\",\"e\":\"AQAB\"}]}", 0}, /* 17 bits */
    {ROW, "{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\"}]}", 0},
    {ROW, "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AQ\",\"y\":\"AQ\"}]}", 0},
    {ROW, "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"A=Q=\",\"y\":\"=\"}]}", 0},
    {ROW, "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":1}]}", 0},
    {ROW, "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-521\",\"x\":\"AQ\",\"y\":\"AQ\"}]}", 0},
    {ROW, "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"AQ\"}]}", 0},
    {ROW, "{\"keys\":{}}", 0},
    {ROW, "{\"keys\":[]}", 0},
    {ROW, "{}", 0},
    {ROW, "[]", 0},
};

static void sets_of_keys(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
        struct jwks set;
        struct err e = ERR_INIT;
        int r = read_set(sets[i].set, &set, &e);
        row_true(sets[i].line, (r == 0) == (sets[i].n > 0));
        row_true(sets[i].line, set.n == sets[i].n);
        jwks_release(&set);
    }
}

static void a_set_has_a_limit(void **state)
{
    (void)state;
    struct buf text = BUF_INIT(1 << 20);
    struct jwks set;
    struct err e = ERR_INIT;
    buf_adds(&text, "{\"keys\":[" KEY_P256);
    for (size_t i = 0; i < JWKS_MAX + 5; i++)
        buf_adds(&text, "," KEY_P256);
    buf_adds(&text, "]}");
    assert_int_equal(read_set(text.p, &set, &e), 0);
    assert_int_equal(set.n, JWKS_MAX);
    jwks_release(&set);
    buf_release(&text);
}

/* Changes one character: 0 none, 1 of the header, 2 of the claims, 3 of the signature. */
static void damage(char *token, int part)
{
    char *p = token;
    for (int i = 1; i < part; i++)
        p = strchr(p, '.') + 1;
    if (part)
        p[9] = p[9] == 'A' ? 'B' : 'A';
}

/* Looks the key up and checks with it; -1 for a token that is not read or has no key. */
static int verify(const struct jwks *set, const char *text)
{
    struct jwt t = {0};
    struct err e = ERR_INIT;
    int r = jwt_parse(text, strlen(text), &t, &e);
    const struct jwk *key = r == 0 ? jwks_find(set, &t) : NULL;
    r = key ? jwks_verify(key, &t, &e) : -1;
    jwt_release(&t);
    return r;
}

static void signatures(void **state)
{
    (void)state;
    static const char *const tokens[] = {TOKEN_RS256, TOKEN_PS256, TOKEN_ES256, TOKEN_ES384};
    struct jwks set;
    struct err e = ERR_INIT;
    assert_int_equal(read_set(SAMPLE_KEYS, &set, &e), 0);
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++)
        for (int part = 0; part <= 3; part++) {
            char *text = xstrdup(tokens[i]);
            damage(text, part);
            assert_int_equal(verify(&set, text), part ? -1 : 0);
            free(text);
        }
    jwks_release(&set);
}

static void a_key_is_for_its_algorithm(void **state)
{
    (void)state;
    static const struct {
        const char *set;
        int found;
    } rows[] = {
        {"{\"keys\":[" KEY_P256 "]}", 0},
        {"{\"keys\":[" KEY_P384 "," KEY_RSA "]}", -1},
        {"{\"keys\":[{\"alg\":\"ES256\"," KEY_P256_REST "]}", 0},
        {"{\"keys\":[{\"alg\":\"ES384\"," KEY_P256_REST "]}", -1},
        {"{\"keys\":[{\"key_ops\":[\"verify\"]," KEY_P256_REST "]}", 0},
        {"{\"keys\":[{\"key_ops\":[\"sign\"]," KEY_P256_REST "," KEY_RSA "]}", -1},
        {"{\"keys\":[{\"use\":\"enc\"," KEY_P256_REST "," KEY_RSA "]}", -1},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct jwks set;
        struct err e = ERR_INIT;
        assert_int_equal(read_set(rows[i].set, &set, &e), 0);
        assert_int_equal(verify(&set, TOKEN_ES256), rows[i].found);
        jwks_release(&set);
    }
}

/* --- the shared file ------------------------------------------------------------------------ */

#define DOWN "http://127.0.0.1:1" /* nobody listens */

static int look_up(const char *issuer, const char *text, struct err *e)
{
    char where[sizeof tmp_dir], from[64];
    struct settings s = {.run_dir = where, .oauth_issuer = from};
    struct keys k;
    struct jwt t = {0};
    (void)snprintf(where, sizeof where, "%s", tmp_dir);
    (void)snprintf(from, sizeof from, "%s", issuer);
    keys_init(&k, &s);
    assert_int_equal(jwt_parse(text, strlen(text), &t, e), 0);
    const struct jwk *key = keys_find(&k, &t, e);
    int r = key ? jwks_verify(key, &t, e) : -1;
    jwt_release(&t);
    keys_release(&k);
    return r;
}

static void store(const char *issuer, int64_t tried_ms, int64_t fetched_ms, const char *set)
{
    struct buf text = BUF_INIT(1 << 16);
    buf_addf(&text, "{\"issuer\":\"%s\",\"tried_ms\":%" PRId64 ",\"fetched_ms\":%" PRId64, issuer,
             tried_ms, fetched_ms);
    if (set)
        buf_addf(&text, ",\"set\":%s", set);
    buf_addc(&text, '}');
    tmp_write(tmp_path("oauth-keys.json"), text.p, 0600);
    buf_release(&text);
}

static void keys_of_another_worker(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    int64_t now = clock_real_ms();
    store(DOWN, now, now, "{\"keys\":[" KEY_P256 "]}");
    assert_int_equal(look_up(DOWN, TOKEN_ES256, &e), 0);
    assert_int_equal(look_up(DOWN, TOKEN_ES384, &e), -1);
    assert_int_equal(e.kind, ERR_UNAUTH);
    assert_int_equal(access(tmp_path("oauth-keys.lock"), F_OK), -1); /* nothing was fetched */
}

static void old_keys_stay(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    store(DOWN, 1, 1, "{\"keys\":[" KEY_P256 "]}");
    assert_int_equal(look_up(DOWN, TOKEN_ES256, &e), 0);
    assert_int_equal(access(tmp_path("oauth-keys.lock"), F_OK), 0);
    assert_int_equal(look_up(DOWN, TOKEN_ES256, &e), 0); /* the failed try left them in the file */
}

static void keys_of_another_issuer_do_not_count(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    int64_t now = clock_real_ms();
    store("http://127.0.0.1:2", now, now, "{\"keys\":[" KEY_P256 "]}");
    assert_int_equal(look_up(DOWN, TOKEN_ES256, &e), -1);
    assert_int_equal(e.kind, ERR_UNAVAILABLE);
}

static void a_file_that_others_may_read_or_is_broken(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    int64_t now = clock_real_ms();
    store(DOWN, now, now, "{\"keys\":[" KEY_P256 "]}");
    assert_int_equal(chmod(tmp_path("oauth-keys.json"), 0644), 0);
    assert_int_equal(look_up(DOWN, TOKEN_ES256, &e), -1);
    tmp_write(tmp_path("oauth-keys.json"), "{\"issuer\":", 0600);
    assert_int_equal(look_up(DOWN, TOKEN_ES256, &e), -1);
    assert_int_equal(e.kind, ERR_UNAVAILABLE);
}

/* --- what clients are told ------------------------------------------------------------------ */

static void metadata_and_challenges(void **state)
{
    (void)state;
    char issuer[] = SAMPLE_ISSUER, base[] = "https://a.example/x/", audience[] = "",
         wanted[] = "a b";
    struct settings s = {.oauth_issuer = issuer,
                         .public_base_url = base,
                         .oauth_audience = audience,
                         .oauth_scopes = wanted};
    struct oauth *o = oauth_new(&s);
    struct buf out = BUF_INIT(4096);
    oauth_metadata(o, &out);
    assert_string_equal(out.p, "{\"resource\":\"https://a.example/x/mcp\","
                               "\"authorization_servers\":[\"" SAMPLE_ISSUER "\"],"
                               "\"scopes_supported\":[\"a\",\"b\"],"
                               "\"bearer_methods_supported\":[\"header\"],"
                               "\"resource_name\":\"sandbox-mcp\"}");
    buf_clear(&out);
    oauth_challenge(o, "invalid_token", &out);
    assert_string_equal(out.p, "WWW-Authenticate: Bearer error=\"invalid_token\", scope=\"a b\", "
                               "resource_metadata=\"https://a.example/x/.well-known/"
                               "oauth-protected-resource/mcp\"\r\n");
    buf_release(&out);
    assert_null(oauth_free(o));
    issuer[0] = '\0';
    assert_null(oauth_new(&s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_of_tokens),
        cmocka_unit_test(shapes_that_are_no_token),
        cmocka_unit_test(claims_of_tokens),
        cmocka_unit_test(scopes_of_tokens),
        cmocka_unit_test(sets_of_keys),
        cmocka_unit_test(a_set_has_a_limit),
        cmocka_unit_test(signatures),
        cmocka_unit_test(a_key_is_for_its_algorithm),
        cmocka_unit_test_setup_teardown(keys_of_another_worker, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(old_keys_stay, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(keys_of_another_issuer_do_not_count, tmp_setup,
                                        tmp_teardown),
        cmocka_unit_test_setup_teardown(a_file_that_others_may_read_or_is_broken, tmp_setup,
                                        tmp_teardown),
        cmocka_unit_test(metadata_and_challenges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
