/*
 * msg.h - build one frame of fields in memory the caller gives.
 *
 * Ownership: the caller owns the bytes; a msg only remembers where it is in them.
 * Limits:    a field that does not fit any more is left out whole. Callers size the memory for
 *            what they put in, and cut texts and paths, so this is a guard and not a feature.
 */
#ifndef AGENT_MSG_H
#define AGENT_MSG_H

#include "images/agent/base.h"

#include "common/wire.h"

/* Room for any frame with two paths in it. */
#define MSG_MAX 9216u

struct msg {
    unsigned char *p;
    size_t cap;
    size_t n;
};

void msg_begin(struct msg *m, unsigned char *p, size_t cap);
void msg_number(struct msg *m, enum wire_tag tag, uint64_t v);
void msg_bytes(struct msg *m, enum wire_tag tag, const void *p, size_t n);
void msg_raw(struct msg *m, const void *p, size_t n); /* bytes that are not a field */

/* Write the header in front; returns the length of the frame. */
size_t msg_end(struct msg *m, enum wire_type type, unsigned flags, uint32_t stream);

#endif
