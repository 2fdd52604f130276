#include "common/db.h"

#include "common/embed.h"
#include "common/fs.h"

#include <sched.h>
#include <sqlite3.h>

EMBED(sql_0001, "common/sql/0001_init.sql");

static const char *const migrations[] = {sql_0001};

#define APPLICATION_ID "1397572432" /* "SMCP" */
#define BUSY_LIMIT_MS  8000

int db_schema_version(void)
{
    return (int)ARRAY_LEN(migrations);
}

static int fail(struct db *db, const char *what, struct err *e)
{
    sqlite3 *h = db->handle;
    int code = h ? sqlite3_errcode(h) : SQLITE_NOMEM;
    const char *msg = h ? sqlite3_errmsg(h) : "out of memory";
    enum err_kind kind = code == SQLITE_BUSY ? ERR_TIMEOUT : ERR_INTERNAL;
    err_set(e, kind, "database: %s: %s", what, msg);
    if (code == SQLITE_FULL)
        return err_fix(e, "disk_full", "free some space on the server's disk, then call again");
    return err_fix(e, "database", "call again; if it stays, the owner looks at SMCP_STATE_DB");
}

/* Write locks are held for microseconds: yield first, then wait in steps that grow slowly. */
static int on_busy(void *arg, int tries)
{
    (void)arg;
    if (tries < 20) {
        sched_yield();
        return 1;
    }
    struct timespec ts = {.tv_nsec = tries < 200 ? 100000 : 2000000};
    (void)nanosleep(&ts, NULL);
    return tries < 200 + BUSY_LIMIT_MS / 2;
}

static int run_text(struct db *db, const char *sql, struct err *e)
{
    if (sqlite3_exec(db->handle, sql, NULL, NULL, NULL) == SQLITE_OK)
        return 0;
    return fail(db, sql, e);
}

enum control { BEGIN, COMMIT, ROLLBACK };

static int run_control(struct db *db, enum control which, struct err *e)
{
    static const char *const texts[] = {"BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"};
    sqlite3_stmt *st = db->control[which];
    if (!st && sqlite3_prepare_v3(db->handle, texts[which], -1, SQLITE_PREPARE_PERSISTENT, &st,
                                  NULL) != SQLITE_OK)
        return fail(db, texts[which], e);
    db->control[which] = st;
    int r = sqlite3_step(st) == SQLITE_DONE ? 0 : fail(db, texts[which], e);
    (void)sqlite3_reset(st);
    return r;
}

static int read_version(struct db *db, int *ret, struct err *e)
{
    sqlite3_stmt *st = NULL;
    if (sqlite3_prepare_v2(db->handle, "PRAGMA user_version", -1, &st, NULL) != SQLITE_OK ||
        sqlite3_step(st) != SQLITE_ROW) {
        (void)sqlite3_finalize(st);
        return fail(db, "user_version", e);
    }
    *ret = sqlite3_column_int(st, 0);
    (void)sqlite3_finalize(st);
    return 0;
}

static int too_new(int version, struct err *e)
{
    err_set(e, ERR_CONFLICT, "the database has schema %d, this program knows up to %d", version,
            db_schema_version());
    return err_fix(e, "config", "start the newer version of sandbox-mcp that made this database");
}

static int migrate(struct db *db, struct err *e)
{
    int version;
    if (read_version(db, &version, e) < 0)
        return -1;
    if (version == db_schema_version())
        return 0;
    if (version > db_schema_version())
        return too_new(version, e);
    if (db_begin(db, e) < 0)
        return -1;
    if (read_version(db, &version, e) < 0) /* another process may have done it meanwhile */
        goto failed;
    for (; version < db_schema_version(); version++) {
        char set[48];
        (void)snprintf(set, sizeof set, "PRAGMA user_version=%d", version + 1);
        if (run_text(db, migrations[version], e) < 0 || run_text(db, set, e) < 0)
            goto failed;
    }
    if (run_text(db,
                 "INSERT OR IGNORE INTO meta VALUES('instance',lower(hex(randomblob(8))));"
                 "PRAGMA application_id=" APPLICATION_ID,
                 e) < 0)
        goto failed;
    return db_commit(db, e);
failed:
    db_rollback(db);
    return -1;
}

