/*
 * keys.h - the issuer's keys as this worker knows them, shared with the other workers.
 *
 * RUN_DIR/oauth-keys.json holds the key set that was fetched last and the time of the last try.
 * A worker looks at the file's date before each use and reads it again when it changed; who needs
 * another set takes the lock RUN_DIR/oauth-keys.lock and fetches for all.
 * When: a key that is not in the set (or no set at all) asks for a fetch, at most once in
 *   KEYS_RETRY_MS for the whole server, so that made-up key ids do not reach the issuer; a set
 *   older than KEYS_AGE_MS is renewed, and tried again each KEYS_RENEW_MS. While the issuer is
 *   down the old keys stay in use.
 * Waiting: who fetches waits for it (fetch.h). Others wait up to KEYS_WAIT_MS, and only when the
 *   key that they need is not there.
 */
#ifndef SMCP_FCGI_KEYS_H
#define SMCP_FCGI_KEYS_H

#include "common/base.h"
#include "common/err.h"
#include "common/settings.h"
#include "fcgi/jwks.h"

#define KEYS_RETRY_MS 30000
#define KEYS_AGE_MS   3600000
#define KEYS_RENEW_MS 300000
#define KEYS_WAIT_MS  1000

struct keys {
    const struct settings *settings;
    struct jwks set; /* empty: none yet */
    int64_t fetched_ms, tried_ms;
    struct timespec changed; /* date of the file that was read */
    ino_t file;
};

void keys_init(struct keys *k, const struct settings *s);
void keys_release(struct keys *k);

/*
 * The key that the token names. ERR_UNAUTH: the issuer has no such key; ERR_UNAVAILABLE: no keys
 * could be got so far. Good until the next call.
 */
const struct jwk *keys_find(struct keys *k, const struct jwt *t, struct err *e) _check_;

#endif
