/*
 * jwks.h - the public keys of an issuer (a JSON Web Key Set), and signatures checked with them.
 *
 * The library is cjose: it reads JWKs itself, knows RSA-PSS, is what mod_auth_openidc relies on,
 * gets Debian's security updates, and adds nothing but jansson beside libcrypto. (libjwt 1.10 has
 * neither key sets nor PSS; libjose does more than this, through tables that plug-ins extend.)
 * It has no EdDSA. Which algorithms count is decided in jwt.c and by the key here, never by the
 * token alone: jwks.c is the only file that knows cjose.
 * Keys: RSA of 2048 to 8192 bits, P-256, P-384; kept only if their "use", "key_ops" and "alg"
 *   allow checking signatures. Others in the set are passed over. At most JWKS_MAX.
 * Ownership: jwks_release frees; a `struct jwk *` lives as long as its set.
 */
#ifndef SMCP_FCGI_JWKS_H
#define SMCP_FCGI_JWKS_H

#include "common/base.h"
#include "common/err.h"
#include "common/json.h"
#include "fcgi/jwt.h"

#define JWKS_MAX 64

struct jwk;

struct jwks {
    struct jwk *keys;
    size_t n;
};

/* From an object with "keys". A set without one usable key is an error. */
int jwks_parse(const struct json *set, struct jwks *ret, struct err *e) _check_;
void jwks_release(struct jwks *set);

/* The key that the token names; without a name, the only one that fits its algorithm. Or NULL. */
const struct jwk *jwks_find(const struct jwks *set, const struct jwt *t);

int jwks_verify(const struct jwk *key, const struct jwt *t, struct err *e) _check_;

#endif
