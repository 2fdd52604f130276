#include "common/base.h"

#include "common/buf.h"
#include "tests/unit/support.h"

static void starts_empty_without_memory(void **state)
{
    (void)state;
    struct buf b = BUF_INIT(10);
    assert_ptr_equal(b.p, buf_empty);
    assert_int_equal(b.len, 0);
    assert_string_equal(b.p, "");
    buf_add(&b, "x", 0);
    assert_int_equal(b.cap, 0);
    buf_release(&b);
}

static void keeps_nul_bytes_and_terminates(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf b = BUF_INIT(100);
    buf_add(&b, "a\0b", 3);
    buf_addc(&b, 'c');
    buf_adds(&b, "de");
    assert_int_equal(b.len, 6);
    assert_memory_equal(b.p, "a\0bcde", 7);
}

static void full_to_the_byte_then_bad(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf b = BUF_INIT(5);
    buf_adds(&b, "12345");
    assert_false(buf_bad(&b));
    buf_addc(&b, '6');
    assert_true(buf_bad(&b));
    assert_string_equal(b.p, "12345");
    buf_clear(&b);
    assert_false(buf_bad(&b));
    assert_string_equal(b.p, "");
    buf_adds(&b, "67890");
    assert_string_equal(b.p, "67890");
}

static void badness_stays(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf b = BUF_INIT(3);
    buf_adds(&b, "too long");
    buf_adds(&b, "a");
    assert_true(buf_bad(&b));
    assert_int_equal(b.len, 0);
    assert_null(buf_reserve(&b, 1));
}

static void a_huge_size_does_not_wrap(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf b = BUF_INIT(SIZE_MAX / 4);
    buf_adds(&b, "abc");
    assert_null(buf_reserve(&b, SIZE_MAX));
    assert_null(buf_reserve(&b, SIZE_MAX - 3));
    assert_int_equal(b.len, 3);
}

static void formats_short_and_long(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf b = BUF_INIT(2000);
    buf_addf(&b, "%d-%s", 7, "x");
    assert_string_equal(b.p, "7-x");
    buf_clear(&b);
    for (int width = 254; width <= 258; width++) { /* around the size of the stack buffer */
        buf_clear(&b);
        buf_addf(&b, "%*s|", width, "z");
        assert_int_equal(b.len, width + 1);
        assert_memory_equal(b.p + width - 1, "z|", 3);
    }
    buf_clear(&b);
    buf_addf(&b, "%*s", 2001, "z");
    assert_true(buf_bad(&b));
    assert_int_equal(b.len, 0);
}

static void drop_front(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf b = BUF_INIT(20);
    buf_adds(&b, "hello world");
    buf_drop_front(&b, 6);
    assert_string_equal(b.p, "world");
    buf_drop_front(&b, 5);
    assert_string_equal(b.p, "");
    buf_drop_front(&b, 0);
}

static void cut(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf b = BUF_INIT(20);
    buf_cut(&b, 0);
    buf_adds(&b, "hello");
    buf_cut(&b, 5);
    assert_string_equal(b.p, "hello");
    buf_cut(&b, 2);
    assert_string_equal(b.p, "he");
    buf_adds(&b, "y");
    assert_string_equal(b.p, "hey");
}

static void take_hands_over(void **state)
{
    (void)state;
    struct buf b = BUF_INIT(20);
    char *none = buf_take(&b);
    assert_string_equal(none, "");
    free(none);
    buf_adds(&b, "mine");
    char *p = buf_take(&b);
    assert_string_equal(p, "mine");
    assert_ptr_equal(b.p, buf_empty);
    assert_int_equal(b.max, 20);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_empty_without_memory),
        cmocka_unit_test(keeps_nul_bytes_and_terminates),
        cmocka_unit_test(full_to_the_byte_then_bad),
        cmocka_unit_test(badness_stays),
        cmocka_unit_test(a_huge_size_does_not_wrap),
        cmocka_unit_test(formats_short_and_long),
        cmocka_unit_test(drop_front),
        cmocka_unit_test(cut),
        cmocka_unit_test(take_hands_over),
    };
    return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
