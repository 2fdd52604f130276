/*
 * jwt.h - an access token as text: its parts, and what its claims must say.
 *
 * jwt_parse takes a token apart and refuses what no key has to be asked about: more than JWT_MAX
 * bytes, a form that is not three base64url parts, an algorithm outside jwt_algs (all of them
 * signatures with a public key; never "none", never HS*), extensions that must be understood
 * ("crit"), another kind of token ("typ"). Nothing in it is believed until jwks_verify said yes;
 * jwt_check_claims may come before, so that a token of somebody else's causes no fetch of keys.
 * Ownership: `text` stays the caller's and must outlive the struct; the rest is freed by
 * jwt_release. Errors: ERR_UNAUTH, ERR_FORBIDDEN from jwt_check_scopes; the messages are for the
 * client.
 */
#ifndef SMCP_FCGI_JWT_H
#define SMCP_FCGI_JWT_H

#include "common/base.h"
#include "common/buf.h"
#include "common/err.h"
#include "common/json.h"

#define JWT_MAX      8192
#define JWT_LEEWAY_S 60 /* clocks differ */

struct jwt_alg {
    const char *name;
    const char *kty;  /* of the key that goes with it */
    const char *crv;  /* EC: the curve */
    size_t signature; /* EC: its only length; 0: the key's size tells */
};

struct jwt {
    const char *text;
    size_t n;
    const struct jwt_alg *alg;
    const char *kid; /* NULL: the header names no key */
    struct json *header, *claims;
};

struct jwt_rules {
    const char *issuer;
    const char *audience;
    int64_t now_s;
};

int jwt_parse(const char *text, size_t n, struct jwt *ret, struct err *e) _check_;
void jwt_release(struct jwt *t);
#define _cleanup_jwt_ _cleanup_(jwt_release)

/* Not empty, without padding, of a possible length. */
bool jwt_base64url(const char *p, size_t n);

/* iss, aud, exp, nbf */
int jwt_check_claims(const struct jwt *t, const struct jwt_rules *rules, struct err *e) _check_;

/* Every one of `wanted` (separated by blanks) is in "scope" or "scp". */
int jwt_check_scopes(const struct jwt *t, const char *wanted, struct err *e) _check_;

#endif
