#include "common/base.h"

#include "common/settings.h"
#include "tests/unit/support.h"

/* The environment of the test is what it says, nothing of the caller's. */
static char *empty_env[] = {NULL};

static int env_setup(void **state)
{
    environ = empty_env;
    return tmp_setup(state);
}

static char *env_file(const char *text)
{
    char *path = tmp_path("env");
    tmp_write(path, text, 0600);
    return path;
}

static void defaults(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    _cleanup_settings_ struct settings s;
    assert_int_equal(settings_load(&s, NULL, &e), 0);
    assert_string_equal(s.host, "127.0.0.1");
    assert_int_equal(s.port, 8000);
    assert_string_equal(s.data_dir, "/var/lib/sandbox-mcp/data");
    assert_string_equal(s.state_db, "/var/lib/sandbox-mcp/state.db");
    assert_string_equal(s.base_image, "sandbox-mcp-base:latest");
    assert_string_equal(s.network, "bridge");
    assert_int_equal(s.mem_limit, (int64_t)2 << 30);
    assert_true(s.cpus > 1.99 && s.cpus < 2.01);
    assert_int_equal(s.pids_limit, 512);
    assert_int_equal(s.max_sandboxes, 20);
    assert_int_equal(s.idle_stop, 7200);
    assert_int_equal(s.idle_remove, 604800);
    assert_int_equal(s.gc_interval, 300);
    assert_int_equal(s.exec_timeout, 60);
    assert_int_equal(s.exec_wait, 25);
    assert_int_equal(s.job_timeout, 3600);
    assert_int_equal(s.job_log_retention, 86400);
    assert_int_equal(s.url_ttl, 3600);
    assert_int_equal(s.read_text_max, 200000);
    assert_int_equal(s.max_output, 50000);
}

/* Each bad value: the message names variable and value, and the fix the variable. */
static const struct {
    int line;
    const char *name, *value;
} bad[] = {
    {ROW, "SMCP_PORT", "0"},
    {ROW, "SMCP_PORT", "65536"},
    {ROW, "SMCP_PORT", "80a"},
    {ROW, "SMCP_PORT", "-1"},
    {ROW, "SMCP_PORT", "+80"},
    {ROW, "SMCP_PORT", "8000.0"},
    {ROW, "SMCP_PORT", "99999999999999999999"},
    {ROW, "SMCP_MEM_LIMIT", "2x"},
    {ROW, "SMCP_MEM_LIMIT", "1m"},
    {ROW, "SMCP_MEM_LIMIT", "-2g"},
    {ROW, "SMCP_MEM_LIMIT", "2g2"},
    {ROW, "SMCP_MEM_LIMIT", "9999999999t"},
    {ROW, "SMCP_MEM_LIMIT", "1.5g"},
    {ROW, "SMCP_CPUS", "0"},
    {ROW, "SMCP_CPUS", "two"},
    {ROW, "SMCP_CPUS", "-1"},
    {ROW, "SMCP_CPUS", "1,5"},
    {ROW, "SMCP_CPUS", "1025"},
    {ROW, "SMCP_CPUS", "inf"},
    {ROW, "SMCP_CPUS", "nan"},
    {ROW, "SMCP_CPUS", "1e1"},
    {ROW, "SMCP_CPUS", "1.2.3"},
    {ROW, "SMCP_PIDS_LIMIT", "15"},
    {ROW, "SMCP_MAX_SANDBOXES", "0"},
    {ROW, "SMCP_EXEC_TIMEOUT", "0"},
    {ROW, "SMCP_EXEC_TIMEOUT", "60s"},
    {ROW, "SMCP_EXEC_WAIT", "301"},
    {ROW, "SMCP_GC_INTERVAL_SECONDS", "0"},
    {ROW, "SMCP_MAX_OUTPUT", "999"},
    {ROW, "SMCP_LOG_LEVEL", "8"},
    {ROW, "SMCP_DATA_DIR", "relative/dir"},
    {ROW, "SMCP_STATE_DB", "state.db"},
    {ROW, "SMCP_RUN_DIR", "./run"},
    {ROW, "SMCP_DOCKER_SOCKET", "docker.sock"},
};

static void bad_values_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char text[200];
        (void)snprintf(text, sizeof text, "%s=%s", bad[i].name, bad[i].value);
        char *env[] = {text, NULL};
        environ = env;
        struct err e = ERR_INIT;
        struct settings s;
        int r = settings_load(&s, NULL, &e);
        if (r == 0)
            fail_msg("row of line %d: %s is accepted", bad[i].line, text);
        row_true(bad[i].line, e.kind == ERR_INVALID);
        row_true(bad[i].line, strstr(e.msg, text));
        row_true(bad[i].line, strstr(e.msg, "takes"));
        row_true(bad[i].line, strstr(err_fix_text(&e), bad[i].name));
        environ = empty_env;
    }
}

