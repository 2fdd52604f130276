/*
 * files.h - reading, writing and listing files for the runner.
 *
 * Life:      an operation lives from its request to its last answer, or until the connection goes.
 * Ownership: files.c keeps the list of operations; read, write and list each embed struct file_op
 *            in their own structure and are freed through `end`.
 * Blocking:  disks may take their time, nothing else: no FIFO, device or socket is ever opened. A
 *            long read or listing is done in pieces, between which runs are served. No operation
 *            needs a process, so all of them work at the pids limit.
 * Errors:    WIRE_FAILED with the errno and one line that names the path.
 * Limits:    FILES_MAX operations at a time.
 */
#ifndef AGENT_FILES_H
#define AGENT_FILES_H

#include "images/agent/fields.h"
#include "images/agent/input.h"
#include "images/agent/sender.h"

#include <limits.h>
#include <sys/stat.h>

#define FILES_MAX 64

struct file_op {
    struct file_op *next;
    struct producer out;
    uint32_t stream;
    void (*end)(struct file_op *op); /* close, remove what is unfinished, free */
};

/* files.c */
int files_begin(const struct frame *f, struct fields *fields, char path[PATH_MAX]);
void files_add(struct file_op *op, uint32_t stream);
void files_end(struct file_op *op);
struct file_op *files_find(uint32_t stream);
void files_failed(uint32_t stream, const char *what, const char *path); /* takes errno */
void files_send_stat(uint32_t stream, const struct stat *st, int fd);
void files_lost_runner(void);

/* Handlers: files_read.c, files_write.c, files_list.c */
int files_on_read(const struct frame *f);
int files_on_write(const struct frame *f);
int files_on_data(const struct frame *f);
int files_on_list(const struct frame *f);

#endif
