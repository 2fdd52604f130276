/*
 * runlog.h - the log file of one run: all its output in order, bounded, addressed by offset.
 *
 * Layout: a header of RUNLOG_HEADER bytes, then a head that keeps the first bytes for ever, then a
 *   ring that keeps the last ones. A byte with offset o lies at a place that only o decides, so
 *   writing the same bytes again is harmless; the header's total is raised after the bytes are
 *   written. That makes the file its own record of how far the output has been stored: after a
 *   crash at any point the writer goes on at runlog_total without gap or repetition.
 *   Bytes that will overwrite kept ones are announced first (claim), so that a reader which was
 *   lapped while it read notices it and gets nothing instead of bytes of another offset.
 * One writer (the runner); any number of readers in other processes.
 * Offsets: [0, head) and [total - ring, total) are there; what lies between was dropped.
 */
#ifndef SMCP_RUNLOG_H
#define SMCP_RUNLOG_H

#include "common/base.h"
#include "common/buf.h"
#include "common/err.h"

#define RUNLOG_HEADER 64

struct runlog {
    int fd;
    uint64_t head; /* bytes kept from the beginning */
    uint64_t ring; /* bytes kept from the end */
    uint64_t total;
    uint64_t claim; /* the writer may have overwritten what this total would */
};

#define RUNLOG_INIT                                                                                \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/* Open for writing; create with room for `max` bytes when it is not there. */
int runlog_open_write(struct runlog *ret, const char *path, int64_t max, struct err *e) _check_;

/* Open for reading. ERR_NOTFOUND when there is no such file. */
int runlog_open_read(struct runlog *ret, const char *path, struct err *e) _check_;
void runlog_close(struct runlog *l);
#define _cleanup_runlog_ _cleanup_(runlog_close)

/* Append at l->total. On failure (disk full) the total stays. */
int runlog_append(struct runlog *l, const void *p, size_t n, struct err *e) _check_;

/* Count n bytes as produced but not kept (the disk is full). */
int runlog_skip(struct runlog *l, uint64_t n, struct err *e) _check_;

/* Take up what the writer has added since. */
int runlog_refresh(struct runlog *l, struct err *e) _check_;

/* Offset of the first byte at or after `offset` that is kept. */
uint64_t runlog_first_kept(const struct runlog *l, uint64_t offset);

/*
 * Append to `out` kept bytes from `offset`, at most n, not across a dropped range. Returns the
 * bytes added; 0 at the end, and when the writer has dropped them meanwhile (refresh, go on at
 * runlog_first_kept).
 */
ssize_t runlog_read(const struct runlog *l, uint64_t offset, size_t n, struct buf *out,
                    struct err *e) _check_;

#endif
