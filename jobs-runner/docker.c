#include "jobs-runner/docker.h"

#include "common/text.h"

#include <curl/curl.h>
#include <sys/epoll.h>

struct docker_call {
    struct docker *d;
    struct docker_call *next;
    CURL *easy;
    char *path;
    char *body;
    const char *method;
    int64_t timeout_ms;
    docker_done *done;
    docker_line *on_line;
    void *arg;
    struct buf answer;
    char why[CURL_ERROR_SIZE];
};

struct docker {
    struct runner *r;
    CURLM *multi;
    struct curl_slist *headers;
    sd_event_source *timer;
    char version[16];
    struct docker_call *ping;    /* the negotiation in flight */
    struct docker_call *waiting; /* calls that wait for it */
};

static void begin(struct docker_call *c);

static struct docker_call *call_free(struct docker_call *c)
{
    if (c->easy) {
        (void)curl_multi_remove_handle(c->d->multi, c->easy);
        curl_easy_cleanup(c->easy);
    }
    buf_release(&c->answer);
    free(c->path);
    free(c->body);
    free(c);
    return NULL;
}

static void list_drop(struct docker_call **list, struct docker_call *c)
{
    for (; *list; list = &(*list)->next)
        if (*list == c) {
            *list = c->next;
            return;
        }
}

static void no_answer(struct err *e, const struct docker_call *c, const char *why)
{
    const char *sock = c->d->r->cfg->docker_socket;
    err_set(e, ERR_UNAVAILABLE, "Docker does not answer on %s: %s", sock, why);
    err_fix(e, "docker_down", "start Docker on the server ('make up' does), then call again");
}

static void finish(struct docker_call *c, long status, const struct err *e)
{
    struct docker_reply reply = {
        .status = status, .body = c->answer.p, .len = c->answer.len, .e = e};
    c->done(c->arg, &reply);
    call_free(c);
}

/* Lines of a streamed answer, each handed on and dropped. */
static void hand_lines(struct docker_call *c)
{
    char *nl;
    while ((nl = memchr(c->answer.p, '\n', c->answer.len))) {
        size_t n = (size_t)(nl - c->answer.p);
        if (n)
            c->on_line(c->arg, c->answer.p, n);
        buf_drop_front(&c->answer, n + 1);
    }
}

static size_t on_data(char *p, size_t size, size_t n, void *arg)
{
    struct docker_call *c = arg;
    buf_add(&c->answer, p, size * n);
    long status = 0;
    (void)curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    if (c->on_line && status < 300)
        hand_lines(c);
    return buf_bad(&c->answer) ? 0 : size * n;
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
    static const char name[] = "api-version:";
    struct docker *d = arg;
    size_t len = size * n;
    if (len > sizeof name && strncasecmp(p, name, sizeof name - 1) == 0) {
        const char *v = p + sizeof name - 1;
        size_t left = len - (sizeof name - 1);
        while (left && *v == ' ') {
            v++;
            left--;
        }
        size_t w = 0;
        while (w < left && w < sizeof d->version - 1 && strchr("0123456789.", v[w]) && v[w])
            w++;
        memcpy(d->version, v, w);
        d->version[w] = '\0';
    }
    return len;
}

static bool version_too_old(const char *v)
{
    int64_t minor;
    return strncmp(v, "1.", 2) != 0 || text_int(v + 2, 0, 1000, &minor) < 0 ||
           minor < DOCKER_API_MINIMUM;
}

static void on_ping(void *arg, const struct docker_reply *reply)
{
    struct docker *d = arg;
    d->ping = NULL;
    struct docker_call *list = TAKE_PTR(d->waiting);
    struct err e = ERR_INIT;
    if (reply->status == 0) {
        e = *reply->e;
    } else if (version_too_old(d->version)) {
        err_set(&e, ERR_UNAVAILABLE, "the Docker engine speaks API %s, at least 1.%d is needed",
                *d->version ? d->version : "(none)", DOCKER_API_MINIMUM);
        err_fix(&e, "docker_down", "install a newer Docker engine on the server");
    }
    if (e.kind)
        d->version[0] = '\0';
    while (list) {
        struct docker_call *c = list;
        list = c->next;
        c->next = NULL;
        if (e.kind)
            finish(c, 0, &e);
        else
            begin(c);
    }
}

