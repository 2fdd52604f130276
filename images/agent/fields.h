/*
 * fields.h - the fields of one payload, found once and then looked up by tag.
 *
 * Ownership: nothing is copied; a fields struct points into the payload and lives no longer.
 * Errors:    fields_parse() is -1 when the payload is malformed, also when a number is not 8 bytes.
 * Repeats:   of a repeated field the last one is found. WT_ENV and WT_ARG, the ones meant to
 *            repeat, are counted here and walked with fields_each().
 */
#ifndef AGENT_FIELDS_H
#define AGENT_FIELDS_H

#include "images/agent/base.h"

#include "common/wire.h"

struct fields {
    const unsigned char *payload;
    size_t len;
    struct wire_field last[WT_TARGET + 1]; /* tag 0: absent */
    size_t envs, args;
};

int fields_parse(const unsigned char *payload, size_t len, struct fields *ret);
bool fields_has(const struct fields *f, enum wire_tag tag);
uint64_t fields_number(const struct fields *f, enum wire_tag tag, uint64_t absent);

/* The next field with this tag: *pos starts at 0; false after the last one. */
bool fields_each(const struct fields *f, enum wire_tag tag, size_t *pos, struct wire_field *ret);

/* Bytes of a field as a string: false when it holds a NUL, is absent, or does not fit. */
bool fields_string(const struct fields *f, enum wire_tag tag, char *out, size_t size);

#endif
