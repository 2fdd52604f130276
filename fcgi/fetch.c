#include "fcgi/fetch.h"

#include "common/clock.h"
#include "common/fs.h"
#include "common/json.h"
#include "common/settings.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define LIBCURL "libcurl.so.4"

/* --- libcurl, when it is needed ------------------------------------------------------------- */

struct curl_calls {
    CURLcode (*global_init)(long flags);
    CURL *(*init)(void);
    CURLcode (*setopt)(CURL *c, CURLoption option, ...);
    CURLcode (*perform)(CURL *c);
    CURLcode (*getinfo)(CURL *c, CURLINFO info, ...);
    void (*cleanup)(CURL *c);
    const char *(*strerror)(CURLcode code);
};

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
    {"curl_global_init", offsetof(struct curl_calls, global_init)},
    {"curl_easy_init", offsetof(struct curl_calls, init)},
    {"curl_easy_setopt", offsetof(struct curl_calls, setopt)},
    {"curl_easy_perform", offsetof(struct curl_calls, perform)},
    {"curl_easy_getinfo", offsetof(struct curl_calls, getinfo)},
    {"curl_easy_cleanup", offsetof(struct curl_calls, cleanup)},
    {"curl_easy_strerror", offsetof(struct curl_calls, strerror)},
};

static int load_curl(struct curl_calls *ret, struct err *e)
{
    void *lib = dlopen(LIBCURL, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
        void *f = lib ? dlsym(lib, symbols[i].name) : NULL;
        if (!f) {
            err_set(e, ERR_UNAVAILABLE, "cannot use " LIBCURL ": %.200s", dlerror());
            return err_fix(e, "config", "apt-get install libcurl4");
        }
        memcpy((char *)ret + symbols[i].offset, &f, sizeof f);
    }
    if (ret->global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return err_set(e, ERR_INTERNAL, "libcurl does not start");
    return 0;
}

/* --- one answer ----------------------------------------------------------------------------- */

static size_t take(char *p, size_t size, size_t n, void *arg)
{
    struct buf *out = arg;
    buf_add(out, p, size * n);
    return buf_bad(out) ? 0 : size * n;
}

/* The macros of curl.h check types; through a pointer they are our own care. */
#undef curl_easy_setopt
static void set_options(const struct curl_calls *curl, CURL *c, const char *url, struct buf *out)
{
    bool plain = strncmp(url, "http://", 7) == 0;
    (void)curl->setopt(c, CURLOPT_URL, url);
    (void)curl->setopt(c, CURLOPT_PROTOCOLS_STR, plain ? "http" : "https");
    (void)curl->setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    (void)curl->setopt(c, CURLOPT_SSL_VERIFYPEER, 1L);
    (void)curl->setopt(c, CURLOPT_SSL_VERIFYHOST, 2L);
    (void)curl->setopt(c, CURLOPT_TIMEOUT_MS, (long)FETCH_STEP_MS);
    (void)curl->setopt(c, CURLOPT_NOSIGNAL, 1L);
    (void)curl->setopt(c, CURLOPT_MAXFILESIZE, (long)FETCH_MAX);
    (void)curl->setopt(c, CURLOPT_USERAGENT, "sandbox-mcp/" SMCP_VERSION);
    (void)curl->setopt(c, CURLOPT_WRITEFUNCTION, take);
    (void)curl->setopt(c, CURLOPT_WRITEDATA, out);
    if (plain) /* this machine */
        (void)curl->setopt(c, CURLOPT_PROXY, "");
}

/* The HTTP status, or -1. */
static int get(const struct curl_calls *curl, const char *url, struct buf *out, struct err *e)
{
    if (!settings_url_ok(url))
        return err_set(e, ERR_UNAVAILABLE, "%.300s is not an https address", url);
    long status = 0;
    CURL *c = curl->init();
    check(c);
    buf_clear(out);
    set_options(curl, c, url, out);
    CURLcode code = curl->perform(c);
    (void)curl->getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    curl->cleanup(c);
    if (buf_bad(out))
        return err_set(e, ERR_UNAVAILABLE, "%.300s answers with more than %d bytes", url,
                       FETCH_MAX);
    if (code != CURLE_OK)
        return err_set(e, ERR_UNAVAILABLE, "%.300s: %s", url, curl->strerror(code));
    return (int)status;
}

/* --- the issuer's documents ----------------------------------------------------------------- */

/* RFC 8414: between host and path, and without a slash at the end. */
static void authorization_server(const char *issuer, size_t n, struct buf *out)
{
    const char *host = strstr(issuer, "://") + 3;
    size_t end = (size_t)(host - issuer) + strcspn(host, "/");
    buf_add(out, issuer, end);
    buf_adds(out, "/.well-known/oauth-authorization-server");
    if (n > end)
        buf_add(out, issuer + end, n - end);
}

static void openid(const char *issuer, size_t n, struct buf *out)
{
    buf_add(out, issuer, n);
    buf_adds(out, "/.well-known/openid-configuration");
}

static void (*const places[])(const char *issuer, size_t n, struct buf *out) = {
    authorization_server,
    openid,
};

/* The address of the keys from metadata. They speak for our issuer only if they say so. */
static int read_metadata(const char *issuer, const struct buf *text, struct buf *ret_url,
                         struct err *e)
{
    _cleanup_json_ struct json *j = NULL;
    if (json_parse(text->p, text->len, &j, e) < 0)
        return err_wrap(e, "the issuer's metadata");
    const struct json *name = json_get(j, "issuer"), *url = json_get(j, "jwks_uri");
    if (!name || json_type(name) != JSON_STRING || !streq(json_string(name), issuer))
        return err_set(e, ERR_UNAVAILABLE, "the issuer's metadata are those of another issuer");
    if (!url || json_type(url) != JSON_STRING)
        return err_set(e, ERR_UNAVAILABLE, "the issuer's metadata have no 'jwks_uri'");
    if (strncmp(issuer, "https://", 8) == 0 && strncmp(json_string(url), "https://", 8) != 0)
        return err_set(e, ERR_UNAVAILABLE, "the issuer's 'jwks_uri' is not an https address");
    buf_adds(ret_url, json_string(url));
    return 0;
}

static int discover(const struct curl_calls *curl, const char *issuer, struct buf *text,
                    struct buf *ret_url, struct err *e)
{
    size_t n = strlen(issuer);
    n -= issuer[n - 1] == '/';
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        struct buf url = BUF_INIT(4096);
        places[i](issuer, n, &url);
        int status = get(curl, url.p, text, e);
        buf_release(&url);
        if (status < 0)
            return -1;
        if (status == 200)
            return read_metadata(issuer, text, ret_url, e);
    }
    return err_set(e, ERR_UNAVAILABLE, "the issuer has no metadata under /.well-known/");
}

