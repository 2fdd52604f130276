/*
 * files.h - files of a workspace, seen from the host.
 *
 * Everything in a workspace is made by an adversary and may change at any moment. So: every path
 * is resolved by the kernel beneath the workspace's descriptor (openat2, no magic links); what was
 * resolved is held by an O_PATH descriptor, checked to be a regular file or a directory, and only
 * then opened. FIFOs and devices are never opened; nothing is followed to the outside.
 *
 * Paths: relative ones, and absolute ones under /workspace, are beneath the workspace. Any other,
 *   and any whose links lead outside, is FILES_ELSEWHERE: only the sandbox can resolve it.
 * Names that are not UTF-8: shown with \xNN for a byte that is not, and \\ for a backslash. A path
 *   is taken literally first; where nothing has that name, it is taken as such an escaped one.
 * Writes are atomic (a new file takes the place of the old), keep mode and owner, and create
 *   missing directories. Appending writes to the file itself.
 */
#ifndef SMCP_FCGI_FILES_H
#define SMCP_FCGI_FILES_H

#include "common/base.h"
#include "common/buf.h"
#include "common/err.h"
#include "common/json.h"
#include "common/settings.h"

enum { FILES_OK = 0, FILES_ELSEWHERE = 1 }; /* besides -1, error */

#define FILES_DEPTH_MAX 64         /* directory levels that a recursive list goes down */
#define FILES_NAMES_MAX (64 << 20) /* bytes of names in one directory */

/* The workspace's descriptor, or -1. ERR_NOTFOUND when there is none. */
int files_workspace(const struct settings *s, const char *sandbox, struct err *e) _check_;

/*
 * A path argument to one relative to the workspace ("." for itself). FILES_ELSEWHERE when it is an
 * absolute path outside.
 */
int files_path(const char *arg, struct buf *ret, struct err *e) _check_;

/* Show a path (relative, as above) as "/workspace/..."; bytes that are not UTF-8 are escaped. */
void files_show(const char *rel, struct buf *out);

/* Name for a result; returns whether it had to be escaped. And back: false when nothing changes. */
bool files_escape(const char *name, struct buf *out);
bool files_unescape(const char *text, struct buf *out);

/* Open for reading: a regular file (dir false) or a directory (dir true). */
int files_open(int ws, const char *rel, bool dir, int *ret_fd, struct stat *ret_st,
               struct err *e) _check_;

struct files_write {
    const char *data;
    size_t n;
    bool append;
    int mode; /* permission bits, -1: keep, or 0644 for a new file */
};

int files_write(int ws, const char *rel, const struct files_write *w, int64_t *ret_size,
                struct err *e) _check_;

struct files_list {
    bool recursive;
    int64_t limit;
    const char *cursor; /* raw path of the last entry of the page before, or NULL */
};

/* Writes the entries into the open array; `next` gets the raw path for the next page, or nothing.
 */
int files_list(int ws, const char *rel, const struct files_list *l, struct jw *w, struct buf *next,
               struct err *e) _check_;

/* "file", "directory", "symlink", "fifo", "socket", "device" */
const char *files_type(mode_t mode);

#endif
