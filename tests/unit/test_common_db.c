#include "common/base.h"

#include "common/db.h"
#include "common/fs.h"
#include "tests/unit/support.h"

enum { Q_PUT, Q_GET, Q_ALL, Q_VERSION, Q_JOURNAL, Q_SET_VERSION, Q_TYPES };

static const struct db_query queries[] = {
    [Q_PUT] = {"put", "INSERT INTO meta VALUES(?,?)"},
    [Q_GET] = {"get", "SELECT value FROM meta WHERE key=?"},
    [Q_ALL] = {"all", "SELECT key FROM meta WHERE key LIKE 'k%' ORDER BY key"},
    [Q_VERSION] = {"version", "PRAGMA user_version"},
    [Q_JOURNAL] = {"journal", "PRAGMA journal_mode"},
    [Q_SET_VERSION] = {"newer", "PRAGMA user_version=9999"},
    [Q_TYPES] = {"types", "SELECT ?,?,?,?"},
};
#define N ARRAY_LEN(queries)

static const char *db_file(void)
{
    static char path[128];
    (void)snprintf(path, sizeof path, "%s/sub/state.db", tmp_dir);
    return path;
}

static struct db open_db(void)
{
    struct db db = DB_INIT;
    struct err e = ERR_INIT;
    if (db_open(&db, db_file(), queries, N, &e) < 0)
        fail_msg("%s", e.msg);
    return db;
}

