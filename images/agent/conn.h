/*
 * conn.h - the listening socket and the one connection to the runner.
 *
 * Ownership: the module owns both descriptors, the input buffers, and opens and closes the sender.
 * Trust:     the socket lies in a directory that the sandbox can write to. Only a peer outside
 *            this pid namespace (SO_PEERCRED says pid 0) is accepted, unless any_peer.
 * Replace:   a newly accepted connection takes the place of the old one, because a runner that
 *            was killed and started again may be faster than the news of its death.
 * Name:      when the socket's name is removed or replaced it is made again.
 * Errors:    a malformed frame closes the connection; runs go on. conn_listen() says on stderr
 *            what failed and returns -1.
 */
#ifndef AGENT_CONN_H
#define AGENT_CONN_H

#include "images/agent/input.h"

struct conn_hooks {
    const struct frame_handler *first; /* handlers until conn_greeted() */
    const struct frame_handler *rest;  /* and after it */
    void (*lost)(void);                /* the connection is gone */
};

int conn_listen(const char *dir, bool any_peer, const struct conn_hooks *hooks);
void conn_greeted(void);

/* At the end of each turn: send what is due. */
void conn_turn_end(void);

#endif
