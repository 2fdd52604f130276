/*
 * link.h - the connection to one sandbox's agent: frames out, frames in, by stream.
 *
 * The socket lies in a directory that the sandbox can write to. So it is opened beneath a
 * descriptor of that directory without following links, must be a socket, and its peer must be the
 * container's init process. Every frame is hostile input; a malformed one ends the connection.
 * Ownership: the sandbox owns its link. Stream handlers are called from the loop. A handler may
 *   close the link. A link that breaks reports it once through `lost`, from the loop.
 * Limits: what cannot be written yet is queued up to LINK_MAX_QUEUE bytes.
 */
#ifndef RUNNER_LINK_H
#define RUNNER_LINK_H

#include "common/wire.h"
#include "jobs-runner/runner.h"

#define LINK_MAX_QUEUE (64u << 20)

struct link;

typedef void link_frame(void *arg, const struct wire_header *h, const unsigned char *payload,
                        size_t n);

struct link_events {
    /* HELLO_ACK came: its fields. Nothing else is sent before. */
    void (*hello)(void *arg, const unsigned char *payload, size_t n);
    void (*lost)(void *arg, const struct err *why);
    void *arg;
};

/*
 * Connect to `socket_dir`/agent.sock, whose peer must have the process id `init`, and say hello.
 * ERR_NOTFOUND: nobody listens there (yet).
 */
int link_open(struct runner *r, const char *socket_dir, pid_t init, const struct link_events *ev,
              struct link **ret, struct err *e) _check_;

/* The same over a connected, non-blocking socket, which the link takes over. */
int link_begin(struct runner *r, int fd, const struct link_events *ev, struct link **ret,
               struct err *e) _check_;
struct link *link_close(struct link *l); /* NULL is fine; streams are dropped without a call */

uint64_t link_serial(const struct link *l); /* never the same for two links */

/* The first stream number that is free, as HELLO_ACK told. */
void link_set_next_stream(struct link *l, uint32_t next);

/*
 * A new stream, or (id != 0) one that the agent knows already. Returns its number, which no other
 * stream of the link has; 0: the given one has been added before.
 */
uint32_t link_stream_add(struct link *l, uint32_t id, link_frame *frame, void *arg);
void link_stream_drop(struct link *l, uint32_t id);

/* Send a message, in several frames when it is long. -1: the link is broken or its queue full. */
int link_send(struct link *l, enum wire_type type, uint8_t flags, uint32_t stream, const void *p,
              size_t n);

#endif
