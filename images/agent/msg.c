#include "images/agent/msg.h"

#include <string.h>

void msg_begin(struct msg *m, unsigned char *p, size_t cap)
{
    *m = (struct msg){p, cap, WIRE_HEADER};
}

void msg_number(struct msg *m, enum wire_tag tag, uint64_t v)
{
    if (m->cap - m->n >= WIRE_FIELD(8u))
        m->n += wire_number_put(m->p + m->n, tag, v);
}

void msg_bytes(struct msg *m, enum wire_tag tag, const void *p, size_t n)
{
    if (n <= m->cap && m->cap - m->n >= WIRE_FIELD(n))
        m->n += wire_field_put(m->p + m->n, tag, p, (uint32_t)n);
}

void msg_raw(struct msg *m, const void *p, size_t n)
{
    if (n > m->cap - m->n)
        return;
    memcpy(m->p + m->n, p, n);
    m->n += n;
}

size_t msg_end(struct msg *m, enum wire_type type, unsigned flags, uint32_t stream)
{
    struct wire_header h = {(uint32_t)(m->n - WIRE_HEADER), (uint8_t)type, (uint8_t)flags, stream};
    wire_header_put(m->p, &h);
    return m->n;
}
