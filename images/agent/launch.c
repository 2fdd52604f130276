#include "images/agent/launch.h"

#include "images/agent/cgroup.h"
#include "images/agent/env.h"
#include "images/agent/fields.h"
#include "images/agent/pty.h"
#include "images/agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARG_STRING_MAX   131071u /* the kernel's limit for one argument, without its NUL */
#define GRACE_DEFAULT_MS 2000u

/* A long command is a script file; its first act is to close the descriptor it came by. */
#define SCRIPT_PATH "/proc/self/fd/3"
#define SCRIPT_HEAD "exec 3<&-;"

struct launch {
    struct run *run;
    const struct fields *f;
    struct spawn spawn;
    char **slots; /* one malloc: pointers first, strings behind them */
    struct arena arena;
    int pipe_in[2], pipe_out[2], pipe_err[2];
};

static void close_fd(int *fd)
{
    if (*fd > SPAWN_NULL)
        close(*fd);
    *fd = -1;
}

/* Free what only starting needed; what the run keeps has been set to -1. */
static void launch_release(struct launch *l)
{
    close_fd(&l->spawn.script);
    for (int i = 0; i < 2; i++) {
        close_fd(&l->pipe_in[i]);
        close_fd(&l->pipe_out[i]);
        close_fd(&l->pipe_err[i]);
    }
    free(l->slots);
}

static int refuse(struct launch *l, int error, const char *what, const char *name)
{
    sender_failed(l->run->stream, error, "%s%s%s: %s", what, name ? " " : "", name ? name : "",
                  strerror(error));
    return -1;
}

void launch_refused(struct run *r, int error, const char *text)
{
    sender_failed(r->stream, error, "%s: %s", text, strerror(error));
    run_free(r);
}

/* --- strings --- */

static int launch_memory(struct launch *l)
{
    /* Every string in a payload is preceded by six bytes of field header, so the payload's length
       covers each string with its NUL; what is not in the payload is short. */
    size_t slots = env_slots(l->f->envs) + l->f->args + 6;
    l->slots = malloc(slots * sizeof *l->slots + l->f->len + 256);
    if (!l->slots)
        return refuse(l, ENOMEM, "cannot start a process", NULL);
    l->arena = (struct arena){(char *)(l->slots + slots), 0};
    return 0;
}

static int launch_env(struct launch *l)
{
    const char *why = NULL;
    char **env = l->slots;
    if (l->f->envs > ENV_MAX)
        return refuse(l, E2BIG, "too many environment variables", NULL);
    if (env_build(env, &l->arena, l->f, l->run->id, l->run->pty, &why)) {
        sender_failed(l->run->stream, EINVAL, "an environment entry %s", why);
        return -1;
    }
    l->spawn.envp = env;
    return 0;
}

static int script_file(struct launch *l, const struct wire_field *command)
{
    int fd = memfd_create("command", MFD_CLOEXEC);
    l->spawn.script = fd;
    if (fd < 0 || write(fd, SCRIPT_HEAD, sizeof SCRIPT_HEAD - 1) < 0)
        return -1;
    for (size_t at = 0; at < command->n;) {
        ssize_t n = write(fd, command->p + at, command->n - at);
        if (n < 0)
            return -1;
        at += (size_t)n;
    }
    return 0;
}

static char *literal(const char *s)
{
    return (char *)(uintptr_t)s;
}

static int launch_command(struct launch *l, char **argv)
{
    const struct wire_field *c = &l->f->last[WT_COMMAND];
    size_t n = 0;
    if (memchr(c->p, 0, c->n))
        return refuse(l, EINVAL, "the command holds a NUL byte", NULL);
    argv[n++] = literal("sh");
    if (c->n > ARG_STRING_MAX) {
        if (script_file(l, c))
            return refuse(l, errno, "cannot keep the long command in memory", NULL);
        argv[n++] = literal(SCRIPT_PATH);
    } else {
        argv[n++] = literal("-c");
        /* Only where it is needed: a command that looks like an option of sh. */
        if (c->n && (c->p[0] == '-' || c->p[0] == '+'))
            argv[n++] = literal("--");
        argv[n++] = arena_string(&l->arena, c->p, c->n);
    }
    argv[n] = NULL;
    l->spawn.file = "/bin/sh";
    return 0;
}

