/*
 * wire.h - the frame protocol between jobs-runner and sandbox-agent.
 *
 * Purpose:  one framed byte stream per sandbox (DESIGN contract 3). This file is the whole
 *           contract: both programs include it, and nothing else is shared between them.
 *           It depends on the C library only, because the agent is built static with musl.
 * Trust:    every byte from the peer is hostile. The decoder never reads past the payload,
 *           never allocates, and reports a malformed frame as -1; the connection is then closed.
 * Limits:   a payload is at most WIRE_MAX_PAYLOAD bytes. A message longer than that is split:
 *           all parts but the last carry WIRE_F_MORE, and the joined message is at most
 *           WIRE_MAX_MESSAGE bytes.
 *
 * Frame:    u32 length of payload | u8 type | u8 flags | u16 zero | u32 stream    (little endian)
 * Stream:   names a run or a file operation. The runner chooses it, it is never 0 for those, and
 *           it is not used again while the agent lives (WIRE_HELLO_ACK says which is next).
 * Fields:   most payloads are a list of fields: u16 tag | u32 length | bytes. Numbers are 8 bytes.
 *           An unknown tag is skipped, so both sides may be upgraded one at a time.
 *
 * Output:   stdout and stderr of a run form ONE sequence of bytes with one offset; each
 *           WIRE_OUTPUT frame says which of the two it belongs to. The agent keeps every byte
 *           until the runner acknowledges it, at most WIRE_WINDOW bytes; then it stops reading
 *           the command's pipes, so the command waits and nothing is lost or grows.
 * Ending:   the run ends when its process ends. The agent sends WIRE_EXIT after the last output
 *           byte, and remembers the run until WIRE_DONE, so a new runner can collect it.
 */
#ifndef SMCP_WIRE_H
#define SMCP_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define WIRE_VERSION      1
#define WIRE_HEADER       12
#define WIRE_MAX_PAYLOAD  65536u             /* bytes, without the header */
#define WIRE_MAX_MESSAGE  (4u << 20)         /* bytes, all parts of a split message */
#define WIRE_WINDOW       (256u << 10)       /* bytes of output a run may have unacknowledged */
#define WIRE_STDIN_WINDOW (64u << 10)        /* bytes of stdin in flight to a WIRE_STDIN_PIPE run */
#define WIRE_RUN_ID_MAX   64                 /* bytes of a run id */
#define WIRE_RUN_ENV      "SMCP_RUN_ID"      /* variable that marks every process of a run */
#define WIRE_DIR          "/run/sandbox-mcp" /* in the sandbox: the shared socket directory */
#define WIRE_SOCKET       "agent.sock"       /* the socket's name in that directory */
#define WIRE_AGENT_PATH   "/usr/local/sbin/sandbox-agent" /* where the agent is mounted */

/* Flags */
#define WIRE_F_MORE   0x01 /* the message goes on in the next frame of this stream */
#define WIRE_F_EOF    0x02 /* WIRE_STDIN, WIRE_FILE_DATA: this was the last byte */
#define WIRE_F_STDERR 0x04 /* WIRE_OUTPUT: these bytes came from stderr */

enum wire_type {
    /* runner -> agent */
    WIRE_HELLO = 1,  /* first frame; stream 0; fields: VERSION. Asks for WIRE_HELLO_ACK */
    WIRE_RUN,        /* start a command; fields RUN_ID, COMMAND or ARG..., CWD, ENV..., STDIN_MODE,
                        TIMEOUT_MS, GRACE_MS, PTY, ROWS, COLS, SESSION */
    WIRE_STDIN,      /* raw bytes for the run's stdin; WIRE_F_EOF closes it */
    WIRE_SIGNAL,     /* fields SIGNAL, TREE, GRACE_MS; with TREE also RUN_ID, which ends
                        what a run that is forgotten already has left behind */
    WIRE_ACK,        /* u64: bytes before this offset are stored and may be forgotten */
    WIRE_ATTACH,     /* u64: send this run's output again from this offset, then its exit */
    WIRE_DONE,       /* empty: the end of this run is stored, forget it */
    WIRE_RESIZE,     /* fields ROWS, COLS */
    WIRE_PING,       /* any bytes; answered by WIRE_PONG with the same bytes */
    WIRE_FILE_READ,  /* fields PATH, OFFSET, SIZE (most bytes wanted; 0: the FILE_STAT of any
                        kind of file, then an empty FILE_DATA) */
    WIRE_FILE_WRITE, /* fields PATH, MODE (optional), APPEND, PARENTS; bytes follow in FILE_DATA */
    WIRE_FILE_DATA,  /* raw bytes, both ways; WIRE_F_EOF ends */
    WIRE_FILE_LIST,  /* fields PATH, RECURSIVE, SIZE (most entries), CURSOR (name after which) */
    WIRE_DIAL,       /* reserved: connect to a port or socket inside */
    /* agent -> runner */
    WIRE_HELLO_ACK = 64, /* fields VERSION, BOOT_ID, NEXT_STREAM, and per live or uncollected run
                            one RUN_STATE */
    WIRE_STARTED,        /* fields PID: the command's process exists */
    WIRE_OUTPUT,         /* u64 offset, then bytes; WIRE_F_STDERR */
    WIRE_STDIN_ACK,      /* u64: bytes of stdin taken by the command's pipe so far */
    WIRE_EXIT,   /* fields EXIT_CODE or SIGNAL, TIMED_OUT, OOM, LEFT, OFFSET (all output bytes),
                    DURATION_US, STOPPED */
    WIRE_FAILED, /* the operation on this stream did not happen; fields ERRNO, TEXT, and for a
                    run at its process limit PIDS_NOW, PIDS_MAX */
    WIRE_PONG,
    WIRE_FILE_STAT,  /* answer to FILE_READ before the bytes, and to FILE_WRITE as its only answer:
                        fields FTYPE, SIZE, MODE, MTIME_NS, PATH (resolved) */
    WIRE_FILE_ENTRY, /* answer to FILE_LIST: fields NAME, FTYPE, SIZE, MODE, MTIME_NS, TARGET;
                        one frame an entry */
    WIRE_FILE_END,   /* end of a FILE_LIST; field CURSOR when there is more */
    WIRE_TYPE_COUNT
};

