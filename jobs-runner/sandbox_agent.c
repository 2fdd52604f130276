#include "common/base.h"

#include "common/layout.h"
#include "common/log.h"
#include "jobs-runner/run.h"
#include "jobs-runner/sandbox_internal.h"

#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/pidfd.h>

#define CONNECT_LIMIT_US 20000000
#define STALE_LOOK_US    20000
#define STALE_LOOKS      250

void sandbox_disconnect(struct sandbox *sb)
{
    if (sb->link)
        runs_unlinked(sb);
    sb->link = link_close(sb->link);
    sb->ready = false;
    sb->unanswered = 0;
    if (sb->pid_watch)
        sb->pid_watch = sd_event_source_disable_unref(sb->pid_watch);
    if (sb->dir_watch)
        sb->dir_watch = sd_event_source_disable_unref(sb->dir_watch);
    timer_off(&sb->timer);
    closep(&sb->pidfd);
    sb->pidfd = -1;
}

static void failed(struct sandbox *sb, const struct err *e)
{
    sandbox_event(sb, EV_FAILED, e);
}

static int on_exit_of_init(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    (void)s;
    (void)fd;
    (void)events;
    struct sandbox *sb = arg;
    struct err e = ERR_INIT;
    err_set(&e, ERR_UNAVAILABLE, "the container's init process ended");
    (void)sd_event_source_set_enabled(sb->pid_watch, SD_EVENT_OFF);
    sandbox_event(sb, EV_LOST, &e);
    return 0;
}

static void on_lost(void *arg, const struct err *why)
{
    sandbox_event(arg, EV_LOST, why);
}

