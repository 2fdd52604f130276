#include "jobs-runner/capture.h"

void capture_init(struct capture *c, size_t max)
{
    *c = (struct capture){.half = max / 2};
    buf_init(&c->head, c->half);
}

void capture_release(struct capture *c)
{
    buf_release(&c->head);
    free(c->ring);
    c->ring = NULL;
}

void capture_add(struct capture *c, const char *p, size_t n)
{
    size_t to_head = MIN(n, c->half - c->head.len);
    buf_add(&c->head, p, to_head);
    c->total += to_head;
    p += to_head;
    n -= to_head;
    if (!n)
        return;
    if (!c->ring)
        c->ring = xmalloc(c->half);
    if (n > c->half) {
        c->total += n - c->half;
        p += n - c->half;
        n = c->half;
    }
    size_t at = (size_t)((c->total - c->half) % c->half);
    size_t first = MIN(n, c->half - at);
    memcpy(c->ring + at, p, first);
    memcpy(c->ring, p + first, n - first);
    c->total += n;
}

/* Only used where more than a ring's worth follows or the bytes count as left out anyway. */
void capture_skip(struct capture *c, uint64_t n)
{
    if (!n)
        return;
    if (!c->ring)
        c->ring = xcalloc(1, c->half);
    c->total += n;
}

/* The ring in order, into `out`. */
static void unroll(const struct capture *c, struct buf *out)
{
    uint64_t in_ring = MIN(c->total - c->head.len, (uint64_t)c->half);
    uint64_t start = c->total - c->half - in_ring;
    size_t at = (size_t)(start % c->half);
    size_t first = (size_t)MIN(in_ring, (uint64_t)(c->half - at));
    buf_add(out, c->ring + at, first);
    buf_add(out, c->ring, (size_t)in_ring - first);
}

static enum text_encoding worse(enum text_encoding a, enum text_encoding b)
{
    return a > b ? a : b;
}

/* Clean a part and count the bytes of half characters that were cut away. */
static uint64_t add_part(struct buf *out, const char *p, size_t n, unsigned cut,
                         enum text_encoding *enc)
{
    size_t before = out->len;
    enum text_encoding got = text_clean(out, p, n, cut);
    *enc = worse(*enc, got);
    return got == TEXT_UTF8 ? n - (out->len - before) : 0;
}

uint64_t capture_text(const struct capture *c, bool open, struct buf *out,
                      enum text_encoding *ret_enc)
{
    unsigned end = open ? TEXT_CUT_BACK : 0;
    *ret_enc = TEXT_UTF8;
    if (!c->ring) {
        (void)add_part(out, c->head.p, c->head.len, end, ret_enc);
        return 0;
    }
    struct buf all = BUF_INIT(2 * c->half);
    bool whole = c->total <= 2 * c->half;
    if (whole)
        buf_add(&all, c->head.p, c->head.len);
    unroll(c, &all);
    uint64_t dropped = 0;
    if (whole) {
        (void)add_part(out, all.p, all.len, end, ret_enc);
    } else {
        dropped = c->total - 2 * c->half;
        struct buf tail = BUF_INIT(4 * c->half + 16);
        dropped += add_part(&tail, all.p, all.len, end | TEXT_CUT_FRONT, ret_enc);
        dropped += add_part(out, c->head.p, c->head.len, TEXT_CUT_BACK, ret_enc);
        buf_addf(out, "\n[... %" PRIu64 " bytes left out ...]\n", dropped);
        buf_add(out, tail.p, tail.len);
        buf_release(&tail);
    }
    buf_release(&all);
    return dropped;
}
