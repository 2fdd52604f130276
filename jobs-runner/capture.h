/*
 * capture.h - the beginning and the end of one output stream, in bounded memory.
 *
 * Keeps the first half and the last half of `max` bytes and counts all. While no more than `max`
 * bytes came, everything is kept. Memory is taken as output comes, not before.
 */
#ifndef RUNNER_CAPTURE_H
#define RUNNER_CAPTURE_H

#include "common/base.h"
#include "common/buf.h"
#include "common/text.h"

struct capture {
    struct buf head;
    char *ring; /* `half` bytes, once the head is full */
    size_t half;
    uint64_t total;
};

void capture_init(struct capture *c, size_t max);
void capture_release(struct capture *c);
void capture_add(struct capture *c, const char *p, size_t n);
void capture_skip(struct capture *c, uint64_t n); /* n bytes came that are not at hand any more */

/*
 * Append what is kept as clean UTF-8, with a line that counts what was left out in the middle.
 * `open`: more may follow, so a character cut off at the end is left for later.
 * Returns the bytes that were left out.
 */
uint64_t capture_text(const struct capture *c, bool open, struct buf *out,
                      enum text_encoding *ret_enc);

#endif
