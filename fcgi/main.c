/* sandbox-mcp: the responder. This file reads the command line and chooses a face. */
#include "common/base.h"

#include "common/fs.h"
#include "common/log.h"
#include "common/settings.h"
#include "fcgi/cgi.h"
#include "fcgi/oneshot.h"
#include "fcgi/prefork.h"
#include "fcgi/stdio.h"
#include "fcgi/tools.h"

#include <sys/socket.h>

struct options {
    const char *env_file;
    const char *listen;
    const char *group;
    char **rest;
};

/* A face: what the program does. Returns the exit status. */
typedef int face(struct settings *s, const struct options *o);

static int fail(const struct err *e)
{
    (void)fprintf(stderr, "sandbox-mcp: %s\n  fix: %s\n", e->msg, err_fix_text(e));
    return 1;
}

static int print(struct buf *out)
{
    struct err e = ERR_INIT;
    int r = fs_write_all(STDOUT_FILENO, out->p, out->len, &e) < 0 ? fail(&e) : 0;
    buf_release(out);
    return r;
}

static bool listens(int fd)
{
    int on = 0;
    socklen_t n = sizeof on;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &n) == 0 && on;
}

/* systemd hands sockets over as fd 3 and on, to the process whose id it names. */
static bool systemd_socket(void)
{
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    char self[16];
    (void)snprintf(self, sizeof self, "%d", getpid());
    return pid && fds && streq(pid, self) && !streq(fds, "0") && listens(3);
}

static int find_socket(const struct options *o, struct err *e)
{
    if (o->listen)
        return prefork_listen(o->listen, o->group, e);
    if (systemd_socket())
        return 3;
    if (listens(STDIN_FILENO))
        return STDIN_FILENO;
    err_set(e, ERR_INVALID, "there is no socket to serve on");
    return err_fix(e, "usage",
                   "give --listen PATH, start it from a web server or systemd, or use "
                   "--stdio; see --help");
}

static int run_fastcgi(struct settings *s, const struct options *o)
{
    struct err e = ERR_INIT;
    if (settings_load_token(s, &e) < 0)
        return fail(&e);
    int fd = find_socket(o, &e);
    return fd < 0 ? fail(&e) : prefork_run(s, fd);
}

static int run_default(struct settings *s, const struct options *o)
{
    struct err e = ERR_INIT;
    if (o->listen || !cgi_is_asked())
        return run_fastcgi(s, o);
    return settings_load_token(s, &e) < 0 ? fail(&e) : cgi_run(s);
}

static int run_stdio(struct settings *s, const struct options *o)
{
    return stdio_run(s, o->env_file);
}

static int run_call(struct settings *s, const struct options *o)
{
    if (!o->rest[0]) {
        (void)fprintf(stderr, "sandbox-mcp: usage: sandbox-mcp call TOOL [JSON]\n");
        return 2;
    }
    return oneshot_run(s, o->rest[0], o->rest[1] ? o->rest[1] : "{}");
}

static int run_check(struct settings *s, const struct options *o)
{
    (void)o;
    struct buf out = BUF_INIT(1 << 16);
    settings_print(s, &out);
    return print(&out);
}

static int run_env_example(struct settings *s, const struct options *o)
{
    (void)s;
    (void)o;
    struct buf out = BUF_INIT(1 << 16);
    settings_env_example(&out);
    return print(&out);
}

static int run_config_docs(struct settings *s, const struct options *o)
{
    (void)s;
    (void)o;
    struct buf out = BUF_INIT(1 << 16);
    buf_adds(&out, "# Configuration\n\nGenerated: sandbox-mcp --config-docs\n\n");
    settings_markdown(&out);
    return print(&out);
}

static int run_tools_docs(struct settings *s, const struct options *o)
{
    (void)s;
    (void)o;
    struct buf out = BUF_INIT(1 << 18);
    tools_markdown(&out);
    return print(&out);
}

