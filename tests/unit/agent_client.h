/*
 * agent_client.h - a runner for tests: starts the real sandbox-agent and talks frames with it.
 *
 * Place:    the agent runs as PID 1 of a pid namespace of its own, with its own /proc, in a
 *           temporary directory, and dies with the test program.
 * Binary:   the environment variable AGENT, else sandbox-agent of the same build.
 * Failure:  whatever goes wrong fails the test at once; nothing waits longer than PATIENCE_MS.
 */
#ifndef SMCP_TEST_AGENT_CLIENT_H
#define SMCP_TEST_AGENT_CLIENT_H

#include "common/base.h"

#include "common/wire.h"
#include "tests/unit/support.h"

#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#define PATIENCE_MS 15000

struct agent {
    pid_t keeper; /* our child; the agent is its child */
    pid_t pid;    /* of the agent, seen from here */
    int fd;
    uint32_t stream; /* the last one used */
    unsigned char in[WIRE_HEADER + WIRE_MAX_PAYLOAD];
    size_t have;
};

struct got {
    struct wire_header h;
    unsigned char p[WIRE_MAX_PAYLOAD + 1];
};

static struct agent agent;
static struct got got;
static const char *agent_binary = "build/debug/sandbox-agent";

static inline void agent_find(const char *argv0)
{
    static char path[PATH_MAX];
    const char *slash = strrchr(argv0, '/');
    (void)snprintf(path, sizeof path, "%.*s/../sandbox-agent", slash ? (int)(slash - argv0) : 1,
                   slash ? argv0 : ".");
    if (access(path, X_OK) == 0)
        agent_binary = path;
    if (getenv("AGENT"))
        agent_binary = getenv("AGENT");
}

static inline uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

static inline void nap_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* --- starting and stopping --- */

static inline void agent_keeper(int report, const char *any_peer)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) || mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL))
        _exit(90);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (mount("proc", "/proc", "proc", 0, NULL))
            _exit(91);
        execl(agent_binary, "sandbox-agent", "--socket-dir", tmp_dir, any_peer, (char *)NULL);
        _exit(92);
    }
    int status = 0;
    if (write(report, &pid, sizeof pid) != sizeof pid || waitpid(pid, &status, 0) != pid)
        _exit(93);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
}

static inline void agent_connect(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    (void)snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", tmp_dir, WIRE_SOCKET);
    uint64_t until = now_ms() + PATIENCE_MS;
    agent.have = 0;
    agent.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(agent.fd >= 0);
    while (connect(agent.fd, (const struct sockaddr *)&a, sizeof a)) {
        if (now_ms() > until)
            fail_msg("no connection to %s: %s", a.sun_path, strerror(errno));
        nap_ms(1);
    }
}

static inline void send_frame(uint8_t type, unsigned flags, uint32_t stream, const void *p,
                              size_t n)
{
    unsigned char head[WIRE_HEADER];
    struct wire_header h = {(uint32_t)n, type, (uint8_t)flags, stream};
    wire_header_put(head, &h);
    assert_int_equal(send(agent.fd, head, sizeof head, MSG_NOSIGNAL), sizeof head);
    for (size_t at = 0; at < n;) {
        ssize_t k = send(agent.fd, (const char *)p + at, n - at, MSG_NOSIGNAL);
        assert_true(k > 0);
        at += (size_t)k;
    }
}

/* False when the agent has closed the connection. */
static inline bool try_frame(void)
{
    for (;;) {
        if (agent.have >= WIRE_HEADER) {
            assert_int_equal(wire_header_get(agent.in, &got.h), 0);
            size_t n = WIRE_HEADER + got.h.length;
            if (agent.have >= n) {
                memcpy(got.p, agent.in + WIRE_HEADER, got.h.length);
                got.p[got.h.length] = 0;
                agent.have -= n;
                memmove(agent.in, agent.in + n, agent.have);
                return true;
            }
        }
        struct pollfd p = {.fd = agent.fd, .events = POLLIN};
        if (poll(&p, 1, PATIENCE_MS) != 1)
            fail_msg("the agent says nothing");
        ssize_t k = recv(agent.fd, agent.in + agent.have, sizeof agent.in - agent.have, 0);
        if (k <= 0)
            return false;
        agent.have += (size_t)k;
    }
}

static inline void next_frame(void)
{
    if (!try_frame())
        fail_msg("the agent closed the connection");
}

/* Nothing comes within this time. */
static inline void expect_silence(int ms)
{
    struct pollfd p = {.fd = agent.fd, .events = POLLIN};
    assert_int_equal(agent.have, 0);
    assert_int_equal(poll(&p, 1, ms), 0);
}

static inline void hello(void)
{
    unsigned char b[32];
    send_frame(WIRE_HELLO, 0, 0, b, wire_number_put(b, WT_VERSION, WIRE_VERSION));
    next_frame();
    assert_int_equal(got.h.type, WIRE_HELLO_ACK);
}

static inline void reconnect(void)
{
    close(agent.fd);
    agent_connect();
    hello();
}

static inline int agent_start(void **state, const char *any_peer)
{
    int p[2];
    if (tmp_setup(state) || pipe2(p, O_CLOEXEC))
        return -1;
    memset(&agent, 0, sizeof agent);
    agent.keeper = fork();
    if (agent.keeper == 0)
        agent_keeper(p[1], any_peer);
    if (read(p[0], &agent.pid, sizeof agent.pid) != sizeof agent.pid)
        return -1;
    close(p[0]);
    close(p[1]);
    agent_connect();
    hello();
    return 0;
}