static void env_file_forms(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    _cleanup_settings_ struct settings s;
    const char *path = env_file("# a comment\n"
                                "\n"
                                "  SMCP_PORT=9001\n"
                                "export SMCP_CPUS=1.5  \r\n"
                                "SMCP_DATA_DIR=\"/srv/with blank\"\n"
                                "SMCP_RUN_DIR='/run/x'\n"
                                "SMCP_TOKEN=a=b#c\n"
                                "SMCP_HOST=\n"
                                "SMCP_EXEC_WAIT=3\n"
                                "SMCP_EXEC_WAIT=4\n"
                                "OTHER_THING=$(x)\n"
                                "SMCP_MEM_LIMIT=512MiB");
    assert_int_equal(settings_load(&s, path, &e), 0);
    assert_int_equal(s.port, 9001);
    assert_true(s.cpus > 1.49 && s.cpus < 1.51);
    assert_string_equal(s.data_dir, "/srv/with blank");
    assert_string_equal(s.run_dir, "/run/x");
    assert_string_equal(s.token, "a=b#c");
    assert_string_equal(s.host, "127.0.0.1"); /* empty: the default stays */
    assert_int_equal(s.exec_wait, 4);
    assert_int_equal(s.mem_limit, 512 << 20);
}

static void mistyped_names_are_told(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    _cleanup_settings_ struct settings s;
    struct buf out = BUF_INIT(1 << 16);
    const char *path = env_file("SMCP_TOKN=secret-value\nOTHER=1\nSMCP_ENV_FILE=x\nSMCP_CPU=1\n");
    assert_int_equal(settings_load(&s, path, &e), 0);
    assert_string_equal(s.unknown, "SMCP_TOKN is no setting (is SMCP_TOKEN meant?); "
                                   "SMCP_CPU is no setting (is SMCP_CPUS meant?)");
    settings_print(&s, &out);
    assert_non_null(strstr(out.p, "\n# SMCP_TOKN is no setting"));
    assert_null(strstr(out.p, "secret-value"));
    buf_release(&out);
}

static void env_file_errors_say_the_line(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct settings s;
    char *path = env_file("SMCP_HOST=x\n\nSMCP_PORT=nine\n");
    assert_int_equal(settings_load(&s, path, &e), -1);
    assert_non_null(strstr(e.msg, "env:3: SMCP_PORT=nine"));
    path = env_file("SMCP_HOST=x\nSMCP_TOKEN very-secret-word\n");
    assert_int_equal(settings_load(&s, path, &e), -1);
    assert_non_null(strstr(e.msg, "env:2:"));
    assert_null(strstr(e.msg, "very-secret-word")); /* the log is no place for a token */
    assert_int_equal(settings_load(&s, "/nonexistent/env", &e), -1);
    assert_non_null(strstr(e.msg, "/nonexistent/env"));
}

static void the_environment_wins(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    _cleanup_settings_ struct settings s;
    char port[] = "SMCP_PORT=9002", empty[] = "SMCP_EXEC_WAIT=";
    char *env[] = {port, empty, NULL};
    environ = env;
    assert_int_equal(settings_load(&s, env_file("SMCP_PORT=9001\nSMCP_EXEC_WAIT=7\n"), &e), 0);
    environ = empty_env;
    assert_int_equal(s.port, 9002);
    assert_int_equal(s.exec_wait, 7); /* set but empty does not count */
}

static void env_file_by_variable(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    _cleanup_settings_ struct settings s;
    char var[256];
    (void)snprintf(var, sizeof var, "SMCP_ENV_FILE=%s", env_file("SMCP_PORT=9003\n"));
    char *env[] = {var, NULL};
    environ = env;
    assert_int_equal(settings_load(&s, NULL, &e), 0);
    environ = empty_env;
    assert_int_equal(s.port, 9003);
}

static void workers_must_fit(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct settings s;
    char *path = env_file("SMCP_WORKERS_MIN=8\nSMCP_WORKERS_MAX=7\n");
    assert_int_equal(settings_load(&s, path, &e), -1);
    assert_non_null(strstr(e.msg, "SMCP_WORKERS_MAX=7"));
    assert_non_null(strstr(e.msg, "SMCP_WORKERS_MIN"));
}

