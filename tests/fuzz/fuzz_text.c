#include "common/base.h"

#include "common/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* The first byte says where the piece was cut; the result is always valid UTF-8. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!n)
        return 0;
    const char *p = (const char *)data + 1;
    unsigned cut = data[0] & 3u;
    n--;
    struct buf out = BUF_INIT(4 * n + 64);
    enum text_encoding enc = text_clean(&out, p, n, cut);
    check(!buf_bad(&out) && text_utf8_valid(out.p, out.len));
    check(text_utf8_trim(p, n) <= n);
    if (cut == 0 && enc == TEXT_UTF8)
        check(out.len == n && memcmp(out.p, p, n) == 0);
    buf_clear(&out);
    text_excerpt(&out, p, n, 40);
    check(text_utf8_valid(out.p, out.len));
    buf_clear(&out);
    if (text_unbase64(&out, p, n) == 0) {
        struct buf again = BUF_INIT(2 * n + 64);
        text_base64(&again, out.p, out.len);
        check(again.len == n && memcmp(again.p, p, n > 2 ? n - 3 : 0) == 0);
        buf_release(&again);
    }
    buf_release(&out);
    return 0;
}