static inline int agent_setup(void **state)
{
    return agent_start(state, "--any-peer");
}

static inline int agent_teardown(void **state)
{
    int status;
    close(agent.fd);
    if (agent.pid)
        kill(agent.pid, SIGKILL);
    waitpid(agent.keeper, &status, 0);
    return tmp_teardown(state);
}

/* --- fields --- */

/* A number of the frame at hand, or 0. */
static inline uint64_t got_number(enum wire_tag tag)
{
    struct wire_field f;
    size_t pos = 0;
    uint64_t v = 0;
    while (wire_field_next(got.p, got.h.length, &pos, &f) > 0)
        if (f.tag == tag)
            assert_int_equal(wire_number(&f, &v), 0);
    return v;
}

/* A text of the frame at hand, or "". Good until the next call. */
static inline const char *got_text(enum wire_tag tag)
{
    static char text[WIRE_MAX_PAYLOAD + 1];
    struct wire_field f;
    size_t pos = 0;
    text[0] = 0;
    while (wire_field_next(got.p, got.h.length, &pos, &f) > 0)
        if (f.tag == tag) {
            memcpy(text, f.p, f.n);
            text[f.n] = 0;
        }
    return text;
}

static unsigned char req[WIRE_MAX_MESSAGE];
static size_t req_len;

static inline void put_text(enum wire_tag tag, const char *s)
{
    req_len += wire_field_put(req + req_len, tag, s, (uint32_t)strlen(s));
}

static inline void put_number(enum wire_tag tag, uint64_t v)
{
    req_len += wire_number_put(req + req_len, tag, v);
}

/* Send the fields put so far, in as many frames as it takes. */
static inline void send_request(uint8_t type, uint32_t stream)
{
    size_t at = 0;
    do {
        size_t n = MIN(req_len - at, WIRE_MAX_PAYLOAD);
        send_frame(type, at + n < req_len ? WIRE_F_MORE : 0, stream, req + at, n);
        at += n;
    } while (at < req_len);
    req_len = 0;
}

static inline void send_offset(uint8_t type, uint32_t stream, uint64_t v)
{
    unsigned char b[8];
    wire_u64_put(b, v);
    send_frame(type, 0, stream, b, sizeof b);
}

/* --- runs --- */

struct result {
    bool started, failed;
    uint64_t code, sig, left, offset, timed_out, stopped, pid;
    uint64_t error;
    char text[1200];
    char out[300000], err[4096];
    size_t out_len, err_len;
    uint64_t next; /* offset of the next byte of output */
};

static struct result res;

/* More fields may be put before start_run(). */
static inline void put_command(const char *command)
{
    put_text(WT_COMMAND, command);
}

static inline uint32_t start_run(void)
{
    char id[32];
    uint32_t stream = ++agent.stream;
    (void)snprintf(id, sizeof id, "run-%u", stream);
    put_text(WT_RUN_ID, id);
    send_request(WIRE_RUN, stream);
    memset(&res, 0, sizeof res);
    return stream;
}

static inline void keep(char *to, size_t *len, size_t size, const unsigned char *p, size_t n)
{
    size_t k = MIN(n, size - 1 - *len);
    memcpy(to + *len, p, k);
    *len += k;
    to[*len] = 0;
}

static inline void take_output(void)
{
    uint64_t offset = wire_u64_get(got.p);
    size_t n = got.h.length - 8;
    assert_int_equal(offset, res.next); /* without a gap */
    res.next += n;
    if (got.h.flags & WIRE_F_STDERR)
        keep(res.err, &res.err_len, sizeof res.err, got.p + 8, n);
    else
        keep(res.out, &res.out_len, sizeof res.out, got.p + 8, n);
}

static inline void take_end(void)
{
    res.failed = got.h.type == WIRE_FAILED;
    res.code = got_number(WT_EXIT_CODE);
    res.sig = got_number(WT_SIGNAL);
    res.left = got_number(WT_LEFT);
    res.offset = got_number(WT_OFFSET);
    res.timed_out = got_number(WT_TIMED_OUT);
    res.stopped = got_number(WT_STOPPED);
    res.error = got_number(WT_ERRNO);
    (void)snprintf(res.text, sizeof res.text, "%.1000s", got_text(WT_TEXT));
}

/* Take one frame; true when it ended the run of this stream. */
static inline bool step_run(uint32_t stream, bool ack)
{
    next_frame();
    if (got.h.stream != stream)
        return false;
    if (got.h.type == WIRE_STARTED) {
        res.started = true;
        res.pid = got_number(WT_PID);
    } else if (got.h.type == WIRE_OUTPUT) {
        take_output();
        if (ack)
            send_offset(WIRE_ACK, stream, res.next);
    }
    if (got.h.type != WIRE_EXIT && got.h.type != WIRE_FAILED)
        return false;
    take_end();
    return true;
}

static inline void finish_run(uint32_t stream)
{
    while (!step_run(stream, true))
        continue;
    if (!res.failed)
        assert_int_equal(res.offset, res.next);
    send_frame(WIRE_DONE, 0, stream, NULL, 0);
}

static inline void run(const char *command)
{
    put_command(command);
    finish_run(start_run());
}

/* Wait until a run has printed this much. */
static inline void until_output(uint32_t stream, uint64_t bytes)
{
    while (res.next < bytes)
        assert_false(step_run(stream, true));
}

#endif
