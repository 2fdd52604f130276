/*
 * fetch.h - the key set of an OAuth issuer, over HTTPS, by a short-lived child process.
 *
 * The child loads libcurl (some thirty libraries) and goes away with it: a worker's memory stays
 * what it was, a start costs nothing more, and what reads the answers of a foreign server is not
 * the process that serves clients. Servers without OAuth never load it.
 * Steps: the issuer's metadata from /.well-known/oauth-authorization-server (RFC 8414: put between
 *   host and path) or <issuer>/.well-known/openid-configuration, whose "issuer" must be ours; then
 *   its "jwks_uri".
 * Limits: FETCH_STEP_MS for each answer, FETCH_ALL_MS together, FETCH_MAX bytes; no redirects;
 *   https with checked certificates, or http when both ends are this machine.
 */
#ifndef SMCP_FCGI_FETCH_H
#define SMCP_FCGI_FETCH_H

#include "common/base.h"
#include "common/buf.h"
#include "common/err.h"

#define FETCH_MAX     (256 << 10)
#define FETCH_STEP_MS 5000
#define FETCH_ALL_MS  12000

/* The text of the key set into out (room for FETCH_MAX + 1). Blocks. ERR_UNAVAILABLE: why not. */
int fetch_keys(const char *issuer, struct buf *out, struct err *e) _check_;

#endif
