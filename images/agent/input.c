#include "images/agent/input.h"

#include "common/wire.h"

#include <stdlib.h>

#define SMALL 4096u

struct partial {
    struct partial *next;
    uint32_t stream;
    uint8_t type;
    struct queue bytes;
};

static struct partial **partial_find(struct input *in, uint32_t stream)
{
    struct partial **p = &in->partials;
    while (*p && (*p)->stream != stream)
        p = &(*p)->next;
    return p;
}

static void partial_free(struct partial **p)
{
    struct partial *gone = *p;
    *p = gone->next;
    queue_release(&gone->bytes);
    free(gone);
}

static int partial_new(struct input *in, struct partial **at, const struct frame *f)
{
    size_t count = 0;
    for (struct partial *p = in->partials; p; p = p->next)
        count++;
    if (count >= INPUT_PARTIALS || !(*at = calloc(1, sizeof **at)))
        return -1;
    (*at)->stream = f->stream;
    (*at)->type = f->type;
    return 0;
}

/* Join a part to its message; the last one is handed on. */
static int input_join(struct input *in, const struct frame *f, int (*fn)(const struct frame *))
{
    struct partial **at = partial_find(in, f->stream);
    if (!*at && !(f->flags & WIRE_F_MORE))
        return fn(f);
    if (!*at && partial_new(in, at, f))
        return -1;
    struct partial *p = *at;
    if (p->type != f->type || p->bytes.len + f->n > WIRE_MAX_MESSAGE ||
        queue_add(&p->bytes, f->p, f->n))
        return -1;
    if (f->flags & WIRE_F_MORE)
        return 0;
    struct frame whole = *f;
    whole.p = queue_head(&p->bytes);
    whole.n = p->bytes.len;
    int r = fn(&whole);
    partial_free(at);
    return r;
}

static int input_frame(struct input *in, const struct wire_header *h, const unsigned char *payload)
{
    const struct frame_handler *row = &in->table[h->type];
    struct frame f = {h->type, h->flags, h->stream, payload, h->length};
    if (!row->fn)
        return -1;
    return row->whole ? input_join(in, &f, row->fn) : row->fn(&f);
}

unsigned char *input_room(struct input *in, size_t *n)
{
    size_t need = 1;
    struct wire_header h;
    if (in->bytes.len >= WIRE_HEADER && !wire_header_get(queue_head(&in->bytes), &h))
        need = WIRE_HEADER + h.length - in->bytes.len;
    size_t want = in->bytes.cap > SMALL || need > SMALL ? WIRE_HEADER + WIRE_MAX_PAYLOAD : SMALL;
    unsigned char *p = queue_room(&in->bytes, in->bytes.len ? need : want);
    *n = p ? queue_spare(&in->bytes) : 0;
    return p;
}

int input_take(struct input *in, size_t n)
{
    struct wire_header h;
    queue_added(&in->bytes, n);
    while (in->bytes.len >= WIRE_HEADER) {
        const unsigned char *p = queue_head(&in->bytes);
        if (wire_header_get(p, &h))
            return -1;
        if (in->bytes.len < WIRE_HEADER + h.length)
            break;
        if (input_frame(in, &h, p + WIRE_HEADER))
            return -1;
        queue_drop(&in->bytes, WIRE_HEADER + h.length);
    }
    return 0;
}

void input_trim(struct input *in)
{
    if (!in->bytes.len && in->bytes.cap > SMALL)
        queue_release(&in->bytes);
}

void input_reset(struct input *in)
{
    queue_release(&in->bytes);
    while (in->partials)
        partial_free(&in->partials);
}
