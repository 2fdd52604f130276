/*
 * oauth.h - the optional role of an OAuth 2 resource server (SMCP_OAUTH_ISSUER).
 *
 * Access tokens are JWTs of one issuer, checked here without asking it: form and claims (jwt.h),
 * signature (jwks.h) with keys that are kept and renewed (keys.h). Clients learn from the metadata
 * (RFC 9728) and from the challenge of a 401 where to get one. The bearer token of the server
 * stays valid beside it. A token is never stored, logged or passed on.
 * Without an issuer there is no struct oauth, and nothing under /.well-known/.
 */
#ifndef SMCP_FCGI_OAUTH_H
#define SMCP_FCGI_OAUTH_H

#include "common/base.h"
#include "common/buf.h"
#include "common/err.h"
#include "common/settings.h"

struct oauth;

struct oauth *oauth_new(const struct settings *s); /* NULL: no issuer is set */
struct oauth *oauth_free(struct oauth *o);

/*
 * May who sent this token call? ERR_UNAUTH (401), ERR_FORBIDDEN (403, a scope is missing),
 * ERR_UNAVAILABLE (503, no keys to check it with).
 */
int oauth_check(struct oauth *o, const char *token, size_t n, struct err *e) _check_;

/* The protected resource metadata, JSON. */
void oauth_metadata(const struct oauth *o, struct buf *out);

/* The header line "WWW-Authenticate: ...", with an error code or NULL. */
void oauth_challenge(const struct oauth *o, const char *error, struct buf *out);

#endif