static void hex(char *out, size_t room, const unsigned char *p, size_t n)
{
    out[0] = '\0';
    for (size_t i = 0; i < n && 2 * i + 3 <= room; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", p[i]);
}

static void take_boot(struct sandbox *sb, const struct wire_field *f)
{
    char boot[sizeof sb->boot];
    hex(boot, sizeof boot, f->p, f->n);
    if (*sb->boot && !streq(boot, sb->boot) && sb->heal == HEAL_NONE)
        sandbox_set_heal(sb, HEAL_RESTARTED, "the container had been restarted");
    memcpy(sb->boot, boot, sizeof boot);
}

static void take_run_state(struct sandbox *sb, const struct wire_field *list)
{
    struct run_report st = {.id = ""};
    struct wire_field f;
    size_t pos = 0;
    uint64_t v;
    while (wire_field_next(list->p, list->n, &pos, &f) > 0) {
        if (f.tag == WT_RUN_ID && f.n < sizeof st.id)
            memcpy(st.id, f.p, f.n);
        else if (f.tag == WT_STREAM && wire_number(&f, &v) == 0)
            st.stream = (uint32_t)v;
        else if (f.tag == WT_OFFSET && wire_number(&f, &v) == 0)
            st.offset = v;
        else if (f.tag == WT_RUNNING && wire_number(&f, &v) == 0)
            st.running = v != 0;
    }
    if (*st.id && st.stream)
        run_found(sb, &st);
}

static void on_hello(void *arg, const unsigned char *payload, size_t n)
{
    struct sandbox *sb = arg;
    struct wire_field f;
    size_t pos = 0;
    uint64_t v;
    int more;
    if (sb->ready)
        return;
    while ((more = wire_field_next(payload, n, &pos, &f)) > 0) {
        if (f.tag == WT_BOOT_ID)
            take_boot(sb, &f);
        else if (f.tag == WT_NEXT_STREAM && wire_number(&f, &v) == 0)
            link_set_next_stream(sb->link, (uint32_t)v);
    }
    for (pos = 0; more == 0 && wire_field_next(payload, n, &pos, &f) > 0;)
        if (f.tag == WT_RUN_STATE)
            take_run_state(sb, &f);
    sb->ready = true;
    timer_off(&sb->timer);
    if (sb->dir_watch)
        sb->dir_watch = sd_event_source_disable_unref(sb->dir_watch);
    runs_settled(sb);
    sandbox_event(sb, EV_CONNECTED, NULL);
}

/* True when the try is over: connected, or failed for good. */
static bool try_connect(struct sandbox *sb)
{
    const struct link_events ev = {.hello = on_hello, .lost = on_lost, .arg = sb};
    struct buf dir = BUF_INIT(PATH_MAX);
    struct err e = ERR_INIT;
    layout_socket_dir(sb->r->cfg, sb->name, &dir);
    int r = link_open(sb->r, dir.p, sb->init, &ev, &sb->link, &e);
    buf_release(&dir);
    if (r < 0 && e.kind == ERR_NOTFOUND)
        return false;
    if (r < 0)
        failed(sb, &e);
    return true;
}

static int on_dir_event(sd_event_source *s, const struct inotify_event *event, void *arg)
{
    (void)s;
    (void)event;
    struct sandbox *sb = arg;
    if (!sb->link && try_connect(sb) && sb->dir_watch)
        sb->dir_watch = sd_event_source_disable_unref(sb->dir_watch);
    return 0;
}

static int on_connect_limit(sd_event_source *s, uint64_t usec, void *arg)
{
    (void)s;
    (void)usec;
    struct sandbox *sb = arg;
    struct err e = ERR_INIT;
    err_set(&e, ERR_TIMEOUT, "the agent in the sandbox %s does not answer", sb->name);
    err_fix(&e, "agent_silent",
            "destroy_sandbox it (files stay) and call again; the owner finds "
            "more in the log of jobs-runner");
    failed(sb, &e);
    return 0;
}

static int watch_init(struct sandbox *sb, struct err *e)
{
    sb->pidfd = pidfd_open(sb->init, 0);
    if (sb->pidfd < 0)
        return err_sys(e, "cannot watch the container's init process");
    int r = sd_event_add_io(sb->r->loop, &sb->pid_watch, sb->pidfd, EPOLLIN, on_exit_of_init, sb);
    errno = -r;
    return r < 0 ? err_sys(e, "cannot watch the container's init process") : 0;
}

static int watch_dir(struct sandbox *sb, struct err *e)
{
    struct buf dir = BUF_INIT(PATH_MAX);
    layout_socket_dir(sb->r->cfg, sb->name, &dir);
    int r = sd_event_add_inotify(sb->r->loop, &sb->dir_watch, dir.p,
                                 IN_MOVED_TO | IN_CREATE | IN_ONLYDIR, on_dir_event, sb);
    buf_release(&dir);
    errno = -r;
    return r < 0 ? err_sys(e, "cannot watch the socket directory") : 0;
}

static int on_look_again(sd_event_source *s, uint64_t usec, void *arg)
{
    (void)s;
    (void)usec;
    sandbox_look(arg);
    return 0;
}

/* Docker learns of the end of a process a little later than the kernel: ask again soon. */
static bool look_again(struct sandbox *sb, const struct err *e)
{
    return e->sys == ESRCH && sb->stale_looks++ < STALE_LOOKS &&
           timer_after(sb->r, &sb->timer, STALE_LOOK_US, on_look_again, sb) == 0;
}

void sandbox_connect(struct sandbox *sb)
{
    struct err e = ERR_INIT;
    sandbox_disconnect(sb);
    sb->state = SB_CONNECTING;
    bool watched = watch_init(sb, &e) == 0;
    if (!watched && look_again(sb, &e))
        return;
    if (!watched || watch_dir(sb, &e) < 0 ||
        timer_after(sb->r, &sb->timer, CONNECT_LIMIT_US, on_connect_limit, sb) < 0) {
        if (!e.kind)
            err_set(&e, ERR_INTERNAL, "cannot set a timer");
        failed(sb, &e);
        return;
    }
    (void)try_connect(sb);
}