static void set_options(struct docker_call *c, const char *url)
{
    CURL *h = c->easy;
    (void)curl_easy_setopt(h, CURLOPT_UNIX_SOCKET_PATH, c->d->r->cfg->docker_socket);
    (void)curl_easy_setopt(h, CURLOPT_URL, url);
    (void)curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(h, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, c->method);
    (void)curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_data);
    (void)curl_easy_setopt(h, CURLOPT_WRITEDATA, c);
    (void)curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_easy_setopt(h, CURLOPT_HEADERDATA, c->d);
    (void)curl_easy_setopt(h, CURLOPT_ERRORBUFFER, c->why);
    (void)curl_easy_setopt(h, CURLOPT_PRIVATE, c);
    (void)curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)c->timeout_ms);
    (void)curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, 5000L);
    if (!streq(c->method, "GET")) {
        (void)curl_easy_setopt(h, CURLOPT_POSTFIELDS, c->body ? c->body : "");
        (void)curl_easy_setopt(h, CURLOPT_HTTPHEADER, c->d->headers);
    }
}

static void begin(struct docker_call *c)
{
    struct buf url = BUF_INIT(8192);
    bool ping = c == c->d->ping;
    buf_addf(&url, "http://docker%s%s%s", ping ? "" : "/v", ping ? "" : c->d->version, c->path);
    c->easy = curl_easy_init();
    check(c->easy && !buf_bad(&url));
    set_options(c, url.p);
    buf_release(&url);
    check(curl_multi_add_handle(c->d->multi, c->easy) == CURLM_OK);
}

static struct docker_call *call_new(struct docker *d, const struct docker_request *q)
{
    struct docker_call *c = xcalloc(1, sizeof *c);
    c->d = d;
    c->path = xstrdup(q->path);
    c->body = q->body ? xstrdup(q->body) : NULL;
    c->method = q->method;
    c->timeout_ms = q->timeout_ms ? q->timeout_ms : 60000;
    c->done = q->done;
    c->on_line = q->on_line;
    c->arg = q->arg;
    buf_init(&c->answer, DOCKER_MAX_BODY);
    return c;
}

struct docker_call *docker_start(struct docker *d, const struct docker_request *q)
{
    struct docker_call *c = call_new(d, q);
    if (*d->version) {
        begin(c);
        return c;
    }
    c->next = d->waiting;
    d->waiting = c;
    if (!d->ping) {
        const struct docker_request ping = {
            .method = "GET", .path = "/_ping", .timeout_ms = 5000, .done = on_ping, .arg = d};
        d->ping = call_new(d, &ping);
        begin(d->ping);
    }
    return c;
}

void docker_cancel(struct docker_call *c)
{
    if (!c)
        return;
    list_drop(&c->d->waiting, c);
    call_free(c);
}

const char *docker_version(const struct docker *d)
{
    return d->version;
}

static void call_ended(struct docker_call *c, CURLcode code)
{
    long status = 0;
    struct err e = ERR_INIT;
    if (code == CURLE_OK) {
        (void)curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
        if (c->on_line && status < 300 && c->answer.len)
            c->on_line(c->arg, c->answer.p, c->answer.len);
    } else {
        no_answer(&e, c, *c->why ? c->why : curl_easy_strerror(code));
        if (code == CURLE_COULDNT_CONNECT)
            c->d->version[0] = '\0';
    }
    finish(c, status, &e);
}

static void collect(struct docker *d)
{
    CURLMsg *m;
    int left;
    while ((m = curl_multi_info_read(d->multi, &left))) {
        if (m->msg != CURLMSG_DONE)
            continue;
        char *priv = NULL;
        CURLcode code = m->data.result;
        (void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &priv);
        call_ended((struct docker_call *)(void *)priv, code);
    }
}

static int on_io(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    (void)s;
    struct docker *d = arg;
    int running, what = 0;
    if (events & (EPOLLIN | EPOLLHUP))
        what |= CURL_CSELECT_IN;
    if (events & EPOLLOUT)
        what |= CURL_CSELECT_OUT;
    if (events & EPOLLERR)
        what |= CURL_CSELECT_ERR;
    (void)curl_multi_socket_action(d->multi, fd, what, &running);
    collect(d);
    return 0;
}