static int prepare_all(struct db *db, struct err *e)
{
    db->stmts = xcalloc(db->n, sizeof *db->stmts);
    for (size_t i = 0; i < db->n; i++) {
        sqlite3_stmt *st = NULL;
        if (sqlite3_prepare_v3(db->handle, db->queries[i].sql, -1, SQLITE_PREPARE_PERSISTENT, &st,
                               NULL) != SQLITE_OK)
            return fail(db, db->queries[i].name, e);
        db->stmts[i] = st;
    }
    return 0;
}

/* Before the first connection of the process: no counters that every allocation would lock for. */
static void configure_once(void)
{
    static bool done;
    if (!done)
        (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    done = true;
}

static int open_handle(struct db *db, const char *path, struct err *e)
{
    configure_once();
    static const char setup[] =
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;"
        "PRAGMA trusted_schema=OFF; PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=-192;"
        "PRAGMA secure_delete=FAST;"
        "PRAGMA journal_size_limit=16777216; PRAGMA temp_store=MEMORY;";
    sqlite3 *h = NULL;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    int r = sqlite3_open_v2(path, &h, flags, NULL);
    db->handle = h;
    if (r != SQLITE_OK) {
        fail(db, path, e);
        return err_fix(e, "database", "check SMCP_STATE_DB and the rights on its directory");
    }
    (void)sqlite3_busy_handler(h, on_busy, NULL);
    (void)sqlite3_db_config(h, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    /* Closing the last connection must not checkpoint: that would fsync in a worker. */
    (void)sqlite3_db_config(h, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    /* The change of a new database to WAL does not ask the busy handler: ask it here. */
    for (int tries = 0; run_text(db, setup, e) < 0; tries++)
        if (sqlite3_errcode(h) != SQLITE_BUSY || !on_busy(NULL, tries))
            return -1;
    return 0;
}

int db_open(struct db *ret, const char *path, const struct db_query *queries, size_t n,
            struct err *e)
{
    struct db db = {.queries = queries, .n = n};
    if (fs_mkdirs_for(path, e) < 0)
        return -1;
    mode_t old = umask(0077);
    int r = open_handle(&db, path, e);
    (void)umask(old);
    if (r < 0 || migrate(&db, e) < 0 || prepare_all(&db, e) < 0) {
        db_close(&db);
        return -1;
    }
    *ret = db;
    return 0;
}

void db_close(struct db *db)
{
    for (size_t i = 0; db->stmts && i < db->n; i++)
        (void)sqlite3_finalize(db->stmts[i]);
    free(db->stmts);
    for (size_t i = 0; i < ARRAY_LEN(db->control); i++)
        (void)sqlite3_finalize(db->control[i]);
    if (db->handle)
        (void)sqlite3_close(db->handle);
    *db = (struct db)DB_INIT;
}

static int bind_optional(sqlite3_stmt *st, int i, const int64_t *v)
{
    return v ? sqlite3_bind_int64(st, i, *v) : sqlite3_bind_null(st, i);
}

static void bind(sqlite3_stmt *st, const char *params, va_list ap)
{
    for (int i = 1; *params; params++, i++) {
        int r = SQLITE_OK;
        if (*params == 'i')
            r = sqlite3_bind_int64(st, i, va_arg(ap, int64_t));
        else if (*params == 'd')
            r = sqlite3_bind_double(st, i, va_arg(ap, double));
        else if (*params == 't')
            r = sqlite3_bind_text(st, i, va_arg(ap, const char *), -1, SQLITE_TRANSIENT);
        else if (*params == 'I')
            r = bind_optional(st, i, va_arg(ap, const int64_t *));
        else
            BUG("unknown parameter letter");
        check(r == SQLITE_OK || r == SQLITE_TOOBIG || r == SQLITE_NOMEM);
    }
}

static sqlite3_stmt *start(struct db *db, size_t query, const char *params, va_list ap)
{
    check(query < db->n);
    sqlite3_stmt *st = db->stmts[query];
    (void)sqlite3_reset(st);
    check((size_t)sqlite3_bind_parameter_count(st) == strlen(params));
    bind(st, params, ap);
    return st;
}

int db_run(struct db *db, size_t query, struct err *e, const char *params, ...)
{
    va_list ap;
    va_start(ap, params);
    sqlite3_stmt *st = start(db, query, params, ap);
    va_end(ap);
    int r;
    while ((r = sqlite3_step(st)) == SQLITE_ROW)
        ;
    int result = r == SQLITE_DONE ? 0 : fail(db, db->queries[query].name, e);
    db_done(db, query);
    return result;
}

int db_next(struct db *db, size_t query, struct err *e)
{
    int r = sqlite3_step(db->stmts[query]);
    if (r == SQLITE_ROW)
        return 1;
    int result = r == SQLITE_DONE ? 0 : fail(db, db->queries[query].name, e);
    db_done(db, query);
    return result;
}

int db_row(struct db *db, size_t query, struct err *e, const char *params, ...)
{
    va_list ap;
    va_start(ap, params);
    (void)start(db, query, params, ap);
    va_end(ap);
    return db_next(db, query, e);
}

void db_done(struct db *db, size_t query)
{
    (void)sqlite3_reset(db->stmts[query]);
    (void)sqlite3_clear_bindings(db->stmts[query]);
}

int64_t db_changes(struct db *db)
{
    return sqlite3_changes64(db->handle);
}

int64_t db_last_id(struct db *db)
{
    return sqlite3_last_insert_rowid(db->handle);
}

int64_t db_int(struct db *db, size_t query, int col)
{
    return sqlite3_column_int64(db->stmts[query], col);
}

double db_real(struct db *db, size_t query, int col)
{
    return sqlite3_column_double(db->stmts[query], col);
}

const char *db_text(struct db *db, size_t query, int col)
{
    const unsigned char *t = sqlite3_column_text(db->stmts[query], col);
    return t ? (const char *)t : "";
}

size_t db_text_len(struct db *db, size_t query, int col)
{
    return (size_t)sqlite3_column_bytes(db->stmts[query], col);
}

bool db_null(struct db *db, size_t query, int col)
{
    return sqlite3_column_type(db->stmts[query], col) == SQLITE_NULL;
}

int db_begin(struct db *db, struct err *e)
{
    check(db->txn == 0);
    if (run_control(db, BEGIN, e) < 0)
        return -1;
    db->txn = 1;
    return 0;
}

int db_commit(struct db *db, struct err *e)
{
    check(db->txn == 1);
    if (run_control(db, COMMIT, e) < 0) {
        db_rollback(db);
        return -1;
    }
    db->txn = 0;
    return 0;
}

void db_rollback(struct db *db)
{
    if (!db->txn)
        return;
    struct err ignored;
    (void)run_control(db, ROLLBACK, &ignored);
    db->txn = 0;
}

#define RESTART_PAGES 1000 /* a WAL shorter than this may go on growing */

int db_checkpoint(struct db *db, struct err *e)
{
    int log = 0, moved = 0;
    int r = sqlite3_wal_checkpoint_v2(db->handle, NULL, SQLITE_CHECKPOINT_PASSIVE, &log, &moved);
    if (r == SQLITE_OK && log > RESTART_PAGES)
        r = sqlite3_wal_checkpoint_v2(db->handle, NULL, SQLITE_CHECKPOINT_RESTART, &log, &moved);
    return r == SQLITE_OK || r == SQLITE_BUSY ? 0 : fail(db, "checkpoint", e);
}

int db_instance(struct db *db, char ret[33], struct err *e)
{
    sqlite3_stmt *st = NULL;
    const char *sql = "SELECT value FROM meta WHERE key='instance'";
    int r = -1;
    if (sqlite3_prepare_v2(db->handle, sql, -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW) {
        (void)snprintf(ret, 33, "%s", (const char *)sqlite3_column_text(st, 0));
        r = 0;
    } else {
        fail(db, "instance", e);
    }
    (void)sqlite3_finalize(st);
    return r;
}
