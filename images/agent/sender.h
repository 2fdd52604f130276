/*
 * sender.h - frames on their way to the runner.
 *
 * Purpose:   two sources feed the socket. Small answers are copied into a queue. Producers (runs,
 *            file reads, listings) wait in line and are asked for one frame at a time, round
 *            robin, only when the socket takes more; that bounds memory and keeps one flood from
 *            starving the others. What producers point at goes out by writev without a copy.
 * Ownership: producers live in their owners' structures; an owner calls sender_unqueue() before
 *            its memory goes away.
 * Blocking:  never. What the socket does not take waits for the next sender_flush().
 * No runner: everything given to the sender is dropped; owners keep what must not be lost.
 */
#ifndef AGENT_SENDER_H
#define AGENT_SENDER_H

#include "images/agent/msg.h"
#include "images/agent/queue.h"

#include <sys/uio.h>

#define BATCH_BYTES   (128u << 10)
#define BATCH_IOV     48u
#define BATCH_SMALL   4096u /* for headers and short frames */
#define BATCH_RESERVE 512u  /* what one emit call may use of it */

struct batch {
    struct iovec iov[BATCH_IOV]; /* [0] is the queue */
    unsigned count;
    size_t bytes;
    size_t used;
    unsigned char small[BATCH_SMALL];
};

struct producer {
    struct producer *next;
    bool queued;
    /* Add at most one big frame and BATCH_RESERVE bytes of small ones; true when more is there. */
    bool (*emit)(struct producer *p, struct batch *b);
};

/* Inside emit: memory for a short frame that follows what is in the batch so far. */
unsigned char *batch_small(struct batch *b, size_t n);
void batch_small_added(struct batch *b, size_t n);
void batch_data(struct batch *b, const struct iovec *v, int count);

void sender_open(void);  /* a runner is there */
void sender_close(void); /* it is gone: forget everything */
bool sender_is_open(void);

/* Get in line. With `at` (loop time) the frame may wait until then for company. */
void sender_queue(struct producer *p, uint64_t at);
void sender_unqueue(struct producer *p);

/* Answers: copied into the queue at once. */
void sender_msg(struct msg *m, enum wire_type type, unsigned flags, uint32_t stream);
void sender_frame(enum wire_type type, unsigned flags, uint32_t stream, const void *p, size_t n);
void sender_failed(uint32_t stream, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* For producers of copied bytes: room for a frame with n bytes of payload, then its real length. */
unsigned char *sender_payload(size_t n);
void sender_payload_end(enum wire_type type, unsigned flags, uint32_t stream, size_t n);

size_t sender_backlog(void); /* bytes in the queue */

enum sender_state { SENDER_IDLE, SENDER_BLOCKED, SENDER_BROKEN };

/* Called at the end of every turn; does nothing unless something is due. */
enum sender_state sender_flush(int fd, bool writable);
bool sender_is_bulky(void); /* it holds memory that sender_trim() could give back */
void sender_trim(void);

#endif
