#include "common/base.h"

#include "common/runlog.h"
#include "tests/unit/support.h"

#define KEPT 4000 /* head 1000, ring 3000 */
#define HEAD 1000
#define RING 3000

/* The byte at an offset, so that any read can be checked by its offset alone. */
static char byte_at(uint64_t offset)
{
    return (char)((offset * 7 + (offset >> 8) * 13 + (offset >> 16)) & 0xff);
}

static struct runlog open_log(const char *name)
{
    struct runlog l = RUNLOG_INIT;
    struct err e = ERR_INIT;
    if (runlog_open_write(&l, tmp_path(name), KEPT, &e) < 0)
        fail_msg("%s", e.msg);
    return l;
}

static void append(struct runlog *l, size_t n)
{
    struct err e = ERR_INIT;
    char *data = xmalloc(n);
    for (size_t i = 0; i < n; i++)
        data[i] = byte_at(l->total + i);
    assert_int_equal(runlog_append(l, data, n, &e), 0);
    free(data);
}

/* Read everything that is kept from `offset` on; each byte must be the one of its offset. */
static uint64_t check_all(const struct runlog *l, uint64_t offset)
{
    struct err e = ERR_INIT;
    uint64_t seen = 0;
    for (;;) {
        struct buf b = BUF_INIT(100000);
        offset = runlog_first_kept(l, offset);
        ssize_t n = runlog_read(l, offset, 700, &b, &e);
        assert_true(n >= 0);
        assert_int_equal(b.len, n);
        for (size_t i = 0; i < b.len; i++)
            if (b.p[i] != byte_at(offset + i))
                fail_msg("offset %zu holds the wrong byte", (size_t)offset + i);
        buf_release(&b);
        if (n == 0)
            break;
        offset += (uint64_t)n;
        seen += (uint64_t)n;
    }
    assert_int_equal(offset, l->total);
    return seen;
}

/* Sizes around every border: kept = total while it fits, head + ring afterwards. */
static void keeps_head_and_tail(void **state)
{
    (void)state;
    static const size_t totals[] = {0,    1,    999,  1000, 1001, 3999,
                                    4000, 4001, 4999, 7000, 7001, 123457};
    static const size_t steps[] = {1, 7, 512, 2999, 3000, 3001, 10000};
    for (size_t t = 0; t < ARRAY_LEN(totals); t++)
        for (size_t s = 0; s < ARRAY_LEN(steps); s++) {
            if (steps[s] == 1 && totals[t] > 10000)
                continue;
            struct runlog l = open_log("log");
            while (l.total < totals[t])
                append(&l, MIN(steps[s], totals[t] - l.total));
            assert_int_equal(l.total, totals[t]);
            assert_int_equal(check_all(&l, 0), MIN(totals[t], KEPT));
            struct stat st;
            assert_int_equal(stat(tmp_path("log"), &st), 0);
            assert_true(st.st_size <= RUNLOG_HEADER + KEPT);
            assert_int_equal(st.st_mode & 0777, 0600);
            runlog_close(&l);
            assert_int_equal(unlink(tmp_path("log")), 0);
        }
}

static void first_kept(void **state)
{
    (void)state;
    static const struct {
        int line;
        uint64_t total, offset, want;
    } rows[] = {
        {ROW, 0, 0, 0},          {ROW, 500, 0, 0},        {ROW, 500, 500, 500},
        {ROW, 500, 800, 500},    {ROW, 4000, 0, 0},       {ROW, 4000, 2000, 2000},
        {ROW, 5000, 999, 999},   {ROW, 5000, 1000, 2000}, {ROW, 5000, 1999, 2000},
        {ROW, 5000, 2000, 2000}, {ROW, 5000, 5000, 5000},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct runlog l = {.fd = -1, .head = HEAD, .ring = RING, .total = rows[i].total};
        row_true(rows[i].line, runlog_first_kept(&l, rows[i].offset) == rows[i].want);
    }
}

static void a_read_does_not_cross_the_gap(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    _cleanup_runlog_ struct runlog l = open_log("log");
    append(&l, 6000); /* kept: [0,1000) and [3000,6000) */
    _cleanup_buf_ struct buf b = BUF_INIT(10000);
    assert_int_equal(runlog_read(&l, 900, 5000, &b, &e), 100);
    assert_int_equal(runlog_read(&l, 1000, 10, &b, &e), 0); /* dropped */
    assert_int_equal(runlog_read(&l, 2999, 10, &b, &e), 0);
    assert_int_equal(runlog_read(&l, 3000, 10, &b, &e), 10);
    assert_int_equal(runlog_read(&l, 6000, 10, &b, &e), 0);
    assert_int_equal(runlog_read(&l, 9999, 10, &b, &e), 0);
}

static void a_read_larger_than_its_buffer_says_so(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    _cleanup_runlog_ struct runlog l = open_log("log");
    append(&l, 500);
    _cleanup_buf_ struct buf b = BUF_INIT(10);
    assert_int_equal(runlog_read(&l, 0, 500, &b, &e), -1);
    assert_int_equal(e.kind, ERR_LIMIT);
}

/* A crash between the bytes and the total: the same bytes come again, nothing is lost or doubled.
 */
