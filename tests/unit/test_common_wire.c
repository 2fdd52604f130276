#include "common/base.h"

#include "common/wire.h"
#include "tests/unit/support.h"

static void header_both_ways(void **state)
{
    (void)state;
    const struct wire_header in = {.length = WIRE_MAX_PAYLOAD,
                                   .type = WIRE_OUTPUT,
                                   .flags = WIRE_F_STDERR,
                                   .stream = 0x89abcdef};
    unsigned char bytes[WIRE_HEADER];
    struct wire_header out;
    wire_header_put(bytes, &in);
    assert_int_equal(wire_header_get(bytes, &out), 0);
    assert_int_equal(out.length, in.length);
    assert_int_equal(out.type, in.type);
    assert_int_equal(out.flags, in.flags);
    assert_int_equal(out.stream, in.stream);
}

static void wrong_headers_are_refused(void **state)
{
    (void)state;
    static const struct {
        int line;
        unsigned char b[WIRE_HEADER];
    } rows[] = {
        {ROW, {1, 0, 1, 0, WIRE_PING}},             /* one byte too long */
        {ROW, {0xff, 0xff, 0xff, 0xff, WIRE_PING}}, /* 4 GiB */
        {ROW, {0, 0, 0, 0, 0}},                     /* no type */
        {ROW, {0, 0, 0, 0, WIRE_TYPE_COUNT}},
        {ROW, {0, 0, 0, 0, 255}},
        {ROW, {0, 0, 0, 0, WIRE_PING, 0, 1}},
        {ROW, {0, 0, 0, 0, WIRE_PING, 0, 0, 1}},
    };
    struct wire_header h;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        row_true(rows[i].line, wire_header_get(rows[i].b, &h) == -1);
}

static void fields_both_ways(void **state)
{
    (void)state;
    unsigned char p[200];
    size_t n = wire_field_put(p, WT_COMMAND, "echo", 4);
    n += wire_number_put(p + n, WT_TIMEOUT_MS, UINT64_MAX);
    n += wire_field_put(p + n, WT_CWD, "", 0);
    assert_int_equal(n, WIRE_FIELD(4) + WIRE_FIELD(8) + WIRE_FIELD(0));
    struct wire_field f;
    size_t pos = 0;
    uint64_t v;
    assert_int_equal(wire_field_next(p, n, &pos, &f), 1);
    assert_int_equal(f.tag, WT_COMMAND);
    assert_int_equal(f.n, 4);
    assert_memory_equal(f.p, "echo", 4);
    assert_int_equal(wire_number(&f, &v), -1);
    assert_int_equal(wire_field_next(p, n, &pos, &f), 1);
    assert_int_equal(wire_number(&f, &v), 0);
    assert_true(v == UINT64_MAX);
    assert_int_equal(wire_field_next(p, n, &pos, &f), 1);
    assert_int_equal(f.n, 0);
    assert_int_equal(wire_field_next(p, n, &pos, &f), 0);
}

/* Every possible cut of a payload ends with -1 or with fewer fields, and reads nothing behind it.
 */
static void a_cut_payload_is_seen(void **state)
{
    (void)state;
    unsigned char p[200];
    size_t n = wire_field_put(p, WT_COMMAND, "echo", 4);
    n += wire_number_put(p + n, WT_TIMEOUT_MS, 5);
    for (size_t len = 0; len < n; len++) {
        unsigned char *exact = xmalloc(len);
        memcpy(exact, p, len);
        struct wire_field f;
        size_t pos = 0;
        int r;
        while ((r = wire_field_next(exact, len, &pos, &f)) > 0)
            ;
        assert_int_equal(r, len == 0 || len == WIRE_FIELD(4) ? 0 : -1);
        free(exact);
    }
}

static void a_huge_field_length_does_not_wrap(void **state)
{
    (void)state;
    unsigned char p[8] = {WT_COMMAND, 0, 0xff, 0xff, 0xff, 0xff, 'a', 'b'};
    struct wire_field f;
    size_t pos = 0;
    assert_int_equal(wire_field_next(p, sizeof p, &pos, &f), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_both_ways),
        cmocka_unit_test(wrong_headers_are_refused),
        cmocka_unit_test(fields_both_ways),
        cmocka_unit_test(a_cut_payload_is_seen),
        cmocka_unit_test(a_huge_field_length_does_not_wrap),
    };
    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
