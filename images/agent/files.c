#include "images/agent/files.h"

#include "images/agent/path.h"

#include <errno.h>
#include <string.h>

static struct file_op *ops;

struct file_op *files_find(uint32_t stream)
{
    struct file_op *op = ops;
    while (op && op->stream != stream)
        op = op->next;
    return op;
}

void files_failed(uint32_t stream, const char *what, const char *path)
{
    int error = errno;
    sender_failed(stream, error, "%s %.700s: %s", what, path, strerror(error));
}

/*
 * What every request begins with. Returns 1 to go on, 0 when the answer was a failure, -1 for a
 * malformed frame.
 */
int files_begin(const struct frame *f, struct fields *fields, char path[PATH_MAX])
{
    size_t count = 0;
    if (!f->stream || fields_parse(f->p, f->n, fields))
        return -1;
    for (struct file_op *op = ops; op; op = op->next)
        count++;
    errno = files_find(f->stream) ? EEXIST : count >= FILES_MAX ? EAGAIN : 0;
    if (errno)
        files_failed(f->stream, "too many file operations, or one with this number:", "");
    else if (!path_of_request(fields, path))
        return 1;
    else
        files_failed(f->stream, "cannot use", path);
    return 0;
}

void files_add(struct file_op *op, uint32_t stream)
{
    op->stream = stream;
    op->next = ops;
    ops = op;
}

void files_end(struct file_op *op)
{
    struct file_op **at = &ops;
    while (*at != op)
        at = &(*at)->next;
    *at = op->next;
    sender_unqueue(&op->out);
    op->end(op);
}

void files_lost_runner(void)
{
    while (ops)
        files_end(ops);
}

void files_send_stat(uint32_t stream, const struct stat *st, int fd)
{
    unsigned char b[MSG_MAX];
    char path[PATH_MAX];
    struct msg m;
    msg_begin(&m, b, sizeof b);
    msg_number(&m, WT_FTYPE, (unsigned char)path_letter(st->st_mode));
    msg_number(&m, WT_SIZE, (uint64_t)st->st_size);
    msg_number(&m, WT_MODE, st->st_mode & 07777u);
    msg_number(&m, WT_MTIME_NS,
               (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec);
    path_of_fd(fd, path);
    msg_bytes(&m, WT_PATH, path, strlen(path));
    sender_msg(&m, WIRE_FILE_STAT, 0, stream);
}
