/*
 * web.h - from an HTTP request to its answer: routes, the HTTP half of the ladder, streaming.
 *
 * Order of the checks: path, Origin and Host, preflight, token, method, Content-Type, size. What
 * follows (JSON, envelope, versions) is the ladder in mcp.c.
 *
 * Host and Origin: a browser sends Origin with every POST, also after DNS rebinding, so a foreign
 *   Origin is always refused. A Host that is not ours is refused when an Origin came with it or
 *   when SMCP_ALLOWED_HOSTS says which are; otherwise it passes, because a TLS front end may
 *   forward any name, and whoever is no browser can send what he likes anyway.
 */
#ifndef SMCP_FCGI_WEB_H
#define SMCP_FCGI_WEB_H

#include "fcgi/app.h"
#include "fcgi/http.h"

/* Answer one request completely. */
void web_serve(struct app *app, struct http *h);

/* Does the setting allow this origin ("https://a.example")? This host ("a.example:8000")? */
bool web_origin_allowed(const struct settings *s, const char *origin);
bool web_host_allowed(const struct settings *s, const char *host);

/* Is this Authorization header the bearer token? Constant time on hashes. */
bool web_token_ok(const struct app *app, const char *authorization);

/* What an Accept header takes; none takes everything. */
bool web_accepts_json(const char *accept);
bool web_accepts_sse(const char *accept);

#endif
