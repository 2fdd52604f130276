/*
 * load PORT CLIENTS REQUESTS TOKEN WORD < body
 *
 * Sends the JSON body from stdin as POST /mcp to 127.0.0.1:PORT, REQUESTS times over CLIENTS
 * keep-alive connections, each waiting for its answer before it sends again. An answer counts
 * when its status is 200 and WORD stands in it. Prints one JSON object; latencies are microseconds.
 */
#include "common/base.h"

#include "common/clock.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define ANSWER_MAX 65536

struct client {
    int fd;
    size_t sent;
    size_t got;
    int64_t began;
    char answer[ANSWER_MAX + 1];
};

static char request[1 << 20];
static size_t request_len;
static const char *word;
static uint16_t port;
static int64_t *latency;
static long total, started, finished, errors;

static _noreturn_ void die(const char *what)
{
    (void)fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void make_request(const char *token)
{
    static char body[1 << 19];
    size_t n = fread(body, 1, sizeof body - 1, stdin);
    int r = snprintf(request, sizeof request,
                     "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"
                     "Content-Type: application/json\r\nAccept: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     token, n, body);
    request_len = (size_t)r;
}

static void dial(struct client *c)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (const struct sockaddr *)(const void *)&a, sizeof a) < 0)
        die("connect");
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (fcntl(c->fd, F_SETFL, O_NONBLOCK) < 0)
        die("fcntl");
}

/* One more request on this connection; false when all have been started. */
static bool begin(struct client *c)
{
    if (started == total)
        return false;
    started++;
    c->sent = c->got = 0;
    c->began = clock_mono_us();
    return true;
}

static void send_some(struct client *c)
{
    while (c->sent < request_len) {
        ssize_t n = send(c->fd, request + c->sent, request_len - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0)
            die("send");
        c->sent += (size_t)n;
    }
}

/* Bytes of the whole answer once its head is there, else 0. */
static size_t answer_size(const struct client *c)
{
    const char *end = strstr(c->answer, "\r\n\r\n");
    const char *length = strcasestr(c->answer, "\r\nContent-Length:");
    if (!end)
        return 0;
    if (!length || length > end)
        die("an answer without Content-Length");
    return (size_t)(end - c->answer) + 4 + strtoul(length + 17, NULL, 10);
}

/* True when the answer is complete. */
static bool receive_some(struct client *c)
{
    ssize_t n = recv(c->fd, c->answer + c->got, ANSWER_MAX - c->got, 0);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0)
        die("the server closed a connection");
    c->got += (size_t)n;
    c->answer[c->got] = '\0';
    size_t size = answer_size(c);
    if (!size || c->got < size)
        return false;
    latency[finished++] = clock_mono_us() - c->began;
    if (strncmp(c->answer, "HTTP/1.1 200", 12) != 0 || !strstr(c->answer, word)) {
        if (!errors++)
            (void)fprintf(stderr, "load: not the answer that was expected:\n%.600s\n", c->answer);
    }
    return true;
}

static int by_value(const void *a, const void *b)
{
    int64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static int64_t percentile(int p)
{
    return latency[(finished - 1) * p / 100];
}

static void run(struct client *clients, int n)
{
    int ep = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < n; i++) {
        struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = &clients[i]};
        dial(&clients[i]);
        if (epoll_ctl(ep, EPOLL_CTL_ADD, clients[i].fd, &ev) < 0)
            die("epoll_ctl");
        if (begin(&clients[i]))
            send_some(&clients[i]);
    }
    while (finished < total) {
        struct epoll_event evs[256];
        int k = epoll_wait(ep, evs, 256, 60000);
        if (k <= 0)
            die("no answer for 60 s");
        for (int i = 0; i < k; i++) {
            struct client *c = evs[i].data.ptr;
            send_some(c);
            while (finished < total && c->sent == request_len && receive_some(c) && begin(c))
                send_some(c);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        (void)fprintf(stderr, "usage: load PORT CLIENTS REQUESTS TOKEN WORD < body\n");
        return 2;
    }
    port = (uint16_t)strtoul(argv[1], NULL, 10);
    int n = (int)strtol(argv[2], NULL, 10);
    total = strtol(argv[3], NULL, 10);
    word = argv[5];
    make_request(argv[4]);
    latency = xcalloc((size_t)total, sizeof *latency);
    struct client *clients = xcalloc((size_t)n, sizeof *clients);
    int64_t began = clock_mono_us();
    run(clients, n);
    double seconds = (double)(clock_mono_us() - began) / 1e6;
    qsort(latency, (size_t)finished, sizeof *latency, by_value);
    (void)printf("{\"clients\":%d,\"requests\":%ld,\"errors\":%ld,\"rate\":%.1f,\"p50\":%" PRId64
                 ",\"p90\":%" PRId64 ",\"p99\":%" PRId64 ",\"max\":%" PRId64 "}\n",
                 n, finished, errors, (double)finished / seconds, percentile(50), percentile(90),
                 percentile(99), latency[finished - 1]);
    return errors ? 1 : 0;
}
