#include "images/agent/service.h"

#include "images/agent/fields.h"
#include "images/agent/files.h"
#include "images/agent/launch.h"
#include "images/agent/pty.h"
#include "images/agent/tree.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define GRACE_DEFAULT_MS 2000u
#define HELLO_FRAME      60000u /* a longer acknowledgement is split */

static unsigned char boot_id[16];

int service_init(void)
{
    return getrandom(boot_id, sizeof boot_id, 0) == (ssize_t)sizeof boot_id ? 0 : -1;
}

/* --- hello --- */

static void put_run_state(struct msg *m, const struct run *r)
{
    unsigned char b[256];
    struct msg state = {b, sizeof b, 0};
    msg_bytes(&state, WT_RUN_ID, r->id, strlen(r->id));
    msg_number(&state, WT_STREAM, r->stream);
    msg_number(&state, WT_OFFSET, r->ring.start);
    msg_number(&state, WT_SIZE, r->ring.end);
    msg_number(&state, WT_RUNNING, r->state == RUN_LIVE);
    msg_number(&state, WT_STDIN_OFFSET, r->in.received);
    msg_bytes(m, WT_RUN_STATE, b, state.n);
}

static int on_hello(const struct frame *f)
{
    static unsigned char b[HELLO_FRAME + 512];
    struct fields fields;
    struct msg m;
    if (fields_parse(f->p, f->n, &fields) || !fields_has(&fields, WT_VERSION))
        return -1;
    conn_greeted();
    msg_begin(&m, b, sizeof b);
    msg_number(&m, WT_VERSION, WIRE_VERSION);
    msg_bytes(&m, WT_BOOT_ID, boot_id, sizeof boot_id);
    msg_number(&m, WT_NEXT_STREAM, run_next_stream());
    for (const struct run *r = run_first(); r; r = r->next) {
        if (r->state == RUN_COLLECTING)
            continue;
        put_run_state(&m, r);
        if (m.n < HELLO_FRAME)
            continue;
        sender_msg(&m, WIRE_HELLO_ACK, WIRE_F_MORE, 0);
        msg_begin(&m, b, sizeof b);
    }
    sender_msg(&m, WIRE_HELLO_ACK, 0, 0);
    return 0;
}

static int on_ping(const struct frame *f)
{
    size_t at = 0;
    do {
        size_t n = min_size(f->n - at, WIRE_MAX_PAYLOAD);
        unsigned more = at + n < f->n ? WIRE_F_MORE : 0;
        sender_frame(WIRE_PONG, more, f->stream, f->p + at, n);
        at += n;
    } while (at < f->n);
    return 0;
}

/* --- runs --- */

static int on_run(const struct frame *f)
{
    return launch_request(f->stream, f->p, f->n);
}

static int on_stdin(const struct frame *f)
{
    struct run *r = run_by_stream(f->stream);
    if (!r)
        return 0; /* it ended, or never started, while these bytes were on their way */
    int result = run_in_frame(r, f->p, f->n, f->flags & WIRE_F_EOF);
    if (result > 0)
        launch_refused(r, errno, "cannot collect the input");
    else if (result == 0 && r->state == RUN_COLLECTING && r->in.eof)
        launch_collected(r);
    return result < 0 ? -1 : 0;
}

static void signal_run(struct run *r, const struct fields *f, int sig)
{
    if (fields_number(f, WT_TREE, 0)) {
        r->stopped |= r->state == RUN_LIVE;
        run_stop_tree(r, sig, fields_number(f, WT_GRACE_MS, GRACE_DEFAULT_MS));
    } else if (r->state == RUN_LIVE && kill(-r->pid, sig)) {
        sender_failed(r->stream, errno, "cannot signal run %s: %s", r->id, strerror(errno));
    }
}

/* The leftovers of a run that the agent has forgotten can still be found by the run's id. */
static void signal_forgotten(const struct fields *f, int sig)
{
    struct hunt_target target = {.main_gone = true};
    if (fields_string(f, WT_RUN_ID, target.run_id, sizeof target.run_id) && target.run_id[0])
        (void)hunt_start(&target, sig, fields_number(f, WT_GRACE_MS, GRACE_DEFAULT_MS), NULL, NULL);
}

static int on_signal(const struct frame *f)
{
    struct fields fields;
    if (fields_parse(f->p, f->n, &fields))
        return -1;
    uint64_t sig = fields_number(&fields, WT_SIGNAL, SIGTERM);
    struct run *r = run_by_stream(f->stream);
    if (sig < 1 || sig > 64)
        sender_failed(f->stream, EINVAL, "there is no such signal");
    else if (r && r->state == RUN_COLLECTING)
        launch_refused(r, ECANCELED, "stopped before it started");
    else if (r)
        signal_run(r, &fields, (int)sig);
    else if (fields_number(&fields, WT_TREE, 0) && fields_has(&fields, WT_RUN_ID))
        signal_forgotten(&fields, (int)sig);
    else
        sender_failed(f->stream, ESRCH, "there is no such run");
    return 0;
}

static int on_ack(const struct frame *f)
{
    struct run *r = run_by_stream(f->stream);
    if (f->n != 8)
        return -1;
    return r ? run_out_ack(r, wire_u64_get(f->p)) : 0;
}

static int on_attach(const struct frame *f)
{
    struct run *r = run_by_stream(f->stream);
    if (f->n != 8)
        return -1;
    if (!r)
        sender_failed(f->stream, ESRCH, "there is no such run");
    else if (run_out_attach(r, wire_u64_get(f->p)))
        sender_failed(f->stream, ERANGE, "the run has not produced that much");
    return 0;
}

static int on_done(const struct frame *f)
{
    struct run *r = run_by_stream(f->stream);
    if (r && r->state == RUN_ENDED)
        run_free(r);
    return 0;
}

static int on_resize(const struct frame *f)
{
    struct run *r = run_by_stream(f->stream);
    struct fields fields;
    if (fields_parse(f->p, f->n, &fields))
        return -1;
    if (r && r->pty && r->state == RUN_LIVE && r->pipe[0].src.fd >= 0)
        (void)pty_resize(r->pipe[0].src.fd, fields_number(&fields, WT_ROWS, 0),
                         fields_number(&fields, WT_COLS, 0));
    return 0;
}

/* A connection from the runner to a port or socket in here would begin at this place. */
static int on_dial(const struct frame *f)
{
    sender_failed(f->stream, ENOSYS, "connections into the sandbox are not there yet");
    return 0;
}

static void on_lost(void)
{
    run_lost_runner();
    files_lost_runner();
}

static const struct frame_handler first[WIRE_TYPE_COUNT] = {[WIRE_HELLO] = {on_hello, true}};

static const struct frame_handler rest[WIRE_TYPE_COUNT] = {
    [WIRE_HELLO] = {on_hello, true},
    [WIRE_RUN] = {on_run, true},
    [WIRE_STDIN] = {on_stdin, false},
    [WIRE_SIGNAL] = {on_signal, true},
    [WIRE_ACK] = {on_ack, false},
    [WIRE_ATTACH] = {on_attach, false},
    [WIRE_DONE] = {on_done, false},
    [WIRE_RESIZE] = {on_resize, true},
    [WIRE_PING] = {on_ping, true},
    [WIRE_FILE_READ] = {files_on_read, true},
    [WIRE_FILE_WRITE] = {files_on_write, true},
    [WIRE_FILE_DATA] = {files_on_data, false},
    [WIRE_FILE_LIST] = {files_on_list, true},
    [WIRE_DIAL] = {on_dial, true},
};

const struct conn_hooks service_hooks = {first, rest, on_lost};
