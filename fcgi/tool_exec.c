#include "fcgi/tool.h"

#include "common/text.h"

#define STREAM_WAIT_MS 3600000 /* longest that a progress stream is held open for one command */

static bool blank(const char *s)
{
    return s[strspn(s, " \t\r\n")] == '\0';
}

static int64_t milliseconds(const struct call *c, const char *name, int64_t seconds)
{
    return (int64_t)(args_number(&c->args, name, (double)seconds) * 1000);
}

/* What exec and run_background have in common. */
static int write_run(struct call *c, struct jw *w, int64_t timeout_ms)
{
    const char *sandbox = call_sandbox(c), *command = args_string(&c->args, "command", "");
    if (!sandbox)
        return -1;
    if (blank(command)) {
        err_set(&c->err, ERR_INVALID, "command is empty");
        return err_fix(&c->err, "invalid_argument", "give the shell command to run");
    }
    jw_kstring(w, "sandbox", sandbox);
    jw_kstring(w, "command", command);
    jw_kint(w, "timeout_ms", timeout_ms);
    jw_kstring(w, "workdir", args_string(&c->args, "workdir", NULL));
    jw_kstring(w, "stdin", args_string(&c->args, "stdin", NULL));
    jw_kstring(w, "run_id", args_string(&c->args, "run_id", NULL));
    jw_kstring(w, "name", args_string(&c->args, "name", NULL));
    return call_write_env(c, w);
}

int tool_exec(struct call *c)
{
    struct buf args = BUF_INIT(CALL_RESULT_MAX);
    struct jw w = JW_INIT(&args);
    int64_t timeout = milliseconds(c, "timeout", c->app->settings->exec_timeout);
    int64_t wait = milliseconds(c, "wait", c->app->settings->exec_wait);
    if (c->progress && !args_has(&c->args, "wait"))
        wait = MIN(timeout, (int64_t)STREAM_WAIT_MS);
    jw_object(&w);
    int r = write_run(c, &w, timeout);
    jw_kint(&w, "wait_ms", wait);
    if (c->progress)
        jw_kbool(&w, "progress", true);
    jw_end_object(&w);
    if (r == 0)
        r = call_ask(c, "exec", &args, wait, call_pass);
    buf_release(&args);
    return r;
}

int tool_run_background(struct call *c)
{
    struct buf args = BUF_INIT(CALL_RESULT_MAX);
    struct jw w = JW_INIT(&args);
    jw_object(&w);
    int r = write_run(c, &w, milliseconds(c, "timeout", c->app->settings->job_timeout));
    jw_end_object(&w);
    if (r == 0)
        r = call_ask(c, "run", &args, ASK_CREATE_MS, call_pass);
    buf_release(&args);
    return r;
}