static int fetch(const char *issuer, struct buf *out, struct err *e)
{
    struct curl_calls curl;
    struct buf url = BUF_INIT(4096);
    if (load_curl(&curl, e) < 0)
        return -1;
    int status = discover(&curl, issuer, out, &url, e);
    if (status == 0)
        status = get(&curl, url.p, out, e);
    buf_release(&url);
    if (status < 0)
        return -1;
    return status == 200 ? 0 : err_set(e, ERR_UNAVAILABLE, "the key set: HTTP status %d", status);
}

/* --- the child ------------------------------------------------------------------------------ */

#define GOOD "+"
#define BAD  "-"

/* Sends a sign and the key set, or the message of the error. */
static _noreturn_ void be_fetcher(const char *issuer, int to)
{
    struct err e = ERR_INIT;
    struct buf out = BUF_INIT(FETCH_MAX);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* Nothing of the parent's: no listening socket, no client, no database. */
    if (dup2(to, STDIN_FILENO) < 0 || close_range(STDERR_FILENO + 1, ~0U, 0) < 0)
        _exit(1);
    bool good = fetch(issuer, &out, &e) == 0;
    const char *text = good ? out.p : e.msg;
    size_t n = good ? out.len : strlen(e.msg);
    if (fs_write_all(STDIN_FILENO, good ? GOOD : BAD, 1, &e) < 0 ||
        fs_write_all(STDIN_FILENO, text, n, &e) < 0)
        _exit(1);
    _exit(0);
}

/* Until the child closes its end. False when it was too slow or sent too much. */
static bool receive(int from, struct buf *out)
{
    int64_t until = clock_mono_us() + FETCH_ALL_MS * 1000LL;
    for (;;) {
        struct pollfd p = {.fd = from, .events = POLLIN};
        int64_t left = (until - clock_mono_us()) / 1000;
        if (left <= 0 || (poll(&p, 1, (int)left) < 0 && errno != EINTR))
            return false;
        if (!p.revents)
            continue;
        char piece[4096];
        ssize_t n = read(from, piece, sizeof piece);
        if (n <= 0)
            return n == 0 && !buf_bad(out);
        buf_add(out, piece, (size_t)n);
    }
}

/* The child is gone after this; how it ended, its sign has told (SIGCHLD may be ignored). */
static int finish(pid_t pid, bool complete, struct buf *out, struct err *e)
{
    if (!complete)
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (!complete)
        return err_set(e, ERR_UNAVAILABLE, "the issuer does not answer within %d s",
                       FETCH_ALL_MS / 1000);
    if (!out->len)
        return err_set(e, ERR_UNAVAILABLE, "the fetch broke off");
    if (*out->p != *GOOD)
        return err_set(e, ERR_UNAVAILABLE, "%.500s", out->p + 1);
    buf_drop_front(out, 1);
    return 0;
}

int fetch_keys(const char *issuer, struct buf *out, struct err *e)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(e, "pipe");
    pid_t pid = fork();
    if (pid == 0)
        be_fetcher(issuer, ends[1]);
    (void)close(ends[1]);
    if (pid < 0) {
        (void)close(ends[0]);
        return err_sys(e, "fork");
    }
    bool complete = receive(ends[0], out);
    (void)close(ends[0]);
    return finish(pid, complete, out, e);
}
