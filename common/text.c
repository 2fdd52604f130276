#include "common/text.h"

#include <iconv.h>
#include <openssl/evp.h>

const char *text_encoding_name(enum text_encoding enc)
{
    static const char *const names[] = {"utf-8", "gb18030", "binary"};
    return names[enc];
}

/*
 * One UTF-8 sequence at p: its length when whole and valid; 0 when the bytes so far are a correct
 * beginning that the end of input cuts off; negative: minus the bytes to skip as one bad unit.
 */
static int sequence(const unsigned char *p, size_t n)
{
    unsigned char c = p[0];
    if (c < 0x80)
        return 1;
    unsigned char lo = 0x80, hi = 0xbf;
    int need;
    if (c >= 0xc2 && c <= 0xdf) {
        need = 2;
    } else if (c >= 0xe0 && c <= 0xef) {
        need = 3;
        lo = c == 0xe0 ? 0xa0 : 0x80;
        hi = c == 0xed ? 0x9f : 0xbf;
    } else if (c >= 0xf0 && c <= 0xf4) {
        need = 4;
        lo = c == 0xf0 ? 0x90 : 0x80;
        hi = c == 0xf4 ? 0x8f : 0xbf;
    } else {
        return -1;
    }
    for (int i = 1; i < need; i++) {
        if ((size_t)i == n)
            return 0;
        if (p[i] < lo || p[i] > hi)
            return -i;
        lo = 0x80;
        hi = 0xbf;
    }
    return need;
}

static size_t ascii_run(const unsigned char *p, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t w;
        memcpy(&w, p + i, 8);
        if (w & 0x8080808080808080u)
            break;
    }
    while (i < n && p[i] < 0x80)
        i++;
    return i;
}

/* Bytes of valid UTF-8 at the front; *ret_partial: what follows is only cut off, not wrong. */
static size_t valid_prefix(const unsigned char *p, size_t n, bool *ret_partial)
{
    size_t i = 0;
    *ret_partial = false;
    while ((i += ascii_run(p + i, n - i)) < n) {
        int r = sequence(p + i, n - i);
        if (r <= 0) {
            *ret_partial = r == 0;
            break;
        }
        i += (size_t)r;
    }
    return i;
}

bool text_utf8_valid(const char *p, size_t n)
{
    bool partial;
    return valid_prefix((const unsigned char *)p, n, &partial) == n;
}

size_t text_utf8_trim(const char *p, size_t n)
{
    const unsigned char *u = (const unsigned char *)p;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = u[n - back];
        if (c < 0x80)
            return n;
        if (c >= 0xc0)
            return sequence(u + n - back, back) == 0 ? n - back : n;
    }
    return n;
}

/* More good characters beyond ASCII than bad ones: UTF-8 with some damage, not another encoding. */
static bool mostly_utf8(const unsigned char *p, size_t n)
{
    size_t good = 0, bad = 0;
    while (n) {
        size_t skip = ascii_run(p, n);
        if (skip == n)
            break;
        int r = sequence(p + skip, n - skip);
        good += r > 0;
        bad += r <= 0;
        skip += r > 0 ? (size_t)r : r < 0 ? (size_t)-r : n - skip;
        p += skip;
        n -= skip;
    }
    return good > bad;
}

static void replace_bad(struct buf *out, const unsigned char *p, size_t n)
{
    bool partial;
    while (n) {
        size_t good = valid_prefix(p, n, &partial);
        buf_add(out, p, good);
        p += good;
        n -= good;
        if (!n)
            break;
        int r = sequence(p, n);
        size_t skip = r == 0 ? n : (size_t)-r;
        buf_adds(out, "\xef\xbf\xbd");
        p += skip;
        n -= skip;
    }
}

/* A code point that running Chinese text is made of. */
static bool usual_in_chinese(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3000 && c <= 0x303f) ||
           (c >= 0xff00 && c <= 0xffef) || (c >= 0x2010 && c <= 0x2026);
}

/* UTF-8 that came out of the converter: does it read as Chinese text, not as chance? */
static bool reads_as_chinese(const unsigned char *p, size_t n)
{
    size_t usual = 0, other = 0;
    for (size_t i = 0; i < n;) {
        unsigned char c = p[i];
        if (c < 0x80) {
            if ((c < 0x20 && !strchr("\t\n\r\f\b\x1b", c)) || c == 0x7f || c == 0)
                return false;
            i++;
            continue;
        }
        int len = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
        uint32_t cp = c & (0xffu >> (len + 1));
        for (int k = 1; k < len; k++)
            cp = cp << 6 | (p[i + (size_t)k] & 0x3fu);
        if (usual_in_chinese(cp))
            usual++;
        else
            other++;
        i += (size_t)len;
    }
    return usual >= 2 && other * 10 <= usual;
}

