/*
 * db.h - the only door to SQLite.
 *
 * A program lists its statements once, as a table indexed by an enum; all are prepared when the
 * database is opened, so a statement that does not fit the schema fails at start. No SQL text
 * stands anywhere else.
 * Rules:  open after fork, one connection per process (or thread); a write transaction is
 *   BEGIN IMMEDIATE, and does not nest.
 * Speed:  WAL with synchronous=NORMAL, and no automatic checkpoint: a commit never calls fsync.
 *   The runner's housekeeper calls db_checkpoint instead.
 * Params: the format string of db_run and db_row has one letter per parameter:
 *   i int64_t, I const int64_t * (NULL is NULL), d double, t const char * (NULL is NULL).
 */
#ifndef SMCP_DB_H
#define SMCP_DB_H

#include "common/base.h"
#include "common/err.h"

struct db_query {
    const char *name;
    const char *sql;
};

struct db {
    void *handle;
    void **stmts;
    const struct db_query *queries;
    size_t n;
    void *control[3]; /* BEGIN, COMMIT, ROLLBACK */
    int txn;          /* depth: 0 or 1 */
};

#define DB_INIT                                                                                    \
    {                                                                                              \
        .handle = NULL                                                                             \
    }

/* Open (create, migrate) and prepare everything. On failure nothing stays open. */
int db_open(struct db *ret, const char *path, const struct db_query *queries, size_t n,
            struct err *e) _check_;
void db_close(struct db *db);
#define _cleanup_db_ _cleanup_(db_close)

/* Execute to the end; rows are ignored. */
int db_run(struct db *db, size_t query, struct err *e, const char *params, ...) _check_;
int64_t db_changes(struct db *db); /* rows changed by the last db_run */
int64_t db_last_id(struct db *db);

/* First row: 1 there is one, 0 none, -1 error. Then columns; then db_next or db_done. */
int db_row(struct db *db, size_t query, struct err *e, const char *params, ...) _check_;
int db_next(struct db *db, size_t query, struct err *e) _check_;
void db_done(struct db *db, size_t query);

/* Columns of the current row; text is valid until db_next or db_done, and never NULL. */
int64_t db_int(struct db *db, size_t query, int col);
double db_real(struct db *db, size_t query, int col);
const char *db_text(struct db *db, size_t query, int col);
size_t db_text_len(struct db *db, size_t query, int col);
bool db_null(struct db *db, size_t query, int col);

int db_begin(struct db *db, struct err *e) _check_;
int db_commit(struct db *db, struct err *e) _check_;
void db_rollback(struct db *db);

/*
 * Copy the WAL into the database, and let the next writer begin it anew. Blocks, calls fsync; most
 * of it beside the writers, who wait only for the little that they added meanwhile.
 */
int db_checkpoint(struct db *db, struct err *e) _check_;

/* Random identity of this database, made at its creation; at least 17 bytes. */
int db_instance(struct db *db, char ret[33], struct err *e) _check_;

int db_schema_version(void); /* the newest migration that this program knows */

#endif
