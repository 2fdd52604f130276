#include "common/wire.h"

#include <string.h>

static void put_le(unsigned char *out, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)(v >> (8 * i));
}

static uint64_t get_le(const unsigned char *in, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)in[i] << (8 * i);
    return v;
}

void wire_header_put(unsigned char out[WIRE_HEADER], const struct wire_header *h)
{
    put_le(out, h->length, 4);
    out[4] = h->type;
    out[5] = h->flags;
    put_le(out + 6, 0, 2);
    put_le(out + 8, h->stream, 4);
}

int wire_header_get(const unsigned char in[WIRE_HEADER], struct wire_header *ret)
{
    uint32_t length = (uint32_t)get_le(in, 4);
    if (length > WIRE_MAX_PAYLOAD || in[4] == 0 || in[4] >= WIRE_TYPE_COUNT || in[6] || in[7])
        return -1;
    ret->length = length;
    ret->type = in[4];
    ret->flags = in[5];
    ret->stream = (uint32_t)get_le(in + 8, 4);
    return 0;
}

void wire_u64_put(unsigned char out[8], uint64_t v)
{
    put_le(out, v, 8);
}

uint64_t wire_u64_get(const unsigned char in[8])
{
    return get_le(in, 8);
}

size_t wire_field_put(unsigned char *out, enum wire_tag tag, const void *p, uint32_t n)
{
    put_le(out, (uint64_t)tag, 2);
    put_le(out + 2, n, 4);
    if (n)
        memcpy(out + 6, p, n);
    return WIRE_FIELD(n);
}

size_t wire_number_put(unsigned char *out, enum wire_tag tag, uint64_t v)
{
    unsigned char b[8];
    put_le(b, v, 8);
    return wire_field_put(out, tag, b, 8);
}

int wire_field_next(const unsigned char *payload, size_t len, size_t *pos, struct wire_field *ret)
{
    if (*pos == len)
        return 0;
    if (len - *pos < 6)
        return -1;
    uint32_t n = (uint32_t)get_le(payload + *pos + 2, 4);
    if (n > len - *pos - 6)
        return -1;
    ret->tag = (uint16_t)get_le(payload + *pos, 2);
    ret->p = payload + *pos + 6;
    ret->n = n;
    *pos += WIRE_FIELD(n);
    return 1;
}

int wire_number(const struct wire_field *f, uint64_t *ret)
{
    if (f->n != 8)
        return -1;
    *ret = get_le(f->p, 8);
    return 0;
}
