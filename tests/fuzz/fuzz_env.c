#include "common/base.h"

#include "common/settings.h"

#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* An env file: whatever stands in it, it is loaded or refused with a message. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("env", MFD_CLOEXEC);
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    check(ftruncate(fd, 0) == 0 && pwrite(fd, data, n, 0) == (ssize_t)n);
    struct settings s;
    struct err e = ERR_INIT;
    struct buf out = BUF_INIT(1 << 20);
    if (settings_load(&s, path, &e) < 0) {
        check(e.msg[0] && strlen(err_fix_text(&e)) > 0);
    } else {
        settings_print(&s, &out);
        settings_release(&s);
    }
    buf_release(&out);
    return 0;
}
