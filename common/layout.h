/*
 * layout.h - where the files that both programs use have their places, and how ids look.
 *
 *   RUN_DIR/doorbell           FIFO: a byte wakes the runner; no reader means it is down
 *   RUN_DIR/reply/<name>       FIFO of one caller: 8 bytes, the id of a request row that changed
 *   RUN_DIR/sb/<sandbox>/      socket directory that is mounted into the sandbox
 *   RUN_DIR/sb/.trash/         such directories, being deleted in the background
 *   DATA_DIR/<sandbox>/workspace   mounted on /workspace
 *   DATA_DIR/.runs/<xx>/<id>.log   output of a run (runlog.h); xx: last two letters of the id
 *   DATA_DIR/.trash/           what is being deleted in the background
 * A sandbox name starts with a letter or digit, so the names with a dot are never one.
 */
#ifndef SMCP_LAYOUT_H
#define SMCP_LAYOUT_H

#include "common/base.h"
#include "common/buf.h"
#include "common/err.h"
#include "common/settings.h"

void layout_doorbell(const struct settings *s, struct buf *out);
void layout_reply_dir(const struct settings *s, struct buf *out);
void layout_reply(const struct settings *s, const char *name, struct buf *out);
void layout_socket_dir(const struct settings *s, const char *sandbox, struct buf *out);
void layout_sandbox_dir(const struct settings *s, const char *sandbox, struct buf *out);
void layout_workspace(const struct settings *s, const char *sandbox, struct buf *out);
void layout_run_log(const struct settings *s, const char *run, struct buf *out);
void layout_trash(const struct settings *s, struct buf *out);
void layout_socket_trash(const struct settings *s, struct buf *out);

/* Create the directories and the doorbell of both programs. */
int layout_create(const struct settings *s, struct err *e) _check_;

#define ULID_LEN 26

/* A new id, lower case: 48 bits of time (milliseconds), 80 random bits. */
void ulid_new(char ret[ULID_LEN + 1]);
bool ulid_valid(const char *s);

/* When a (valid) id was made, real ms. */
int64_t ulid_time(const char *id);

/*
 * Why there is no record of a job: "expired" when it is old enough to have been cleaned up, else
 * "not_found". Returns -1.
 */
int job_missing(const char *id, const struct settings *s, struct err *e);

/* Sorts after all ids made before that time, and before all made later. */
void ulid_floor(int64_t real_ms, char ret[ULID_LEN + 1]);

/* What the doorbell answered. */
enum bell { BELL_RUNG, BELL_NOBODY };

/* Ring a FIFO: one message of n bytes (at most PIPE_BUF). A full FIFO counts as rung. */
enum bell bell_ring(const char *path, const void *p, size_t n);

#endif
