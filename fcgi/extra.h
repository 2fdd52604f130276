/*
 * extra.h - what a test binary adds to this program: tools, methods, capabilities.
 *
 * This program has none (extra.c). A binary that brings its own `extra` in front of libfcgi.a
 * (tests/clients/fixtures/) serves it through the very same code.
 */
#ifndef SMCP_FCGI_EXTRA_H
#define SMCP_FCGI_EXTRA_H

#include "fcgi/rpc.h"
#include "fcgi/tool.h"

struct extra {
    const struct tool *tools;
    size_t n_tools;
    const struct method *methods; /* of both eras; they go before our own of that name */
    size_t n_methods;
    const char *capabilities; /* members of the object, JSON text, or NULL */
};

extern const struct extra extra;

#endif