static void goes_on_after_a_crash(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    uint64_t stored = 0;
    for (int crash = 0; crash < 60; crash++) {
        struct runlog l = open_log("log");
        assert_int_equal(l.total, stored);
        uint64_t before = l.total;
        append(&l, 137); /* written ... */
        if (crash % 2) { /* ... but the header's total was not: put the old one back */
            uint64_t old = before;
            assert_int_equal(pwrite(l.fd, &old, 8, 24), 8);
        } else {
            stored += 137;
        }
        runlog_close(&l);
    }
    struct runlog l = open_log("log");
    assert_int_equal(l.total, stored);
    append(&l, 137);
    assert_int_equal(check_all(&l, 0), MIN(stored + 137, KEPT));
    runlog_close(&l);
    (void)e;
}

static void the_size_of_an_old_file_counts(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct runlog l = open_log("log");
    append(&l, 10);
    runlog_close(&l);
    assert_int_equal(runlog_open_write(&l, tmp_path("log"), 999999, &e), 0);
    assert_int_equal(l.head + l.ring, KEPT);
    assert_int_equal(l.total, 10);
    runlog_close(&l);
}

static void half_a_header_is_made_anew(void **state)
{
    (void)state;
    tmp_write(tmp_path("log"), "SMCP", 0600);
    struct runlog l = open_log("log");
    assert_int_equal(l.total, 0);
    append(&l, 10);
    assert_int_equal(check_all(&l, 0), 10);
    runlog_close(&l);
}

static void damage_is_an_error(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct runlog l = RUNLOG_INIT;
    char junk[100];
    memset(junk, 'x', sizeof junk - 1);
    junk[sizeof junk - 1] = '\0';
    tmp_write(tmp_path("log"), junk, 0600);
    assert_int_equal(runlog_open_read(&l, tmp_path("log"), &e), -1);
    assert_int_equal(runlog_open_write(&l, tmp_path("log"), KEPT, &e), -1);
    tmp_write(tmp_path("short"), "x", 0600);
    assert_int_equal(runlog_open_read(&l, tmp_path("short"), &e), -1);
    assert_int_equal(runlog_open_read(&l, tmp_path("none"), &e), -1);
    assert_int_equal(e.kind, ERR_NOTFOUND);
    assert_int_equal(l.fd, -1);
}

static void links_are_not_followed(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct runlog l = RUNLOG_INIT;
    assert_int_equal(symlink("elsewhere", tmp_path("log")), 0);
    assert_int_equal(runlog_open_write(&l, tmp_path("log"), KEPT, &e), -1);
    assert_int_equal(access(tmp_path("elsewhere"), F_OK), -1);
}

static void skipped_bytes_count(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    _cleanup_runlog_ struct runlog l = open_log("log");
    append(&l, 100);
    assert_int_equal(runlog_skip(&l, 50, &e), 0);
    assert_int_equal(l.total, 150);
    _cleanup_buf_ struct buf b = BUF_INIT(10000);
    assert_int_equal(runlog_read(&l, 0, 1000, &b, &e), 100);
    struct runlog r = RUNLOG_INIT;
    assert_int_equal(runlog_open_read(&r, tmp_path("log"), &e), 0);
    assert_int_equal(r.total, 150);
    runlog_close(&r);
}

/*
 * A reader in another process while the writer laps it all the time: what it gets is what belongs
 * to the offset, or nothing; never bytes of another round.
 */
static void a_lapped_reader_sees_no_foreign_bytes(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct runlog l = open_log("log");
    append(&l, 5000);
    pid_t pid = fork();
    if (pid == 0) {
        char data[1000];
        for (int i = 0; i < 60000; i++) {
            for (size_t k = 0; k < sizeof data; k++)
                data[k] = byte_at(l.total + k);
            if (runlog_append(&l, data, sizeof data, &e) < 0)
                _exit(1);
        }
        _exit(0);
    }
    struct runlog r = RUNLOG_INIT;
    assert_int_equal(runlog_open_read(&r, tmp_path("log"), &e), 0);
    int status = 0;
    size_t wrong = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        struct buf b = BUF_INIT(10000);
        assert_int_equal(runlog_refresh(&r, &e), 0);
        uint64_t at = runlog_first_kept(&r, HEAD);
        assert_true(runlog_read(&r, at, 2000, &b, &e) >= 0);
        for (size_t i = 0; i < b.len; i++)
            wrong += b.p[i] != byte_at(at + i);
        buf_release(&b);
    }
    assert_int_equal(status, 0);
    assert_int_equal(wrong, 0);
    assert_int_equal(runlog_refresh(&r, &e), 0);
    assert_int_equal(check_all(&r, 0), KEPT);
    runlog_close(&r);
    runlog_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(keeps_head_and_tail, tmp_setup, tmp_teardown),
        cmocka_unit_test(first_kept),
        cmocka_unit_test_setup_teardown(a_read_does_not_cross_the_gap, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(a_read_larger_than_its_buffer_says_so, tmp_setup,
                                        tmp_teardown),
        cmocka_unit_test_setup_teardown(goes_on_after_a_crash, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(the_size_of_an_old_file_counts, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(half_a_header_is_made_anew, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(damage_is_an_error, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(links_are_not_followed, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(skipped_bytes_count, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(a_lapped_reader_sees_no_foreign_bytes, tmp_setup,
                                        tmp_teardown),
    };
    return cmocka_run_group_tests_name("runlog", tests, NULL, NULL);
}
