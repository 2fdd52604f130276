#include "common/base.h"

#include "jobs-runner/capture.h"
#include "tests/unit/support.h"

/* What is kept of `total` bytes "0123456789..." written in pieces of `piece` bytes. */
static uint64_t keep(size_t max, size_t total, size_t piece, struct buf *out)
{
    struct capture c;
    enum text_encoding enc;
    capture_init(&c, max);
    for (size_t at = 0; at < total; at += piece) {
        char part[512];
        size_t n = MIN(piece, total - at);
        assert_true(n <= sizeof part);
        for (size_t i = 0; i < n; i++)
            part[i] = (char)('0' + (at + i) % 10);
        capture_add(&c, part, n);
    }
    uint64_t dropped = capture_text(&c, false, out, &enc);
    assert_int_equal(enc, TEXT_UTF8);
    assert_int_equal(c.total, total);
    capture_release(&c);
    return dropped;
}

static void all_is_kept_up_to_the_maximum(void **state)
{
    (void)state;
    static const size_t totals[] = {0, 1, 49, 50, 51, 99, 100};
    for (size_t t = 0; t < ARRAY_LEN(totals); t++)
        for (size_t piece = 1; piece <= 100; piece += 7) {
            struct buf out = BUF_INIT(1000);
            assert_int_equal(keep(100, totals[t], piece, &out), 0);
            assert_int_equal(out.len, totals[t]);
            for (size_t i = 0; i < out.len; i++)
                assert_int_equal(out.p[i], '0' + i % 10);
            buf_release(&out);
        }
}

static void of_more_head_and_tail_are_kept_and_counted(void **state)
{
    (void)state;
    static const size_t totals[] = {101, 149, 150, 151, 200, 1000, 1003};
    for (size_t t = 0; t < ARRAY_LEN(totals); t++)
        for (size_t piece = 1; piece <= 400; piece += 13) {
            struct buf out = BUF_INIT(1000);
            char marker[64];
            size_t total = totals[t];
            assert_int_equal(keep(100, total, piece, &out), total - 100);
            (void)snprintf(marker, sizeof marker, "\n[... %zu bytes left out ...]\n", total - 100);
            const char *at = strstr(out.p, marker);
            assert_non_null(at);
            assert_int_equal(at - out.p, 50);
            const char *tail = at + strlen(marker);
            assert_int_equal(strlen(tail), 50);
            for (size_t i = 0; i < 50; i++)
                assert_int_equal(tail[i], '0' + (total - 50 + i) % 10);
            buf_release(&out);
        }
}

/* U+4E2D in three bytes, cut by both borders: no broken character, and the count stays exact. */
static void a_cut_character_is_left_out_and_counted(void **state)
{
    (void)state;
    struct capture c;
    enum text_encoding enc;
    struct buf out = BUF_INIT(1000);
    capture_init(&c, 20);
    for (int i = 0; i < 30; i++)
        capture_add(&c, "\xe4\xb8\xad", 3);
    uint64_t dropped = capture_text(&c, false, &out, &enc);
    assert_int_equal(enc, TEXT_UTF8);
    assert_true(text_utf8_valid(out.p, out.len));
    assert_null(strstr(out.p, "\xef\xbf\xbd"));
    assert_int_equal(dropped, 90 - 18); /* three characters in front, three behind */
    buf_release(&out);
    capture_release(&c);
}

static void an_open_end_waits_for_the_rest_of_a_character(void **state)
{
    (void)state;
    struct capture c;
    enum text_encoding enc;
    struct buf out = BUF_INIT(100);
    capture_init(&c, 100);
    capture_add(&c, "a\xe4\xb8", 3);
    (void)capture_text(&c, true, &out, &enc);
    assert_string_equal(out.p, "a");
    buf_clear(&out);
    capture_add(&c, "\xad", 1);
    (void)capture_text(&c, true, &out, &enc);
    assert_string_equal(out.p, "a\xe4\xb8\xad");
    buf_release(&out);
    capture_release(&c);
}

static void bytes_that_are_gone_count(void **state)
{
    (void)state;
    struct capture c;
    enum text_encoding enc;
    struct buf out = BUF_INIT(1000);
    char tail[60];
    capture_init(&c, 100);
    memset(tail, 'x', sizeof tail);
    for (int i = 0; i < 50; i++)
        capture_add(&c, "h", 1);
    capture_skip(&c, 1000);
    capture_add(&c, tail, sizeof tail);
    assert_int_equal(capture_text(&c, false, &out, &enc), 1010);
    assert_int_equal(out.p[0], 'h');
    assert_int_equal(out.p[out.len - 1], 'x');
    buf_release(&out);
    capture_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_kept_up_to_the_maximum),
        cmocka_unit_test(of_more_head_and_tail_are_kept_and_counted),
        cmocka_unit_test(a_cut_character_is_left_out_and_counted),
        cmocka_unit_test(an_open_end_waits_for_the_rest_of_a_character),
        cmocka_unit_test(bytes_that_are_gone_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