enum wire_tag {
    WT_VERSION = 1,
    WT_BOOT_ID,     /* bytes: random, new each time the agent starts */
    WT_NEXT_STREAM, /* number */
    WT_RUN_STATE,   /* nested fields: RUN_ID, STREAM, OFFSET (first byte still kept),
                       SIZE (bytes produced so far), RUNNING, STDIN_OFFSET */
    WT_RUN_ID,
    WT_STREAM,
    WT_COMMAND, /* bytes for `sh -c` */
    WT_ARG,     /* one argv element; repeated; instead of COMMAND */
    WT_CWD,
    WT_ENV,        /* "NAME=value"; repeated */
    WT_STDIN_MODE, /* enum wire_stdin */
    WT_TIMEOUT_MS, /* 0: none */
    WT_GRACE_MS,   /* between the gentle signal and SIGKILL */
    WT_PTY,
    WT_ROWS,
    WT_COLS,
    WT_SESSION, /* name of a resident shell; reserved */
    WT_SIGNAL,
    WT_TREE, /* 1: the whole tree of the run, then SIGKILL after GRACE_MS; 0: one signal to
                the process group */
    WT_PID,
    WT_OFFSET,
    WT_EXIT_CODE,
    WT_TIMED_OUT,
    WT_OOM,
    WT_LEFT, /* processes of the run that are still alive */
    WT_DURATION_US,
    WT_STOPPED, /* ended after a WIRE_SIGNAL with TREE */
    WT_ERRNO,   /* Linux errno number */
    WT_TEXT,    /* what failed, one line */
    WT_PIDS_NOW,
    WT_PIDS_MAX,
    WT_RUNNING,
    WT_STDIN_OFFSET, /* the next byte of stdin that is wanted */
    WT_PATH,
    WT_SIZE,
    WT_MODE,
    WT_APPEND,
    WT_PARENTS, /* create missing parent directories */
    WT_RECURSIVE,
    WT_CURSOR,
    WT_NAME,  /* relative to the listed directory */
    WT_FTYPE, /* number: 'f' file, 'd' directory, 'l' link, 'p' fifo, 's' socket, 'c' 'b' device */
    WT_MTIME_NS,
    WT_TARGET /* of a symbolic link */
};

enum wire_stdin {
    WIRE_STDIN_NONE = 0, /* /dev/null: reads end at once */
    WIRE_STDIN_DATA,     /* STDIN frames follow and are collected in memory; the command starts at
                            WIRE_F_EOF and finds all of it */
    WIRE_STDIN_PIPE      /* a pipe fed by STDIN frames while the command runs */
};

struct wire_header {
    uint32_t length;
    uint8_t type;
    uint8_t flags;
    uint32_t stream;
};

void wire_header_put(unsigned char out[WIRE_HEADER], const struct wire_header *h);

/* Returns 0, or -1 when the bytes cannot be a header (length over the maximum, unused bits set). */
int wire_header_get(const unsigned char in[WIRE_HEADER], struct wire_header *ret);

void wire_u64_put(unsigned char out[8], uint64_t v);
uint64_t wire_u64_get(const unsigned char in[8]);

/* Bytes needed for a field with n bytes of value. */
#define WIRE_FIELD(n) (6u + (n))

/* Write one field at out, which has room for WIRE_FIELD(n); returns the bytes written. */
size_t wire_field_put(unsigned char *out, enum wire_tag tag, const void *p, uint32_t n);
size_t wire_number_put(unsigned char *out, enum wire_tag tag, uint64_t v);

struct wire_field {
    uint16_t tag;
    const unsigned char *p;
    uint32_t n;
};

/*
 * Step through the fields of a payload: *pos starts at 0. Returns 1 with a field, 0 at the end,
 * -1 when a field does not fit into the payload.
 */
int wire_field_next(const unsigned char *payload, size_t len, size_t *pos, struct wire_field *ret);

/* The number in a field; 0 and -1 as result when the field is not 8 bytes. */
int wire_number(const struct wire_field *f, uint64_t *ret);

#endif
