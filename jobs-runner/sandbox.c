#include "common/base.h"

#include "common/clock.h"
#include "common/layout.h"
#include "common/log.h"
#include "jobs-runner/housekeeper.h"
#include "jobs-runner/queries.h"
#include "jobs-runner/requests.h"
#include "jobs-runner/run.h"
#include "jobs-runner/sandbox_internal.h"

#include <search.h>

struct sandbox_want {
    struct sandbox_want *next;
    sandbox_done *done;
    void *arg;
    struct request *q;
    bool created;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

struct sandbox *sandbox_find(struct runner *r, const char *name)
{
    struct sandbox **found = tfind(name, &r->sandbox_index, by_name);
    return found ? *found : NULL;
}

static struct sandbox *add(struct runner *r, const char *name)
{
    struct sandbox *sb = xcalloc(1, sizeof *sb);
    (void)snprintf(sb->name, sizeof sb->name, "%s", name);
    sb->r = r;
    sb->pidfd = -1;
    sb->used_us = clock_mono_us();
    sb->next = r->sandboxes;
    if (sb->next)
        sb->next->prev = sb;
    r->sandboxes = sb;
    r->sandbox_count++;
    check(tsearch(sb, &r->sandbox_index, by_name));
    return sb;
}

static void drop(struct sandbox *sb)
{
    struct runner *r = sb->r;
    sandbox_disconnect(sb);
    docker_cancel(TAKE_PTR(sb->call));
    (void)tdelete(sb, &r->sandbox_index, by_name);
    if (sb->prev)
        sb->prev->next = sb->next;
    else
        r->sandboxes = sb->next;
    if (sb->next)
        sb->next->prev = sb->prev;
    r->sandbox_count--;
    free(sb->spec.env);
    free(sb->failure);
    free(sb);
}

void sandbox_spec_default(const struct runner *r, struct sandbox_spec *spec)
{
    const struct settings *c = r->cfg;
    *spec = (struct sandbox_spec){
        .cpus = c->cpus, .memory = c->mem_limit, .pids = c->pids_limit, .env = xstrdup("{}")};
    (void)snprintf(spec->image, sizeof spec->image, "%s", c->base_image);
    (void)snprintf(spec->network, sizeof spec->network, "%s", c->network);
    (void)snprintf(spec->runtime, sizeof spec->runtime, "%s", c->runtime);
}

int sandbox_new(struct runner *r, const char *name, const struct sandbox_spec *spec,
                struct sandbox **ret, struct err *e)
{
    if ((int64_t)r->sandbox_count >= r->cfg->max_sandboxes) {
        err_set(e, ERR_LIMIT, "%zu sandboxes exist, which is the limit", r->sandbox_count);
        return err_fix(e, "sandbox_limit",
                       "use an existing sandbox (list_sandboxes) or destroy_sandbox one that is no "
                       "longer needed; the owner may raise SMCP_MAX_SANDBOXES");
    }
    int64_t now = clock_real_ms();
    int64_t expires = spec->ttl_seconds ? now + spec->ttl_seconds * 1000 : 0;
    if (db_run(&r->db, Q_SANDBOX_INSERT, e,
               "ttdiittt"
               "iiII",
               name, spec->image, spec->cpus, spec->memory, spec->pids, spec->network,
               spec->runtime, spec->env, now, now, expires ? &expires : NULL,
               spec->ttl_seconds ? &spec->ttl_seconds : NULL) < 0)
        return -1;
    struct sandbox *sb = add(r, name);
    sb->spec = *spec;
    sb->spec.env = xstrdup(spec->env);
    sb->fresh = true;
    sb->created_at = sb->last_used = now;
    sb->expires_at = expires;
    *ret = sb;
    return 0;
}

int sandbox_new_default(struct runner *r, const char *name, struct sandbox **ret, struct err *e)
{
    struct sandbox_spec spec;
    sandbox_spec_default(r, &spec);
    int result = sandbox_new(r, name, &spec, ret, e);
    free(spec.env);
    return result;
}

void sandbox_set_heal(struct sandbox *sb, enum sandbox_heal heal, const char *fmt, ...)
{
    if (sb->heal == HEAL_RECREATED)
        return;
    sb->heal = heal;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(sb->heal_reason, sizeof sb->heal_reason, fmt, ap);
    va_end(ap);
    log_info("sandbox %s: %s", sb->name, sb->heal_reason);
}

void sandbox_tell_progress(struct sandbox *sb, const char *text)
{
    (void)snprintf(sb->progress, sizeof sb->progress, "%s", text);
    for (struct sandbox_want *w = sb->wants; w; w = w->next)
        if (w->q)
            request_progress(w->q, text, strlen(text));
}

int sandbox_store_state(struct sandbox *sb, const char *state, struct err *e)
{
    return db_run(&sb->r->db, Q_SANDBOX_STATE, e, "tt", state, sb->name);
}

/* Call back all who wait; they may ask again from within. */
static void serve(struct sandbox *sb, const struct err *e)
{
    struct sandbox_want *list = TAKE_PTR(sb->wants);
    struct sandbox_ready how = {.heal = sb->heal, .reason = sb->heal_reason};
    if (!e)
        sb->heal = HEAL_NONE;
    while (list) {
        struct sandbox_want *w = list;
        list = w->next;
        how.created = w->created;
        w->done(w->arg, sb, &how, e);
        free(w);
    }
}

static bool must_be_removed(const struct sandbox *sb)
{
    return sb->destroyers || sb->removing;
}

/* At rest: go on with what is asked of it. */
static void settle(struct sandbox *sb)
{
    if (must_be_removed(sb)) {
        sandbox_remove(sb);
        return;
    }
    if (sb->state == SB_READY)
        serve(sb, NULL);
    else if (sb->wants || runs_live_in(sb->r, sb->name))
        sandbox_look(sb);
}

static void rest(struct sandbox *sb, enum sandbox_state state)
{
    sb->state = state;
    settle(sb);
}

static void act_look(struct sandbox *sb, const struct err *e)
{
    (void)e;
    sandbox_look(sb);
}

static void act_work(struct sandbox *sb, const struct err *e)
{
    (void)e;
    settle(sb);
}

static void act_missing(struct sandbox *sb, const struct err *e)
{
    (void)e;
    sandbox_disconnect(sb);
    runs_lost(sb, "its container was removed");
    if (*sb->container)
        sandbox_set_heal(sb, HEAL_RECREATED,
                         "the container had been removed; this is a new one "
                         "with the same workspace");
    sb->container[0] = '\0';
    if (sb->wants)
        sandbox_create(sb);
    else
        rest(sb, SB_STOPPED);
}

static void act_exited(struct sandbox *sb, const struct err *e)
{
    (void)e;
    sandbox_disconnect(sb);
    runs_lost(sb, "its container stopped");
    if (sb->wants)
        sandbox_start(sb);
    else
        rest(sb, SB_STOPPED);
}

static void act_unpause(struct sandbox *sb, const struct err *e)
{
    (void)e;
    sandbox_set_heal(sb, HEAL_UNPAUSED, "the sandbox had been paused and was unpaused");
    runs_tell_heal(sb);
    sandbox_unpause(sb);
}

static void act_ready(struct sandbox *sb, const struct err *e);

static void act_connect(struct sandbox *sb, const struct err *e)
{
    if (sb->link && sb->ready) /* it was only paused */
        act_ready(sb, e);
    else
        sandbox_connect(sb);
}

static void act_pull(struct sandbox *sb, const struct err *e)
{
    (void)e;
    sandbox_pull(sb);
}

static void act_create(struct sandbox *sb, const struct err *e)
{
    (void)e;
    sandbox_create(sb);
}

static void act_start(struct sandbox *sb, const struct err *e)
{
    (void)e;
    sandbox_start(sb);
}

static void act_ready(struct sandbox *sb, const struct err *e)
{
    (void)e;
    struct err failed = ERR_INIT;
    sb->stopped_by_us = sb->fresh = sb->pulled = false;
    sb->name_tries = sb->starts = sb->stale_looks = 0;
    sb->progress[0] = '\0';
    if (sandbox_store_state(sb, "running", &failed) < 0)
        log_err(LOG_LEVEL_WARN, sb->name, &failed);
    rest(sb, SB_READY);
}

#define LOOK_AGAIN_US 2000000

static int on_look_again(sd_event_source *s, uint64_t usec, void *arg)
{
    (void)s;
    (void)usec;
    struct sandbox *sb = arg;
    timer_off(&sb->timer);
    sandbox_event(sb, EV_WORK, NULL);
    return 0;
}

static void act_fail(struct sandbox *sb, const struct err *e)
{
    sandbox_disconnect(sb);
    log_err(LOG_LEVEL_WARN, sb->name, e);
    sb->state = SB_UNKNOWN;
    sb->pulled = false;
    sb->name_tries = sb->starts = sb->stale_looks = 0;
    /* Docker being down says nothing about the container: its runs may well go on. */
    bool unknown = streq(err_code(e), "docker_down");
    if (!unknown)
        runs_lost(sb, e->msg);
    if (sb->fresh) { /* the next try may choose differently */
        sb->failure = xmalloc(sizeof *e);
        *sb->failure = *e;
        sandbox_destroy(sb, false, NULL);
        return;
    }
    serve(sb, e);
    if (unknown && runs_live_in(sb->r, sb->name))
        (void)timer_after(sb->r, &sb->timer, LOOK_AGAIN_US, on_look_again, sb);
}

/* Connection or container gone: look what is there when somebody cares. */
static void act_lost(struct sandbox *sb, const struct err *e)
{
    struct err failed = ERR_INIT;
    log_info("sandbox %s: %s", sb->name, e->msg);
    sandbox_disconnect(sb);
    /* What lists show until somebody needs it; a use finds out what really is. */
    if (sandbox_store_state(sb, "stopped", &failed) < 0)
        log_err(LOG_LEVEL_WARN, sb->name, &failed);
    rest(sb, SB_UNKNOWN);
}

/* Lost while connecting: see why, but not for ever. */
static void act_retry(struct sandbox *sb, const struct err *e)
{
    if (sb->starts++ > 3)
        act_fail(sb, e);
    else
        act_lost(sb, e);
}

static void act_stop(struct sandbox *sb, const struct err *e)
{
    (void)e;
    sandbox_halt(sb);
}

static void act_stopped(struct sandbox *sb, const struct err *e)
{
    (void)e;
    sandbox_disconnect(sb);
    rest(sb, SB_STOPPED);
}

static void act_not_stopped(struct sandbox *sb, const struct err *e)
{
    log_err(LOG_LEVEL_WARN, sb->name, e);
    rest(sb, SB_UNKNOWN);
}

static void answer_destroyers(struct sandbox *sb, const struct err *e)
{
    while (sb->destroyers) {
        struct request *q = sb->destroyers;
        sb->destroyers = q->state;
        if (e) {
            request_fail(q, e);
            continue;
        }
        struct buf b = BUF_INIT(512);
        struct jw w = JW_INIT(&b);
        jw_object(&w);
        jw_kstring(&w, "name", sb->name);
        jw_kbool(&w, "destroyed", true);
        jw_kbool(&w, "files_deleted", sb->delete_files);
        jw_end_object(&w);
        request_answer(q, &b);
    }
}

static bool has_no_row(struct sandbox *sb)
{
    struct err e = ERR_INIT;
    int n = db_row(&sb->r->db, Q_SANDBOX_LAST_USED, &e, "t", sb->name);
    db_done(&sb->r->db, Q_SANDBOX_LAST_USED);
    return n == 0;
}

void sandboxes_forget_unrecorded(struct runner *r)
{
    for (struct sandbox *sb = r->sandboxes, *next; sb; sb = next) {
        next = sb->next;
        if (sb->fresh && sb->state == SB_UNKNOWN && !sb->wants && has_no_row(sb))
            drop(sb);
    }
}

static struct sandbox_want **wants_end(struct sandbox *sb)
{
    struct sandbox_want **end = &sb->wants;
    while (*end)
        end = &(*end)->next;
    return end;
}

/*
 * Who asked for the name while it was being removed gets a fresh sandbox. The wants move as they
 * are: whoever waits holds a pointer to its own.
 */
static void hand_over(struct runner *r, const char *name, struct sandbox_want *wants)
{
    struct sandbox *fresh = sandbox_find(r, name);
    const struct sandbox_ready how = {.created = false};
    struct err e = ERR_INIT;
    if (!fresh && sandbox_new_default(r, name, &fresh, &e) == 0)
        wants->created = true;
    if (fresh) {
        *wants_end(fresh) = wants;
        sandbox_event(fresh, EV_WORK, NULL);
        return;
    }
    while (wants) {
        struct sandbox_want *w = wants;
        wants = w->next;
        w->done(w->arg, NULL, &how, &e);
        free(w);
    }
}

static int discard_leftovers(struct sandbox *sb, struct err *e)
{
    if (housekeeper_discard_sockets(sb->r, sb->name, e) < 0)
        return -1;
    if (sb->delete_files && housekeeper_discard(sb->r, sb->name, e) < 0)
        return -1;
    /* A new sandbox of this name begins without the run_ids of the old one. */
    if (db_run(&sb->r->db, Q_RUN_FREE_IDS, e, "t", sb->name) < 0)
        return -1;
    return db_run(&sb->r->db, Q_SANDBOX_DELETE, e, "t", sb->name);
}

static void act_removed(struct sandbox *sb, const struct err *e)
{
    (void)e;
    struct err failed = ERR_INIT;
    runs_lost(sb, "the sandbox was destroyed");
    if (discard_leftovers(sb, &failed) < 0) {
        sandbox_event(sb, EV_FAILED, &failed);
        return;
    }
    log_info("sandbox %s: removed%s", sb->name, sb->delete_files ? " with its files" : "");
    answer_destroyers(sb, NULL);
    if (sb->failure)
        serve(sb, sb->failure);
    struct runner *r = sb->r;
    char name[64];
    memcpy(name, sb->name, sizeof name);
    struct sandbox_want *wants = TAKE_PTR(sb->wants);
    drop(sb);
    if (wants)
        hand_over(r, name, wants);
}

static void act_not_removed(struct sandbox *sb, const struct err *e)
{
    log_err(LOG_LEVEL_WARN, sb->name, e);
    sb->state = SB_UNKNOWN;
    answer_destroyers(sb, e);
    serve(sb, e);
}

typedef void action(struct sandbox *sb, const struct err *e);

// clang-format off
static action *const actions[SB_STATE_COUNT][EV_COUNT] = {
[SB_UNKNOWN]    = {[EV_WORK] = act_work},
[SB_LOOKING]    = {[EV_MISSING] = act_missing, [EV_EXITED] = act_exited, [EV_PAUSED] = act_unpause,
                   [EV_RUNNING] = act_connect, [EV_FAILED] = act_fail},
[SB_PULLING]    = {[EV_PULLED] = act_create, [EV_FAILED] = act_fail},
[SB_CREATING]   = {[EV_CREATED] = act_start, [EV_IMAGE_MISSING] = act_pull, [EV_FAILED] = act_fail},
[SB_STARTING]   = {[EV_STARTED] = act_look, [EV_MISSING] = act_missing, [EV_FAILED] = act_fail},
[SB_UNPAUSING]  = {[EV_UNPAUSED] = act_look, [EV_FAILED] = act_fail},
[SB_CONNECTING] = {[EV_CONNECTED] = act_ready, [EV_LOST] = act_retry, [EV_FAILED] = act_fail},
[SB_READY]      = {[EV_WORK] = act_work, [EV_LOST] = act_lost, [EV_STOP] = act_stop,
                   [EV_PAUSED] = act_unpause, [EV_FAILED] = act_lost},
[SB_STOPPING]   = {[EV_STOPPED] = act_stopped, [EV_FAILED] = act_not_stopped},
[SB_STOPPED]    = {[EV_WORK] = act_work},
[SB_REMOVING]   = {[EV_REMOVED] = act_removed, [EV_FAILED] = act_not_removed},
};
// clang-format on

/* A step of Docker's ended while somebody asked for removal: nothing else matters any more. */
static bool removal_goes_first(const struct sandbox *sb, enum sandbox_event ev)
{
    return must_be_removed(sb) && sb->state != SB_REMOVING && ev != EV_WORK && ev != EV_LOST;
}

void sandbox_event(struct sandbox *sb, enum sandbox_event ev, const struct err *e)
{
    if (removal_goes_first(sb, ev)) {
        sandbox_remove(sb);
        return;
    }
    action *act = actions[sb->state][ev];
    if (act)
        act(sb, e);
    else if (ev == EV_LOST)
        sandbox_disconnect(sb); /* the step under way finds out what is left */
}

struct sandbox_want *sandbox_need(struct sandbox *sb, bool created, struct request *q,
                                  sandbox_done *done, void *arg)
{
    struct sandbox_want *w = xcalloc(1, sizeof *w);
    *w = (struct sandbox_want){.done = done, .arg = arg, .q = q, .created = created};
    *wants_end(sb) = w;
    if (q && *sb->progress)
        request_progress(q, sb->progress, strlen(sb->progress));
    sandbox_event(sb, EV_WORK, NULL);
    return w;
}

void sandbox_unneed(struct sandbox *sb, struct sandbox_want *w)
{
    for (struct sandbox_want **p = &sb->wants; *p; p = &(*p)->next)
        if (*p == w) {
            *p = w->next;
            free(w);
            return;
        }
}

void sandbox_need_quietly(struct sandbox_want *w)
{
    w->q = NULL;
}

/* States in which no call to Docker is under way, or one that can be dropped. */
static bool can_remove_now(const struct sandbox *sb)
{
    return sb->state == SB_UNKNOWN || sb->state == SB_STOPPED || sb->state == SB_READY ||
           sb->state == SB_CONNECTING || sb->state == SB_PULLING;
}

void sandbox_destroy(struct sandbox *sb, bool delete_files, struct request *q)
{
    struct err e = ERR_INIT;
    if (q) {
        q->state = sb->destroyers;
        sb->destroyers = q;
    }
    sb->delete_files |= delete_files;
    sb->removing = true;
    if (sandbox_store_state(sb, "removing", &e) < 0) {
        act_not_removed(sb, &e);
        return;
    }
    if (can_remove_now(sb))
        sandbox_remove(sb);
}

void sandbox_stop(struct sandbox *sb)
{
    sandbox_event(sb, EV_STOP, NULL);
}

void sandbox_touch(struct sandbox *sb)
{
    struct err e = ERR_INIT;
    sb->last_used = clock_real_ms();
    sb->used_us = clock_mono_us();
    if (db_run(&sb->r->db, Q_SANDBOX_TOUCH, &e, "it", sb->last_used, sb->name) < 0)
        log_err(LOG_LEVEL_WARN, sb->name, &e);
}

void sandbox_forget_run(struct runner *r, const char *name, uint64_t link, uint32_t stream)
{
    struct sandbox *sb = sandbox_find(r, name);
    if (!sb || !sb->link || link_serial(sb->link) != link)
        return;
    (void)link_send(sb->link, WIRE_DONE, 0, stream, NULL, 0);
}

const char *sandbox_state_name(const struct sandbox *sb)
{
    switch (sb->state) {
    case SB_READY:
    case SB_CONNECTING:
        return "running";
    case SB_REMOVING:
        return "removing";
    case SB_PULLING:
    case SB_CREATING:
    case SB_STARTING:
    case SB_UNPAUSING:
        return "creating";
    case SB_UNKNOWN:
    case SB_LOOKING:
    case SB_STOPPING:
    case SB_STOPPED:
    case SB_STATE_COUNT:
        break;
    }
    return "stopped";
}

static int64_t stall_limit_us(void)
{
    return 1000000;
}

/* Once a second while an agent owes an answer: is its container paused? */
static int on_stall(sd_event_source *s, uint64_t usec, void *arg)
{
    (void)s;
    (void)usec;
    struct runner *r = arg;
    bool again = false;
    for (struct sandbox *sb = r->sandboxes; sb; sb = sb->next) {
        if (sb->state != SB_READY || !sb->unanswered)
            continue;
        again = true;
        if (clock_mono_us() - sb->sent_at >= stall_limit_us() && !sb->call)
            sandbox_check_paused(sb);
    }
    if (again)
        (void)timer_after(r, &r->stall_timer, stall_limit_us(), on_stall, r);
    else
        timer_off(&r->stall_timer);
    return 0;
}

void sandbox_sent(struct sandbox *sb)
{
    if (!sb->unanswered++)
        sb->sent_at = clock_mono_us();
    if (!sb->r->stall_timer)
        (void)timer_after(sb->r, &sb->r->stall_timer, stall_limit_us(), on_stall, sb->r);
}

void sandbox_heard(struct sandbox *sb)
{
    if (sb->unanswered)
        sb->unanswered--;
    sb->sent_at = clock_mono_us();
}

static void load_row(struct runner *r)
{
    struct db *db = &r->db;
    size_t q = Q_SANDBOX_ALL;
    struct sandbox *sb = add(r, db_text(db, q, 0));
    const char *state = db_text(db, q, 1);
    sb->removing = streq(state, "removing");
    sb->stopped_by_us = streq(state, "stopped");
    (void)snprintf(sb->container, sizeof sb->container, "%s", db_text(db, q, 2));
    sb->generation = db_int(db, q, 3);
    (void)snprintf(sb->spec.image, sizeof sb->spec.image, "%s", db_text(db, q, 4));
    sb->spec.cpus = db_real(db, q, 5);
    sb->spec.memory = db_int(db, q, 6);
    sb->spec.pids = db_int(db, q, 7);
    (void)snprintf(sb->spec.network, sizeof sb->spec.network, "%s", db_text(db, q, 8));
    (void)snprintf(sb->spec.runtime, sizeof sb->spec.runtime, "%s", db_text(db, q, 9));
    sb->spec.env = xstrdup(db_text(db, q, 10));
    sb->created_at = db_int(db, q, 12);
    sb->last_used = db_int(db, q, 13);
    sb->expires_at = db_int(db, q, 14);
    sb->spec.ttl_seconds = db_int(db, q, 15);
}

int sandboxes_load(struct runner *r, struct err *e)
{
    int n = db_row(&r->db, Q_SANDBOX_ALL, e, "");
    for (; n > 0; n = db_next(&r->db, Q_SANDBOX_ALL, e))
        load_row(r);
    if (n < 0)
        return -1;
    containers_reconcile(r);
    return 0;
}

void sandboxes_free(struct runner *r)
{
    while (r->sandboxes) {
        struct sandbox *sb = r->sandboxes;
        while (sb->wants)
            sandbox_unneed(sb, sb->wants);
        drop(sb);
    }
    timer_off(&r->stall_timer);
}