/* Convert, allowing a character cut off at the end; false when the bytes are not GB18030. */
static bool convert(iconv_t cd, const char *p, size_t n, bool cut, struct buf *out)
{
    union {
        const char *in;
        char *arg;
    } u = {.in = p};
    (void)iconv(cd, NULL, NULL, NULL, NULL);
    while (n) {
        char chunk[4096], *o = chunk;
        size_t room = sizeof chunk;
        size_t r = iconv(cd, &u.arg, &n, &o, &room);
        int why = errno;
        buf_add(out, chunk, (size_t)(o - chunk));
        if (r != (size_t)-1 || why == E2BIG)
            continue;
        return cut && why == EINVAL;
    }
    return true;
}

static bool try_gb18030(struct buf *out, const char *p, size_t n, unsigned cut)
{
    iconv_t cd = iconv_open("UTF-8", "GB18030");
    check(cd != (iconv_t)-1);
    bool ok = false;
    /* Cut in front, the text may begin with the second half of a character: try from there too. */
    for (size_t skip = 0; !ok && skip <= ((cut & TEXT_CUT_FRONT) ? 3u : 0u) && skip < n; skip++) {
        struct buf conv = BUF_INIT(4 * n + 16);
        ok = convert(cd, p + skip, n - skip, cut & TEXT_CUT_BACK, &conv) &&
             reads_as_chinese((const unsigned char *)conv.p, conv.len);
        if (ok)
            buf_add(out, conv.p, conv.len);
        buf_release(&conv);
    }
    (void)iconv_close(cd);
    return ok;
}

enum text_encoding text_clean(struct buf *out, const char *p, size_t n, unsigned cut)
{
    const char *from = p;
    size_t len = n;
    if (cut & TEXT_CUT_FRONT)
        for (int i = 0; i < 3 && len && ((unsigned char)*from & 0xc0) == 0x80; i++) {
            from++;
            len--;
        }
    if (cut & TEXT_CUT_BACK)
        len = text_utf8_trim(from, len);
    if (text_utf8_valid(from, len)) {
        buf_add(out, from, len);
        return TEXT_UTF8;
    }
    if (!mostly_utf8((const unsigned char *)from, len) && try_gb18030(out, p, n, cut))
        return TEXT_GB18030;
    replace_bad(out, (const unsigned char *)from, len);
    return TEXT_BINARY;
}

void text_excerpt(struct buf *out, const char *p, size_t n, size_t max)
{
    struct buf clean = BUF_INIT(4 * max + 16);
    size_t take = text_utf8_trim(p, MIN(n, max));
    (void)text_clean(&clean, p, take, 0);
    for (size_t i = 0; i < clean.len; i++)
        buf_addc(out, (unsigned char)clean.p[i] < 0x20 || clean.p[i] == 0x7f ? ' ' : clean.p[i]);
    if (take < n)
        buf_adds(out, "...");
    buf_release(&clean);
}

int text_int(const char *s, int64_t lo, int64_t hi, int64_t *ret)
{
    const char *digits = *s == '-' ? s + 1 : s;
    if (!*digits || strspn(digits, "0123456789") != strlen(digits))
        return -1;
    errno = 0;
    long long v = strtoll(s, NULL, 10);
    if (errno || v < lo || v > hi)
        return -1;
    *ret = v;
    return 0;
}

bool text_sandbox_name(const char *s)
{
    static const char chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    size_t n = strlen(s);
    return n >= 1 && n <= 63 && strspn(s, chars) == n && !strchr("_.-", s[0]);
}

unsigned text_distance(const char *a, const char *b)
{
    size_t n = strnlen(a, 63), m = strnlen(b, 63);
    unsigned row[64];
    for (size_t j = 0; j <= m; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            unsigned change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = MIN(MIN(row[j] + 1, row[j - 1] + 1), change);
        }
    }
    return row[m];
}

char *text_signal(int sig, char room[16])
{
    const char *abbrev = sigabbrev_np(sig);
    if (abbrev)
        (void)snprintf(room, 16, "SIG%s", abbrev);
    else
        (void)snprintf(room, 16, "SIG%d", sig);
    return room;
}

void text_base64(struct buf *out, const void *p, size_t n)
{
    if (n > INT_MAX / 2) {
        out->bad = true;
        return;
    }
    char *at = buf_reserve(out, (n + 2) / 3 * 4);
    if (at)
        buf_commit(out, (size_t)EVP_EncodeBlock((unsigned char *)at, p, (int)n));
}

/* EVP_DecodeBlock skips blanks and takes '=' anywhere: look first. */
static bool base64_digits(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = p[i], low = (char)(c | 0x20);
        if (!(low >= 'a' && low <= 'z') && !(c >= '0' && c <= '9') && c != '+' && c != '/')
            return false;
    }
    return true;
}

int text_unbase64(struct buf *out, const char *p, size_t n)
{
    if (n % 4 || n > INT_MAX / 2)
        return -1;
    if (!n)
        return 0;
    size_t pad = p[n - 1] != '=' ? 0 : p[n - 2] != '=' ? 1 : 2;
    if (!base64_digits(p, n - pad))
        return -1;
    char *at = buf_reserve(out, n / 4 * 3);
    if (!at)
        return -1;
    int r = EVP_DecodeBlock((unsigned char *)at, (const unsigned char *)p, (int)n);
    if (r < 0)
        return -1;
    buf_commit(out, (size_t)r - pad);
    return 0;
}
