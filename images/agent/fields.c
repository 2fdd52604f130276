#include "images/agent/fields.h"

#include <string.h>

/* Tags the runner sends as numbers; the rest is bytes. */
static const bool is_number[WT_TARGET + 1] = {
    [WT_VERSION] = true, [WT_STDIN_MODE] = true, [WT_TIMEOUT_MS] = true, [WT_GRACE_MS] = true,
    [WT_PTY] = true,     [WT_ROWS] = true,       [WT_COLS] = true,       [WT_SIGNAL] = true,
    [WT_TREE] = true,    [WT_OFFSET] = true,     [WT_SIZE] = true,       [WT_MODE] = true,
    [WT_APPEND] = true,  [WT_PARENTS] = true,    [WT_RECURSIVE] = true,
};

int fields_parse(const unsigned char *payload, size_t len, struct fields *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->payload = payload;
    ret->len = len;
    struct wire_field f;
    size_t pos = 0;
    int more;
    while ((more = wire_field_next(payload, len, &pos, &f)) > 0) {
        if (f.tag == 0 || f.tag > WT_TARGET)
            continue;
        if (is_number[f.tag] && f.n != 8)
            return -1;
        ret->last[f.tag] = f;
        ret->envs += f.tag == WT_ENV;
        ret->args += f.tag == WT_ARG;
    }
    return more;
}

bool fields_has(const struct fields *f, enum wire_tag tag)
{
    return f->last[tag].tag != 0;
}

uint64_t fields_number(const struct fields *f, enum wire_tag tag, uint64_t absent)
{
    uint64_t v = absent;
    if (fields_has(f, tag) && wire_number(&f->last[tag], &v))
        return absent;
    return v;
}

bool fields_each(const struct fields *f, enum wire_tag tag, size_t *pos, struct wire_field *ret)
{
    while (wire_field_next(f->payload, f->len, pos, ret) > 0)
        if (ret->tag == tag)
            return true;
    return false;
}

bool fields_string(const struct fields *f, enum wire_tag tag, char *out, size_t size)
{
    const struct wire_field *v = &f->last[tag];
    if (!fields_has(f, tag) || v->n >= size || memchr(v->p, 0, v->n))
        return false;
    memcpy(out, v->p, v->n);
    out[v->n] = 0;
    return true;
}
