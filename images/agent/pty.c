#include "images/agent/pty.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER 0x5441
#endif

/*
 * The two descriptors of ours are the same open terminal; two of them because the reading and the
 * writing half are watched, and closed, apart. The command's side is opened through the first, so
 * that no path in /dev/pts is trusted.
 */
int pty_open(int *reader, int *writer, int *command)
{
    *reader = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (*reader < 0 || unlockpt(*reader))
        return -1;
    *writer = fcntl(*reader, F_DUPFD_CLOEXEC, 4);
    *command = ioctl(*reader, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    return *writer < 0 || *command < 0 ? -1 : 0;
}

int pty_resize(int fd, uint64_t rows, uint64_t cols)
{
    struct winsize w = {.ws_row = (unsigned short)(rows ? rows : 24),
                        .ws_col = (unsigned short)(cols ? cols : 80)};
    return ioctl(fd, TIOCSWINSZ, &w);
}