static int launch_args(struct launch *l, char **argv)
{
    struct wire_field v;
    size_t pos = 0, n = 0;
    while (fields_each(l->f, WT_ARG, &pos, &v)) {
        if (memchr(v.p, 0, v.n))
            return refuse(l, EINVAL, "an argument holds a NUL byte", NULL);
        if (v.n > ARG_STRING_MAX)
            return refuse(l, E2BIG, "an argument is longer than 128 KiB", NULL);
        argv[n++] = arena_string(&l->arena, v.p, v.n);
    }
    argv[n] = NULL;
    l->spawn.file = argv[0];
    l->spawn.search = env_get(l->spawn.envp, "PATH");
    l->spawn.shell_argv = argv - 1;
    return 0;
}

static int launch_cwd(struct launch *l)
{
    const struct wire_field *c = &l->f->last[WT_CWD];
    static char path[PATH_MAX];
    if (!fields_has(l->f, WT_CWD) || !c->n)
        return 0;
    size_t n = c->p[0] == '/' ? 0 : sizeof AGENT_WORKSPACE;
    if (memchr(c->p, 0, c->n) || c->n + n >= sizeof path)
        return refuse(l, EINVAL, "the working directory is not a path", NULL);
    memcpy(path, AGENT_WORKSPACE "/", n);
    memcpy(path + n, c->p, c->n);
    path[n + c->n] = 0;
    l->spawn.cwd = path;
    return 0;
}

/* --- descriptors --- */

static int make_pipe(int p[2], int ours)
{
    if (pipe2(p, O_CLOEXEC))
        return -1;
    /* Per end: the command's own end must block as programs expect. */
    return fcntl(p[ours], F_SETFL, O_NONBLOCK | (ours ? O_WRONLY : O_RDONLY));
}

static int launch_terminal(struct launch *l)
{
    uint64_t rows = fields_number(l->f, WT_ROWS, 0), cols = fields_number(l->f, WT_COLS, 0);
    if (pty_open(&l->pipe_out[0], &l->pipe_in[1], &l->pipe_out[1]) ||
        pty_resize(l->pipe_out[0], rows, cols))
        return refuse(l, errno, "cannot open a terminal", NULL);
    l->spawn.in = l->spawn.out = l->spawn.err = l->pipe_out[1];
    l->spawn.tty = true;
    return 0;
}

static int launch_pipes(struct launch *l)
{
    struct run *r = l->run;
    if (make_pipe(l->pipe_out, 0) || make_pipe(l->pipe_err, 0) ||
        (r->in.mode == WIRE_STDIN_PIPE && make_pipe(l->pipe_in, 1)))
        return refuse(l, errno, "cannot make a pipe", NULL);
    if (r->in.mode == WIRE_STDIN_DATA && lseek(r->in.src.fd, 0, SEEK_SET) < 0)
        return refuse(l, errno, "cannot rewind the input", NULL);
    l->spawn.in = r->in.mode == WIRE_STDIN_PIPE   ? l->pipe_in[0]
                  : r->in.mode == WIRE_STDIN_DATA ? r->in.src.fd
                                                  : SPAWN_NULL;
    l->spawn.out = l->pipe_out[1];
    l->spawn.err = l->pipe_err[1];
    return 0;
}

static void give(int *from, struct source *to)
{
    to->fd = *from;
    *from = -1;
}

/* The process exists: its ends of the pipes are closed by launch_release(), ours go to the run. */
static int launch_hand_over(struct launch *l)
{
    struct run *r = l->run;
    if (r->in.mode == WIRE_STDIN_DATA)
        run_in_close(r);
    if (l->pipe_in[1] >= 0)
        give(&l->pipe_in[1], &r->in.src);
    give(&l->pipe_out[0], &r->pipe[0].src);
    if (l->pipe_err[0] >= 0)
        give(&l->pipe_err[0], &r->pipe[1].src);
    return run_out_watch(r);
}

/* --- starting --- */

static int refuse_at_limit(const struct launch *l)
{
    unsigned char b[512];
    char text[128];
    struct msg m;
    uint64_t now = 0, max = 0;
    bool known = cgroup_pids(&now, &max);
    int n = known ? snprintf(text, sizeof text,
                             "pids limit %" PRIu64 " reached (%" PRIu64 " in use)", max, now)
                  : snprintf(text, sizeof text, "cannot start a process: too many processes");
    msg_begin(&m, b, sizeof b);
    msg_number(&m, WT_ERRNO, EAGAIN);
    msg_bytes(&m, WT_TEXT, text, (size_t)n);
    if (known) {
        msg_number(&m, WT_PIDS_NOW, now);
        msg_number(&m, WT_PIDS_MAX, max);
    }
    sender_msg(&m, WIRE_FAILED, 0, l->run->stream);
    return -1;
}

