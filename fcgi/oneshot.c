#include "fcgi/oneshot.h"

#include "common/clock.h"
#include "common/fs.h"
#include "fcgi/tools.h"

static int print(const struct buf *out, bool failed)
{
    struct err e = ERR_INIT;
    bool ok = fs_write_all(STDOUT_FILENO, out->p, out->len, &e) == 0 &&
              fs_write_all(STDOUT_FILENO, "\n", 1, &e) == 0;
    return ok && !failed ? 0 : 1;
}

static int print_error(const struct err *e)
{
    struct buf out = BUF_INIT(1 << 14);
    json_error(&out, e);
    int r = print(&out, true);
    buf_release(&out);
    return r;
}

static int run_call(struct call *c)
{
    int r = call_start(c);
    while (r == CALL_WAITS) {
        struct pollfd fds[RUNNER_POLL_FDS];
        struct runner *runner = &c->app->runner;
        size_t n = runner_poll(runner, fds);
        (void)poll(fds, n, runner_timeout(runner, clock_mono_us()));
        runner_dispatch(runner);
        if (call_ready(c))
            r = call_resume(c);
    }
    return print(&c->out, c->is_error);
}

static int find_tool(const struct app *app, const char *name, struct args *args,
                     const struct tool **ret, struct err *e)
{
    *ret = tools_find(name, app->toolsets, &args->renames);
    if (*ret)
        return 0;
    struct buf names = BUF_INIT(300);
    tools_names(app->toolsets, &names);
    err_set(e, ERR_NOTFOUND, "there is no tool \"%.60s\"", name);
    err_fix(e, "unknown_tool", "use one of: %s", names.p);
    buf_release(&names);
    return -1;
}

int oneshot_run(const struct settings *s, const char *name, const char *text)
{
    struct app app;
    struct err e = ERR_INIT;
    struct args args = {0};
    const struct tool *tool;
    _cleanup_json_ struct json *tree = NULL;
    if (app_init(&app, s, &e) < 0 || find_tool(&app, name, &args, &tool, &e) < 0 ||
        json_parse(text, strlen(text), &tree, &e) < 0)
        return print_error(&e);
    if (json_type(tree) != JSON_OBJECT) {
        err_set(&e, ERR_INVALID, "the arguments must be one JSON object");
        return print_error(&e);
    }
    args.obj = tree;
    struct call c;
    (void)signal(SIGPIPE, SIG_IGN);
    call_init(&c, &app, tool, args);
    int r = run_call(&c);
    call_release(&c);
    app_release(&app);
    return r;
}
