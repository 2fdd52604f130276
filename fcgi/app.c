#include "fcgi/app.h"

#include "common/fs.h"
#include "common/layout.h"
#include "fcgi/queries.h"
#include "fcgi/tools.h"

#include <openssl/evp.h>

#define RUNNER_START_MS 5000

void app_sha256(const void *p, size_t n, unsigned char ret[APP_HASH])
{
    /* Looked up once: finding the algorithm costs more than the hash of a token. */
    static EVP_MD *sha256;
    static EVP_MD_CTX *ctx;
    if (!ctx) {
        sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
        ctx = EVP_MD_CTX_new();
        check(sha256 && ctx);
    }
    check(EVP_DigestInit_ex2(ctx, sha256, NULL) == 1 && EVP_DigestUpdate(ctx, p, n) == 1 &&
          EVP_DigestFinal_ex(ctx, ret, NULL) == 1);
}

int app_init(struct app *a, const struct settings *s, struct err *e)
{
    *a = (struct app){.settings = s, .db = DB_INIT, .runner = RUNNER_INIT};
    buf_init(&a->health_text, 1 << 16);
    app_sha256(s->token, strlen(s->token), a->token_hash);
    a->oauth = oauth_new(s);
    return toolsets_parse(s->toolsets, &a->toolsets, e);
}

void app_release(struct app *a)
{
    runner_close(&a->runner);
    db_close(&a->db);
    buf_release(&a->health_text);
    a->oauth = oauth_free(a->oauth);
}

int app_open(struct app *a, struct err *e)
{
    if (a->db.handle)
        return 0;
    if (layout_create(a->settings, e) < 0 ||
        db_open(&a->db, a->settings->state_db, queries, Q_COUNT, e) < 0)
        return -1;
    if (runner_open(&a->runner, a->settings, &a->db, e) == 0)
        return 0;
    runner_close(&a->runner);
    db_close(&a->db);
    return -1;
}

/*
 * In the child of app_start_runner: a daemon of its own. It must not hold our stdout or stderr,
 * whose ends a client waits for; it writes to RUN_DIR/jobs-runner.log.
 */
static _noreturn_ void become_runner(const char *program, const char *log, const char *env_file)
{
    (void)setsid();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (null < 0 || out < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
        dup2(out, STDERR_FILENO) < 0)
        _exit(126);
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)signal(SIGCHLD, SIG_DFL);
    const char *option = env_file ? "--env-file" : NULL;
    (void)execl(program, "jobs-runner", option, env_file, (char *)NULL);
    _exit(127);
}

static bool wait_for_runner(struct app *a)
{
    for (int ms = 0; ms < RUNNER_START_MS; ms += 20) {
        if (runner_alive(&a->runner))
            return true;
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    return false;
}

int app_start_runner(struct app *a, struct err *e)
{
    struct buf path = BUF_INIT(PATH_MAX), log = BUF_INIT(PATH_MAX);
    buf_addf(&log, "%s/jobs-runner.log", a->settings->run_dir);
    int r = fs_program_dir(&path, e);
    buf_adds(&path, "/jobs-runner");
    if (r == 0 && access(path.p, X_OK) < 0)
        r = err_sys(e, "cannot start %s", path.p);
    pid_t pid = r == 0 ? fork() : 0;
    if (r == 0 && pid == 0)
        become_runner(path.p, log.p, a->env_file);
    if (pid < 0)
        r = err_sys(e, "fork");
    buf_release(&path);
    buf_release(&log);
    if (r == 0 && !wait_for_runner(a))
        r = err_set(e, ERR_UNAVAILABLE, "the jobs-runner was started but does not listen");
    return r;
}
