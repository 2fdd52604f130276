#include "common/base.h"

#include "common/clock.h"
#include "common/log.h"
#include "tests/unit/support.h"

/* What log_line writes to stderr. */
static char *logged(enum log_level max, enum log_level level, const char *text)
{
    static char out[4096];
    int p[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(p), 0);
    assert_int_equal(dup2(p[1], STDERR_FILENO), STDERR_FILENO);
    close(p[1]);
    log_init("prog", max);
    log_line(level, "%s", text);
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(saved);
    ssize_t n = read(p[0], out, sizeof out - 1);
    close(p[0]);
    out[MAX(n, (ssize_t)0)] = '\0';
    return out;
}

static void one_event_is_one_line(void **state)
{
    (void)state;
    assert_string_equal(logged(LOG_LEVEL_INFO, LOG_LEVEL_WARN, "hello k=v"),
                        "<4>prog: hello k=v\n");
    assert_string_equal(logged(LOG_LEVEL_INFO, LOG_LEVEL_ERROR, "a\nb\r<3>forged: x\x7f\x1b["),
                        "<3>prog: a\\x0ab\\x0d<3>forged: x\\x7f\\x1b[\n");
}

static void levels_filter(void **state)
{
    (void)state;
    assert_string_equal(logged(LOG_LEVEL_WARN, LOG_LEVEL_INFO, "quiet"), "");
    assert_string_equal(logged(LOG_LEVEL_DEBUG, LOG_LEVEL_DEBUG, "loud"), "<7>prog: loud\n");
}

static void long_lines_are_cut_and_end(void **state)
{
    (void)state;
    char big[3000];
    memset(big, '\n', sizeof big - 1); /* each takes four characters escaped */
    big[sizeof big - 1] = '\0';
    const char *out = logged(LOG_LEVEL_INFO, LOG_LEVEL_INFO, big);
    size_t n = strlen(out);
    assert_true(n > 1000 && n < 1500);
    assert_int_equal(out[n - 1], '\n');
    assert_ptr_equal(strchr(out, '\n'), out + n - 1);
}

static void iso_times(void **state)
{
    (void)state;
    char out[32];
    assert_string_equal(clock_iso(0, out), "1970-01-01T00:00:00Z");
    assert_string_equal(clock_iso(1769860800123, out), "2026-01-31T12:00:00Z");
    assert_string_equal(clock_iso(-1000, out), "1969-12-31T23:59:59Z");
}

static void monotonic_clock_goes_forward(void **state)
{
    (void)state;
    int64_t last = clock_mono_us();
    for (int i = 0; i < 1000; i++) {
        int64_t now = clock_mono_us();
        assert_true(now >= last);
        last = now;
    }
    assert_true(clock_real_ms() > 1700000000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_event_is_one_line),        cmocka_unit_test(levels_filter),
        cmocka_unit_test(long_lines_are_cut_and_end),   cmocka_unit_test(iso_times),
        cmocka_unit_test(monotonic_clock_goes_forward),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
