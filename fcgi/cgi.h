/*
 * cgi.h - plain CGI: one request from the environment and stdin, its response to stdout.
 *
 * libfcgi's own fall-back does not work with FCGX_Accept_r, and is not needed: this is all of it.
 */
#ifndef SMCP_FCGI_CGI_H
#define SMCP_FCGI_CGI_H

#include "common/settings.h"

bool cgi_is_asked(void); /* GATEWAY_INTERFACE is set and fd 0 is no socket */
int cgi_run(const struct settings *s);

#endif