static int on_timer(sd_event_source *s, uint64_t usec, void *arg)
{
    (void)s;
    (void)usec;
    struct docker *d = arg;
    int running;
    (void)curl_multi_socket_action(d->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    collect(d);
    return 0;
}

/* libcurl wants (or no longer wants) events of a socket. */
static int want_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    (void)easy;
    struct docker *d = arg;
    sd_event_source *s = socket_arg;
    if (what == CURL_POLL_REMOVE) {
        if (s)
            (void)sd_event_source_disable_unref(s);
        (void)curl_multi_assign(d->multi, fd, NULL);
        return 0;
    }
    uint32_t events = (what & CURL_POLL_IN ? (uint32_t)EPOLLIN : 0u) |
                      (what & CURL_POLL_OUT ? (uint32_t)EPOLLOUT : 0u);
    if (s)
        return sd_event_source_set_io_events(s, events) < 0 ? -1 : 0;
    if (sd_event_add_io(d->r->loop, &s, fd, events, on_io, d) < 0)
        return -1;
    (void)curl_multi_assign(d->multi, fd, s);
    return 0;
}

static int want_timer(CURLM *multi, long ms, void *arg)
{
    (void)multi;
    struct docker *d = arg;
    if (ms < 0) {
        if (d->timer)
            (void)sd_event_source_set_enabled(d->timer, SD_EVENT_OFF);
        return 0;
    }
    return timer_after(d->r, &d->timer, (int64_t)ms * 1000, on_timer, d);
}

int docker_new(struct runner *r, struct docker **ret, struct err *e)
{
    if (curl_global_init(CURL_GLOBAL_NOTHING) != CURLE_OK)
        return err_set(e, ERR_INTERNAL, "cannot start libcurl");
    struct docker *d = xcalloc(1, sizeof *d);
    d->r = r;
    d->multi = curl_multi_init();
    d->headers = curl_slist_append(NULL, "Content-Type: application/json");
    d->headers = curl_slist_append(d->headers, "Expect:");
    check(d->multi && d->headers);
    (void)curl_multi_setopt(d->multi, CURLMOPT_SOCKETFUNCTION, want_socket);
    (void)curl_multi_setopt(d->multi, CURLMOPT_SOCKETDATA, d);
    (void)curl_multi_setopt(d->multi, CURLMOPT_TIMERFUNCTION, want_timer);
    (void)curl_multi_setopt(d->multi, CURLMOPT_TIMERDATA, d);
    (void)curl_multi_setopt(d->multi, CURLMOPT_MAXCONNECTS, 8L);
    *ret = d;
    return 0;
}

struct docker *docker_free(struct docker *d)
{
    if (!d)
        return NULL;
    while (d->waiting)
        docker_cancel(d->waiting);
    (void)curl_multi_cleanup(d->multi);
    curl_slist_free_all(d->headers);
    timer_off(&d->timer);
    free(d);
    curl_global_cleanup();
    return NULL;
}

int docker_fail(struct err *e, const struct docker_reply *reply, const char *what)
{
    if (reply->status == 0) {
        *e = *reply->e;
        return err_wrap(e, "%s", what);
    }
    _cleanup_json_ struct json *j = NULL;
    struct err ignored = ERR_INIT;
    struct buf line = BUF_INIT(2048);
    const char *msg = NULL;
    if (json_parse(reply->body, reply->len, &j, &ignored) == 0)
        msg = json_get_string(j, "message", NULL);
    if (!msg)
        msg = reply->len ? reply->body : "no message";
    text_excerpt(&line, msg, strlen(msg), 300);
    enum err_kind kind = reply->status == 404   ? ERR_NOTFOUND
                         : reply->status == 409 ? ERR_CONFLICT
                         : reply->status == 400 ? ERR_INVALID
                                                : ERR_UNAVAILABLE;
    err_set(e, kind, "%s: Docker says: %s", what, line.p);
    buf_release(&line);
    return err_fix(e, "docker", "mend what Docker names, or ask the owner of the server");
}

void docker_escape(struct buf *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            strchr("-_.~", c))
            buf_addc(out, (char)c);
        else
            buf_addf(out, "%%%02X", c);
    }
}
