/*
 * fs.h - files of our own: directories, secrets, whole files, descriptors.
 *
 * Paths here are ours (settings, run directory), never a client's: those go through fcgi/files.
 */
#ifndef SMCP_FS_H
#define SMCP_FS_H

#include "common/base.h"
#include "common/buf.h"
#include "common/err.h"

/* Create the directory and its parents where missing; the last one gets `mode`. */
int fs_mkdirs(const char *path, mode_t mode, struct err *e) _check_;

/* The directory part of a path must exist: create it (mode 0700). */
int fs_mkdirs_for(const char *file, struct err *e) _check_;

/* Whole file into the buffer (bounded by its max). */
int fs_read(const char *path, struct buf *out, struct err *e) _check_;

/* The same, refused when others than the owner may read the file. */
int fs_read_secret(const char *path, struct buf *out, struct err *e) _check_;

/* Create (or keep) a FIFO, mode 0600. Fails when something else has the name. */
int fs_fifo(const char *path, struct err *e) _check_;

/* Write everything, whatever signals and short writes do. */
int fs_write_all(int fd, const void *p, size_t n, struct err *e) _check_;

/* Directory of the running program (from /proc/self/exe), without a final slash. */
int fs_program_dir(struct buf *out, struct err *e) _check_;

#endif
