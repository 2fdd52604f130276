#include "fcgi/oauth.h"

#include "common/clock.h"
#include "common/json.h"
#include "fcgi/jwt.h"
#include "fcgi/keys.h"

#define ADDRESS_MAX 4096

struct oauth {
    const struct settings *settings;
    struct keys keys;
    struct buf base;     /* the public address without a slash at the end */
    struct buf audience; /* what "aud" must contain */
};

struct oauth *oauth_new(const struct settings *s)
{
    if (!*s->oauth_issuer)
        return NULL;
    struct oauth *o = xcalloc(1, sizeof *o);
    o->settings = s;
    keys_init(&o->keys, s);
    buf_init(&o->base, ADDRESS_MAX);
    buf_init(&o->audience, ADDRESS_MAX);
    buf_adds(&o->base, s->public_base_url);
    while (o->base.len && o->base.p[o->base.len - 1] == '/')
        buf_cut(&o->base, o->base.len - 1);
    if (*s->oauth_audience)
        buf_adds(&o->audience, s->oauth_audience);
    else
        buf_addf(&o->audience, "%s/mcp", o->base.p);
    return o;
}

struct oauth *oauth_free(struct oauth *o)
{
    if (!o)
        return NULL;
    keys_release(&o->keys);
    buf_release(&o->base);
    buf_release(&o->audience);
    free(o);
    return NULL;
}

int oauth_check(struct oauth *o, const char *token, size_t n, struct err *e)
{
    struct jwt_rules rules = {
        .issuer = o->settings->oauth_issuer,
        .audience = o->audience.p,
        .now_s = clock_real_ms() / 1000,
    };
    _cleanup_jwt_ struct jwt t = {0};
    if (jwt_parse(token, n, &t, e) < 0 || jwt_check_claims(&t, &rules, e) < 0)
        return -1;
    const struct jwk *key = keys_find(&o->keys, &t, e);
    if (!key || jwks_verify(key, &t, e) < 0)
        return -1;
    return jwt_check_scopes(&t, o->settings->oauth_scopes, e);
}

static void add_scopes(struct jw *w, const char *scopes)
{
    jw_key(w, "scopes_supported");
    jw_array(w);
    while (*(scopes += strspn(scopes, " "))) {
        size_t n = strcspn(scopes, " ");
        jw_string_n(w, scopes, n);
        scopes += n;
    }
    jw_end_array(w);
}

void oauth_metadata(const struct oauth *o, struct buf *out)
{
    struct jw w = JW_INIT(out);
    struct buf resource = BUF_INIT(ADDRESS_MAX);
    buf_addf(&resource, "%s/mcp", o->base.p);
    jw_object(&w);
    jw_kstring(&w, "resource", resource.p);
    jw_key(&w, "authorization_servers");
    jw_array(&w);
    jw_string(&w, o->settings->oauth_issuer);
    jw_end_array(&w);
    if (*o->settings->oauth_scopes)
        add_scopes(&w, o->settings->oauth_scopes);
    jw_key(&w, "bearer_methods_supported");
    jw_array(&w);
    jw_string(&w, "header");
    jw_end_array(&w);
    jw_kstring(&w, "resource_name", "sandbox-mcp");
    jw_end_object(&w);
    buf_release(&resource);
}

void oauth_challenge(const struct oauth *o, const char *error, struct buf *out)
{
    buf_adds(out, "WWW-Authenticate: Bearer ");
    if (error)
        buf_addf(out, "error=\"%s\", ", error);
    if (*o->settings->oauth_scopes)
        buf_addf(out, "scope=\"%s\", ", o->settings->oauth_scopes);
    buf_addf(out, "resource_metadata=\"%s/.well-known/oauth-protected-resource/mcp\"\r\n",
             o->base.p);
}
