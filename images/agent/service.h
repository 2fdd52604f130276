/*
 * service.h - what the agent does for each frame: the tables that conn.c dispatches through.
 */
#ifndef AGENT_SERVICE_H
#define AGENT_SERVICE_H

#include "images/agent/conn.h"

extern const struct conn_hooks service_hooks;

int service_init(void); /* draws the boot id */

#endif