static int refuse_spawn(struct launch *l)
{
    const struct spawn *s = &l->spawn;
    bool shell = fields_has(l->f, WT_COMMAND);
    if (s->step == SPAWN_CLONE && s->error == EAGAIN)
        return refuse_at_limit(l);
    if (s->step == SPAWN_CHDIR)
        return refuse(l, s->error, "cannot enter the directory", s->cwd);
    if (s->step == SPAWN_EXEC && s->error == ENOENT)
        return refuse(l, ENOENT, shell ? "this image has no shell" : "program not found", s->file);
    if (s->step == SPAWN_EXEC)
        return refuse(l, s->error, "cannot run", s->file);
    return refuse(l, s->error, "cannot start a process", NULL);
}

static int launch_spawn(struct launch *l)
{
    struct run *r = l->run;
    r->started_us = clock_us();
    r->grace_ms = fields_number(l->f, WT_GRACE_MS, GRACE_DEFAULT_MS);
    r->pid = spawn_start(&l->spawn);
    return r->pid < 0 ? refuse_spawn(l) : 0;
}

static int launch_prepare(struct launch *l)
{
    if (launch_memory(l) || launch_env(l) || launch_cwd(l))
        return -1;
    /* Behind the environment, one slot free in front for a shell that runs a script. */
    char **argv = l->slots + env_slots(l->f->envs) + 1;
    l->spawn.argv = argv;
    if (fields_has(l->f, WT_COMMAND) ? launch_command(l, argv) : launch_args(l, argv))
        return -1;
    return l->run->pty ? launch_terminal(l) : launch_pipes(l);
}

static void launch(struct run *r, const struct fields *f)
{
    struct launch l = {.run = r,
                       .f = f,
                       .spawn = {.script = -1},
                       .pipe_in = {-1, -1},
                       .pipe_out = {-1, -1},
                       .pipe_err = {-1, -1}};
    bool ok = !launch_prepare(&l) && !launch_spawn(&l);
    if (ok && launch_hand_over(&l))
        run_stop_tree(r, 9, 0); /* its output could not be watched */
    launch_release(&l);
    if (ok)
        run_started(r, fields_number(f, WT_TIMEOUT_MS, 0));
    else
        run_free(r);
}

/* --- the request --- */

static const char *request_fault(const struct fields *f, int *error)
{
    *error = EINVAL;
    if (!fields_has(f, WT_COMMAND) && !f->args)
        return "there is neither a command nor an argument";
    if (fields_number(f, WT_STDIN_MODE, 0) > WIRE_STDIN_PIPE)
        return "unknown stdin mode";
    *error = ENOSYS;
    if (fields_has(f, WT_SESSION))
        return "resident shells are not there yet"; /* a session would be looked up here */
    return NULL;
}

static void launch_collect(struct run *r, const unsigned char *payload, size_t n)
{
    r->in.src.fd = memfd_create("stdin", MFD_CLOEXEC);
    if (r->in.src.fd < 0 || queue_add(&r->request, payload, n))
        launch_refused(r, errno, "cannot collect the input");
}

int launch_request(uint32_t stream, const unsigned char *payload, size_t n)
{
    struct fields f;
    char id[WIRE_RUN_ID_MAX + 1];
    int error;
    if (!stream || fields_parse(payload, n, &f) || !fields_string(&f, WT_RUN_ID, id, sizeof id) ||
        !id[0])
        return -1;
    const char *fault = request_fault(&f, &error);
    if (run_by_stream(stream) || run_by_id(id)) {
        sender_failed(stream, EEXIST, "run %s is known already", id);
        return 0;
    }
    struct run *r = fault ? NULL : run_new(stream, id);
    if (!r) {
        sender_failed(stream, fault ? error : ENOMEM, "%s", fault ? fault : strerror(ENOMEM));
        return 0;
    }
    r->pty = fields_number(&f, WT_PTY, 0) != 0;
    r->in.mode = r->pty ? WIRE_STDIN_PIPE : (enum wire_stdin)fields_number(&f, WT_STDIN_MODE, 0);
    if (r->in.mode == WIRE_STDIN_DATA)
        launch_collect(r, payload, n);
    else
        launch(r, &f);
    return 0;
}

void launch_collected(struct run *r)
{
    struct fields f;
    struct queue request = r->request;
    r->request = (struct queue){0};
    if (!fields_parse(queue_head(&request), request.len, &f))
        launch(r, &f);
    queue_release(&request);
}
