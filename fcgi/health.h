/*
 * health.h - /healthz: {"ok", "version", "runner", "docker", "database"}.
 *
 * Asks the runner (at most 2 s) and the database; the answer is kept for a second, because anyone
 * may ask. Returns the HTTP status: 200, or 503 when a part is down. The text belongs to the app.
 */
#ifndef SMCP_FCGI_HEALTH_H
#define SMCP_FCGI_HEALTH_H

#include "fcgi/app.h"

int health_check(struct app *app, const struct buf **ret_text);

#endif
