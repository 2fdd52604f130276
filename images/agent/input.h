/*
 * input.h - from bytes of the connection to whole messages for a table of handlers.
 *
 * Ownership: input owns its buffers; a frame given to a handler is valid during the call only.
 *            Handlers must not touch the input they are called from.
 * Trust:     the bytes are hostile. A frame of a type without a handler, a bad header, a joined
 *            message over WIRE_MAX_MESSAGE or too many half messages at once make input_take()
 *            return -1, and so does a handler that returns -1. The caller closes the connection.
 * Pure:      no system call but memory, so that the fuzzer drives it with its own table.
 */
#ifndef AGENT_INPUT_H
#define AGENT_INPUT_H

#include "images/agent/queue.h"

#define INPUT_PARTIALS 16 /* messages that may be half there at the same time */

struct frame {
    uint8_t type;
    uint8_t flags;
    uint32_t stream;
    const unsigned char *p;
    size_t n;
};

struct frame_handler {
    int (*fn)(const struct frame *f);
    bool whole; /* parts are joined first; otherwise each frame is handed on as it comes */
};

struct partial;

struct input {
    const struct frame_handler *table; /* WIRE_TYPE_COUNT rows */
    struct queue bytes;
    struct partial *partials;
};

/* Where to put bytes that were read; never less than what the frame at hand still needs. */
unsigned char *input_room(struct input *in, size_t *n);

/* n bytes were put there: handle every frame that is whole now. */
int input_take(struct input *in, size_t n);

/* Give back memory that is not in use; input_reset() also forgets half messages. */
void input_trim(struct input *in);
void input_reset(struct input *in);

#endif
