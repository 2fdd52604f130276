/*
 * support.h - what the unit tests share: cmocka, a temporary directory per test, row tables.
 *
 * A table row starts with __LINE__ (the macro ROW), and a failing row says its line.
 */
#ifndef SMCP_TEST_SUPPORT_H
#define SMCP_TEST_SUPPORT_H

#include "common/base.h"

#include <ftw.h>
#include <setjmp.h>
#include <sys/wait.h>

#include <cmocka.h>

#define ROW __LINE__

/* assert_true for a table row */
#define row_true(line, cond)                                                                       \
    do {                                                                                           \
        if (!(cond))                                                                               \
            fail_msg("row of line %d: %s", (int)(line), #cond);                                    \
    } while (0)

static char tmp_dir[64];

static inline int tmp_setup(void **state)
{
    *state = tmp_dir;
    (void)snprintf(tmp_dir, sizeof tmp_dir, "/tmp/smcp-unit-XXXXXX");
    return mkdtemp(tmp_dir) ? 0 : -1;
}

static inline int tmp_remove_one(const char *path, const struct stat *st, int flag, struct FTW *at)
{
    (void)st;
    (void)flag;
    (void)at;
    return remove(path);
}

static inline int tmp_teardown(void **state)
{
    (void)state;
    return nftw(tmp_dir, tmp_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A path in the temporary directory; good until the next call. */
static inline char *tmp_path(const char *name)
{
    static char path[192];
    (void)snprintf(path, sizeof path, "%s/%s", tmp_dir, name);
    return path;
}

static inline void tmp_write(const char *path, const char *text, mode_t mode)
{
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
}

#endif
