/*
 * tools.h - the registry: one row per tool. tools/list, validation, toolsets and the documentation
 * come from the row. Rows are sorted as they are listed.
 *
 * tools_load parses the schemas once, before the workers are forked; a schema that schema.c does
 * not understand in full is a start-up failure.
 */
#ifndef SMCP_FCGI_TOOLS_H
#define SMCP_FCGI_TOOLS_H

#include "common/settings.h"
#include "fcgi/tool.h"

enum toolset {
    SET_CORE = 1,
    SET_EXEC = 2,
    SET_JOBS = 4,
    SET_FILES = 8,
    SET_MANAGE = 16,
    SET_SNAPSHOTS = 32,
    SET_NETWORK = 64,
    SET_CHILDREN = 128,
    SET_ALL = 255
};

int tools_load(const struct settings *s, struct err *e) _check_;
void tools_unload(void);

size_t tools_count(void);
const struct tool *tools_at(size_t i);

/* The tool of that name, old names included; *ret_renames: argument names of an old tool name. */
const struct tool *tools_find(const char *name, unsigned toolsets,
                              const struct rename **ret_renames);

/* A listed name that is near, or NULL. */
const char *tools_nearest(const char *name, unsigned toolsets);

/* The names, comma separated. */
void tools_names(unsigned toolsets, struct buf *out);

/* Writes the array of tools/list. */
void tools_list(unsigned toolsets, struct jw *w);

int tools_validate(const struct tool *t, const struct args *args, struct err *e) _check_;

/* "all", "core,files" to bits. */
int toolsets_parse(const char *list, unsigned *ret, struct err *e) _check_;

/* The text of docs/tools.md. */
void tools_markdown(struct buf *out);

#endif
