#include "fcgi/tool.h"

#include "common/clock.h"
#include "common/text.h"
#include "fcgi/tools.h"

void call_init(struct call *c, struct app *app, const struct tool *tool, struct args args)
{
    *c = (struct call){.app = app, .tool = tool, .args = args, .err = ERR_INIT};
    buf_init(&c->out, CALL_RESULT_MAX);
    runner_request_init(&c->request);
}

void call_release(struct call *c)
{
    runner_request_release(&c->app->runner, &c->request);
    buf_release(&c->out);
}

/* Every way to an end comes through here: an error becomes its JSON object. */
static int settle(struct call *c, int result)
{
    if (result == CALL_DONE && buf_bad(&c->out))
        result = err_set(&c->err, ERR_LIMIT, "the result is larger than %zu bytes", c->out.max);
    if (result != CALL_FAILED)
        return result;
    buf_clear(&c->out);
    json_error(&c->out, &c->err);
    c->is_error = true;
    return CALL_DONE;
}

int call_start(struct call *c)
{
    int r = tools_validate(c->tool, &c->args, &c->err);
    if (r == 0)
        r = app_open(c->app, &c->err);
    return settle(c, r < 0 ? CALL_FAILED : c->tool->run(c));
}

bool call_ready(const struct call *c)
{
    return c->request.reply != REPLY_PENDING;
}

int call_resume(struct call *c)
{
    runner_taken(&c->app->runner, &c->request);
    return settle(c, c->next(c));
}

int call_ask(struct call *c, const char *kind, const struct buf *args, int64_t wait_ms,
             call_step *next)
{
    struct runner *r = &c->app->runner;
    if (buf_bad(args))
        return err_set(&c->err, ERR_LIMIT, "the arguments are too large");
    if (c->app->starts_runner && !runner_alive(r) && app_start_runner(c->app, &c->err) < 0)
        return CALL_FAILED;
    c->next = next;
    runner_request_release(r, &c->request);
    return runner_submit(r, &c->request, kind, args->p, wait_ms, &c->err) < 0 ? CALL_FAILED
                                                                              : CALL_WAITS;
}

int call_pass(struct call *c)
{
    if (c->request.reply == REPLY_NONE)
        return runner_no_reply(&c->app->runner, &c->request, &c->err);
    c->is_error = c->request.reply == REPLY_ERROR;
    size_t max = c->out.max;
    buf_release(&c->out);
    c->out = c->request.result; /* the text is handed over, not copied */
    c->out.max = max;
    buf_init(&c->request.result, RUNNER_RESULT_MAX);
    return CALL_DONE;
}

const char *call_sandbox(struct call *c)
{
    const char *name = args_string(&c->args, "sandbox", "default");
    if (text_sandbox_name(name))
        return name;
    struct buf shown = BUF_INIT(400);
    text_excerpt(&shown, name, strlen(name), 64);
    err_set(&c->err, ERR_INVALID, "the argument \"sandbox\" is \"%s\"", shown.p);
    err_fix(&c->err, "invalid_argument",
            "a name has 1 to 63 of the characters A-Z a-z 0-9 _ . - and starts with a letter or "
            "digit");
    buf_release(&shown);
    return NULL;
}

/* Models send numbers and booleans as values of variables: a variable is always a string. */
static int check_env_name(struct call *c, const char *name)
{
    if (*name && !strchr(name, '='))
        return 0;
    err_set(&c->err, ERR_INVALID, "env: \"%.60s\" is not accepted as a name", name);
    return err_fix(&c->err, "invalid_argument",
                   "give each variable a name that is not empty and has no '='");
}

int call_write_env(struct call *c, struct jw *w)
{
    const struct json *env = args_get(&c->args, "env");
    if (!env)
        return 0;
    for (const struct json *v = json_first(env); v; v = json_next(v))
        if (check_env_name(c, json_key(v)) < 0)
            return -1;
    struct buf text = BUF_INIT(1 << 10);
    jw_key(w, "env");
    jw_object(w);
    for (const struct json *v = json_first(env); v; v = json_next(v)) {
        buf_clear(&text);
        if (json_type(v) != JSON_STRING)
            json_print(v, &text);
        jw_kstring(w, json_key(v), json_type(v) == JSON_STRING ? json_string(v) : text.p);
    }
    jw_end_object(w);
    buf_release(&text);
    return 0;
}