static int run_version(struct settings *s, const struct options *o)
{
    (void)s;
    (void)o;
    (void)puts("sandbox-mcp " SMCP_VERSION);
    return 0;
}

static face run_help;

enum takes { NOTHING, VALUE, REST };

/* needs: settings are loaded and checked first. A face with `run`, or a value for `offset`. */
static const struct option_row {
    const char *name;
    enum takes takes;
    size_t offset;
    face *run;
    bool needs;
    const char *help;
} rows[] = {
    {"--listen", VALUE, offsetof(struct options, listen), NULL, false,
     "PATH  serve FastCGI on this unix socket (default: the socket on fd 0, or systemd's)"},
    {"--socket-group", VALUE, offsetof(struct options, group), NULL, false,
     "NAME  group of that socket: the web server's"},
    {"--env-file", VALUE, offsetof(struct options, env_file), NULL, false,
     "FILE  read SMCP_* settings from this file; the environment wins"},
    {"--stdio", NOTHING, 0, run_stdio, true,
     "MCP over stdin and stdout, for a client on this machine"},
    {"call", REST, 0, run_call, true, "TOOL [JSON]  call one tool, print its result"},
    {"--check-config", NOTHING, 0, run_check, true, "check the settings and print them"},
    {"--env-example", NOTHING, 0, run_env_example, false, "print a commented env file"},
    {"--config-docs", NOTHING, 0, run_config_docs, false, "print docs/configuration.md"},
    {"--tools-docs", NOTHING, 0, run_tools_docs, true, "print docs/tools.md"},
    {"--version", NOTHING, 0, run_version, false, "print the version"},
    {"--help", NOTHING, 0, run_help, false, "print this"},
};

static int run_help(struct settings *s, const struct options *o)
{
    (void)s;
    (void)o;
    (void)puts(
        "sandbox-mcp: sandboxes for AI agents over MCP.\n"
        "Without an option: FastCGI on fd 0 or systemd's socket; CGI when called as such.\n");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        (void)printf("  %-15s %s\n", rows[i].name, rows[i].help);
    return 0;
}

static const struct option_row *find_row(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (streq(rows[i].name, name))
            return &rows[i];
    return NULL;
}

/* 0, or the exit status for wrong usage. */
static int parse(int argc, char **argv, struct options *o, const struct option_row **ret_face)
{
    for (int i = 1; i < argc; i++) {
        const struct option_row *row = find_row(argv[i]);
        if (!row || (row->takes == VALUE && i + 1 >= argc)) {
            (void)fprintf(stderr, "sandbox-mcp: %s %s; see --help\n", argv[i],
                          row ? "needs a value" : "is not an option");
            return 2;
        }
        if (row->takes == VALUE) {
            const char *value = argv[++i];
            memcpy((char *)o + row->offset, &value, sizeof value);
        } else {
            *ret_face = row;
        }
        if (row->takes == REST) {
            o->rest = argv + i + 1;
            return 0;
        }
    }
    return 0;
}

static int load(struct settings *s, const struct options *o, struct err *e)
{
    unsigned sets;
    if (settings_load(s, o->env_file, e) < 0)
        return -1;
    log_init("sandbox-mcp", (enum log_level)s->log_level);
    if (s->unknown)
        log_warn("env file: %s", s->unknown);
    return toolsets_parse(s->toolsets, &sets, e) < 0 ? -1 : tools_load(s, e);
}

int main(int argc, char **argv)
{
    static const struct option_row otherwise = {.run = run_default, .needs = true};
    const struct option_row *chosen = &otherwise;
    struct options o = {.rest = argv + argc};
    _cleanup_settings_ struct settings s = {0};
    struct err e = ERR_INIT;
    int r = parse(argc, argv, &o, &chosen);
    if (r)
        return r;
    if (chosen->needs && load(&s, &o, &e) < 0)
        return fail(&e);
    r = chosen->run(&s, &o);
    tools_unload();
    return r;
}