static const struct {
    int line;
    const char *text;
    int64_t v; /* -1: refused */
} sizes[] = {
    {ROW, "0", 0},        {ROW, "1048576", 1 << 20},
    {ROW, "1k", 1024},    {ROW, "1K", 1024},
    {ROW, "2kb", 2048},   {ROW, "2KiB", 2048},
    {ROW, "2Ki", 2048},   {ROW, "3m", 3 << 20},
    {ROW, "1g", 1 << 30}, {ROW, "1t", (int64_t)1 << 40},
    {ROW, "", -1},        {ROW, "k", -1},
    {ROW, "1kk", -1},     {ROW, "1 k", -1},
    {ROW, "1kbb", -1},    {ROW, " 1", -1},
    {ROW, "1b", -1},      {ROW, "9007199254740992k", -1},
};

static void parses_sizes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        int64_t v = -1;
        int r = settings_parse_bytes(sizes[i].text, &v);
        row_true(sizes[i].line, (r == 0) == (sizes[i].v >= 0));
        row_true(sizes[i].line, v == sizes[i].v);
    }
}

static void secrets_are_not_printed(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    _cleanup_settings_ struct settings s;
    _cleanup_buf_ struct buf out = BUF_INIT(100000);
    const char *path = env_file("SMCP_TOKEN=hunter2hunter2hunter2\nSMCP_SIGNING_KEY=swordfish\n");
    assert_int_equal(settings_load(&s, path, &e), 0);
    settings_print(&s, &out);
    assert_null(strstr(out.p, "hunter2"));
    assert_null(strstr(out.p, "swordfish"));
    assert_non_null(strstr(out.p, "SMCP_TOKEN=(set)\n"));
    assert_non_null(strstr(out.p, "SMCP_SIGNING_KEY=(set)\n"));
    assert_non_null(strstr(out.p, "SMCP_PORT=8000\n"));
}

/* What is printed can be read again and gives the same. */
static void printed_settings_can_be_loaded(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    _cleanup_settings_ struct settings s, again;
    _cleanup_buf_ struct buf out = BUF_INIT(100000), out2 = BUF_INIT(100000);
    assert_int_equal(settings_load(&s, env_file("SMCP_CPUS=0.25\nSMCP_MEM_LIMIT=9m\n"), &e), 0);
    settings_print(&s, &out);
    assert_int_equal(settings_load(&again, env_file(out.p), &e), 0);
    settings_print(&again, &out2);
    assert_string_equal(out.p, out2.p);
}

/* Each line of .env.example is a comment, and with the '#' off it is accepted. */
static void env_example_is_valid(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    _cleanup_settings_ struct settings s;
    _cleanup_buf_ struct buf out = BUF_INIT(100000);
    settings_env_example(&out);
    assert_int_equal(settings_load(&s, env_file(out.p), &e), 0);
    unsigned rows = 0;
    for (char *p = out.p; (p = strstr(p, "\n#SMCP_")); rows++)
        p[1] = ' ';
    settings_release(&s);
    assert_true(rows > 30);
    assert_int_equal(settings_load(&s, env_file(out.p), &e), 0);
    assert_int_equal(s.port, 8000);
}

static void token_from_its_file(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    _cleanup_settings_ struct settings s;
    char text[300], token[128];
    (void)snprintf(token, sizeof token, "%s/token", tmp_dir);
    (void)snprintf(text, sizeof text, "SMCP_STATE_DB=%s/state.db\n", tmp_dir);
    assert_int_equal(settings_load(&s, env_file(text), &e), 0);

    assert_int_equal(settings_load_token(&s, &e), -1); /* none there */
    assert_non_null(strstr(err_fix_text(&e), "make up"));

    tmp_write(token, "0123456789abcdef0123456789abcdef\n", 0644);
    assert_int_equal(settings_load_token(&s, &e), -1); /* others may read it */
    assert_non_null(strstr(e.msg, "chmod 600"));

    tmp_write(token, "short\n", 0600);
    assert_int_equal(settings_load_token(&s, &e), -1);
    assert_non_null(strstr(e.msg, "16"));
    free(s.token);
    s.token = xstrdup("");

    tmp_write(token, "0123456789abcdef0123456789abcdef\n", 0600);
    assert_int_equal(settings_load_token(&s, &e), 0);
    assert_string_equal(s.token, "0123456789abcdef0123456789abcdef");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(defaults, env_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(bad_values_are_named, env_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(env_file_forms, env_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(mistyped_names_are_told, env_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(env_file_errors_say_the_line, env_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(the_environment_wins, env_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(env_file_by_variable, env_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(workers_must_fit, env_setup, tmp_teardown),
        cmocka_unit_test(parses_sizes),
        cmocka_unit_test_setup_teardown(secrets_are_not_printed, env_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(printed_settings_can_be_loaded, env_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(env_example_is_valid, env_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(token_from_its_file, env_setup, tmp_teardown),
    };
    return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}
