#include "fcgi/cgi.h"

#include "common/fs.h"
#include "common/log.h"
#include "fcgi/app.h"
#include "fcgi/http.h"
#include "fcgi/web.h"

static ssize_t face_read(void *ctx, void *p, size_t n)
{
    (void)ctx;
    ssize_t r;
    do
        r = read(STDIN_FILENO, p, n);
    while (r < 0 && errno == EINTR);
    return r;
}

static int face_write(void *ctx, const void *p, size_t n)
{
    (void)ctx;
    struct err e = ERR_INIT;
    return fs_write_all(STDOUT_FILENO, p, n, &e);
}

static int face_flush(void *ctx)
{
    (void)ctx;
    return 0;
}

static const struct http_face face = {face_read, face_write, face_flush};

bool cgi_is_asked(void)
{
    struct stat st;
    return getenv("GATEWAY_INTERFACE") && (fstat(STDIN_FILENO, &st) < 0 || !S_ISSOCK(st.st_mode));
}

int cgi_run(const struct settings *s)
{
    struct app app;
    struct err e = ERR_INIT;
    struct http h;
    if (app_init(&app, s, &e) < 0) {
        log_err(LOG_LEVEL_ERROR, "cgi", &e);
        return 1;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    http_init(&h, &face, NULL, environ, -1);
    web_serve(&app, &h);
    http_release(&h);
    app_release(&app);
    return 0;
}