static void from_nothing(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct db db = open_db();
    assert_int_equal(db_row(&db, Q_VERSION, &e, ""), 1);
    assert_int_equal(db_int(&db, Q_VERSION, 0), db_schema_version());
    db_done(&db, Q_VERSION);
    assert_int_equal(db_row(&db, Q_JOURNAL, &e, ""), 1);
    assert_string_equal(db_text(&db, Q_JOURNAL, 0), "wal");
    db_done(&db, Q_JOURNAL);
    struct stat st;
    assert_int_equal(stat(db_file(), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(stat(tmp_path("sub"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    db_close(&db);
    db_close(&db); /* twice is fine */
}

static void the_instance_stays(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    char first[33], second[33];
    struct db db = open_db();
    assert_int_equal(db_instance(&db, first, &e), 0);
    db_close(&db);
    db = open_db();
    assert_int_equal(db_instance(&db, second, &e), 0);
    db_close(&db);
    assert_int_equal(strlen(first), 16);
    assert_string_equal(first, second);
}

static void a_newer_database_is_refused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct db db = open_db();
    assert_int_equal(db_row(&db, Q_SET_VERSION, &e, ""), 0);
    db_close(&db);
    assert_int_equal(db_open(&db, db_file(), queries, N, &e), -1);
    assert_int_equal(e.kind, ERR_CONFLICT);
    assert_non_null(strstr(e.msg, "9999"));
    assert_null(db.handle);
}

static void a_statement_that_does_not_fit_fails_at_open(void **state)
{
    (void)state;
    static const struct db_query wrong[] = {{"wrong one", "SELECT nothing FROM nowhere"}};
    struct err e = ERR_INIT;
    struct db db = DB_INIT;
    assert_int_equal(db_open(&db, db_file(), wrong, 1, &e), -1);
    assert_non_null(strstr(e.msg, "wrong one"));
}

static void not_a_database(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct db db = DB_INIT;
    assert_int_equal(mkdir(tmp_path("sub"), 0700), 0);
    char junk[4096];
    memset(junk, 'j', sizeof junk - 1);
    junk[sizeof junk - 1] = '\0';
    tmp_write(db_file(), junk, 0600);
    assert_int_equal(db_open(&db, db_file(), queries, N, &e), -1);
    assert_true(strlen(err_fix_text(&e)) > 0);
    assert_int_equal(db_open(&db, "/proc/no/such/db", queries, N, &e), -1);
}

static void rows_and_parameters(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    _cleanup_db_ struct db db = open_db();
    assert_int_equal(db_run(&db, Q_PUT, &e, "tt", "k1", "v1"), 0);
    assert_int_equal(db_changes(&db), 1);
    assert_int_equal(db_run(&db, Q_PUT, &e, "tt", "k1", "again"), -1); /* primary key */
    assert_int_equal(db_run(&db, Q_PUT, &e, "tt", "k2", "v2"), 0);
    assert_int_equal(db_row(&db, Q_GET, &e, "t", "k1"), 1);
    assert_string_equal(db_text(&db, Q_GET, 0), "v1");
    assert_int_equal(db_text_len(&db, Q_GET, 0), 2);
    db_done(&db, Q_GET);
    assert_int_equal(db_row(&db, Q_GET, &e, "t", "none"), 0);

    assert_int_equal(db_row(&db, Q_ALL, &e, ""), 1);
    assert_string_equal(db_text(&db, Q_ALL, 0), "k1");
    assert_int_equal(db_next(&db, Q_ALL, &e), 1);
    assert_string_equal(db_text(&db, Q_ALL, 0), "k2");
    assert_int_equal(db_next(&db, Q_ALL, &e), 0);

    assert_int_equal(db_row(&db, Q_TYPES, &e, "idtI", (int64_t)INT64_MIN, 0.5, (const char *)NULL,
                            (const int64_t *)NULL),
                     1);
    assert_true(db_int(&db, Q_TYPES, 0) == INT64_MIN);
    assert_true(db_real(&db, Q_TYPES, 1) > 0.49 && db_real(&db, Q_TYPES, 1) < 0.51);
    assert_true(db_null(&db, Q_TYPES, 2));
    assert_string_equal(db_text(&db, Q_TYPES, 2), "");
    assert_true(db_null(&db, Q_TYPES, 3));
    db_done(&db, Q_TYPES);
}

static void transactions(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    _cleanup_db_ struct db db = open_db();
    assert_int_equal(db_begin(&db, &e), 0);
    assert_int_equal(db_run(&db, Q_PUT, &e, "tt", "k1", "v"), 0);
    db_rollback(&db);
    assert_int_equal(db_row(&db, Q_GET, &e, "t", "k1"), 0);
    assert_int_equal(db_begin(&db, &e), 0);
    assert_int_equal(db_run(&db, Q_PUT, &e, "tt", "k1", "v"), 0);
    assert_int_equal(db_commit(&db, &e), 0);
    assert_int_equal(db_row(&db, Q_GET, &e, "t", "k1"), 1);
    db_done(&db, Q_GET);
    db_rollback(&db); /* without one: nothing */
}

static int all_exit_0(const pid_t *pids, int n)
{
    int bad = 0;
    for (int i = 0; i < n; i++) {
        int status = -1;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        bad += status != 0;
    }
    return bad;
}

/* Start-up of a new machine: runner and workers meet at a database that is not there. */
static void many_open_a_new_database_at_once(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        enum { PROCESSES = 12 };
        pid_t pids[PROCESSES];
        int gate[2];
        assert_int_equal(pipe(gate), 0);
        for (int i = 0; i < PROCESSES; i++) {
            pids[i] = fork();
            if (pids[i] == 0) {
                struct db db = DB_INIT;
                struct err e = ERR_INIT;
                char c;
                close(gate[1]);
                (void)!read(gate[0], &c, 1);
                if (db_open(&db, db_file(), queries, N, &e) < 0) {
                    print_message("open: %s\n", e.msg);
                    _exit(1);
                }
                db_close(&db);
                _exit(0);
            }
        }
        close(gate[0]);
        close(gate[1]); /* all at once */
        assert_int_equal(all_exit_0(pids, PROCESSES), 0);
        (void)unlink(db_file());
        (void)unlink(tmp_path("sub/state.db-wal"));
        (void)unlink(tmp_path("sub/state.db-shm"));
    }
}

/* Writers wait for each other; every row arrives. */
static void writers_wait_for_each_other(void **state)
{
    (void)state;
    enum { PROCESSES = 6, ROWS = 150 };
    pid_t pids[PROCESSES];
    struct err e = ERR_INIT;
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            struct db db = DB_INIT;
            char key[32];
            if (db_open(&db, db_file(), queries, N, &e) < 0)
                _exit(1);
            for (int k = 0; k < ROWS; k++) {
                (void)snprintf(key, sizeof key, "k%d-%d", i, k);
                bool txn = k % 3 == 0;
                if ((txn && db_begin(&db, &e) < 0) || db_run(&db, Q_PUT, &e, "tt", key, "v") < 0 ||
                    (txn && db_commit(&db, &e) < 0)) {
                    print_message("write: %s\n", e.msg);
                    _exit(1);
                }
            }
            _exit(0);
        }
    }
    assert_int_equal(all_exit_0(pids, PROCESSES), 0);
    _cleanup_db_ struct db db = open_db();
    int n = 0;
    for (int r = db_row(&db, Q_ALL, &e, ""); r > 0; r = db_next(&db, Q_ALL, &e))
        n++;
    assert_int_equal(n, PROCESSES * ROWS);
}

/* The database file alone, without its WAL, has the row after a checkpoint. */
static void the_wal_goes_into_the_database(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    _cleanup_db_ struct db db = open_db();
    struct buf file = BUF_INIT(64 << 20);
    assert_int_equal(db_run(&db, Q_PUT, &e, "tt", "k1", "checkpointed-value"), 0);
    assert_int_equal(fs_read(db_file(), &file, &e), 0);
    assert_null(memmem(file.p, file.len, "checkpointed-value", 18));
    assert_int_equal(db_checkpoint(&db, &e), 0);
    buf_clear(&file);
    assert_int_equal(fs_read(db_file(), &file, &e), 0);
    assert_non_null(memmem(file.p, file.len, "checkpointed-value", 18));
    buf_release(&file);
}

static void tables_are_strict(void **state)
{
    (void)state;
    static const struct db_query insert[] = {
        {"row",
         "INSERT INTO requests(kind,args,reply,created_at,deadline) VALUES('k','{}','r',?,0)"}};
    struct err e = ERR_INIT;
    _cleanup_db_ struct db db = DB_INIT;
    assert_int_equal(db_open(&db, db_file(), insert, 1, &e), 0);
    assert_int_equal(db_run(&db, 0, &e, "t", "not a number"), -1);
    assert_int_equal(db_run(&db, 0, &e, "i", (int64_t)5), 0);
    assert_int_equal(db_last_id(&db), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(from_nothing, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(the_instance_stays, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(a_newer_database_is_refused, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(a_statement_that_does_not_fit_fails_at_open, tmp_setup,
                                        tmp_teardown),
        cmocka_unit_test_setup_teardown(not_a_database, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(rows_and_parameters, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(transactions, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(many_open_a_new_database_at_once, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(writers_wait_for_each_other, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(the_wal_goes_into_the_database, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(tables_are_strict, tmp_setup, tmp_teardown),
    };
    return cmocka_run_group_tests_name("db", tests, NULL, NULL);
}
