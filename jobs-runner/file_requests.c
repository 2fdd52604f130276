#include "common/base.h"

#include "common/text.h"
#include "jobs-runner/file_requests.h"
#include "jobs-runner/sandbox.h"

#define READ_MAX (32u << 20)
#define LIST_MAX 2000
#define TIME_US  20000000

struct file_op;

/* What is different between the three kinds. */
struct file_kind {
    bool looks_only; /* never makes a sandbox */
    int (*send)(struct file_op *op, struct link *l);
    void (*finish)(struct file_op *op, struct buf *out);
};

/* One operation, from its request until its last frame. */
struct file_op {
    struct request *q;
    const struct file_kind *kind;
    char sandbox[64];
    uint64_t link;
    uint32_t stream;
    sd_event_source *timer;
    struct buf data; /* bytes read, or entries as JSON */
    struct jw entries;
    uint64_t size, mode, mtime_ns;
    char ftype;
    char *resolved, *cursor;
};

static void op_free(struct file_op *op)
{
    struct sandbox *sb = sandbox_find(op->q->r, op->sandbox);
    if (op->stream && sb && sb->link && link_serial(sb->link) == op->link)
        link_stream_drop(sb->link, op->stream);
    timer_off(&op->timer);
    buf_release(&op->data);
    free(op->resolved);
    free(op->cursor);
    free(op);
}

static void fail(struct file_op *op, const struct err *e)
{
    struct request *q = op->q;
    op_free(op);
    request_fail(q, e);
}

static void done(struct file_op *op)
{
    struct request *q = op->q;
    struct buf out = BUF_INIT(48u << 20);
    op->kind->finish(op, &out);
    op_free(op);
    request_answer(q, &out);
    buf_release(&out);
}

/* ---- frames from the agent ---- */

static const char *type_word(char ftype)
{
    switch (ftype) {
    case 'f':
        return "file";
    case 'd':
        return "directory";
    case 'l':
        return "symlink";
    case 'p':
        return "fifo";
    case 's':
        return "socket";
    default:
        return "device";
    }
}

/* A name is a string of bytes: what is not UTF-8 is shown as \xNN, and a backslash doubled. */
static void name_text(struct buf *out, const unsigned char *p, size_t n)
{
    if (text_utf8_valid((const char *)p, n)) {
        buf_add(out, p, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (p[i] >= 0x80)
            buf_addf(out, "\\x%02x", p[i]);
        else if (p[i] == '\\')
            buf_adds(out, "\\\\");
        else
            buf_addc(out, (char)p[i]);
    }
}

struct entry {
    uint64_t size, mode, mtime_ns;
    char ftype;
    struct wire_field name, target, path, cursor;
};

static void read_entry(const unsigned char *p, size_t n, struct entry *x)
{
    struct wire_field f;
    size_t pos = 0;
    uint64_t v = 0;
    memset(x, 0, sizeof *x);
    while (wire_field_next(p, n, &pos, &f) > 0) {
        bool is_number = wire_number(&f, &v) == 0;
        if (f.tag == WT_NAME)
            x->name = f;
        else if (f.tag == WT_TARGET)
            x->target = f;
        else if (f.tag == WT_PATH)
            x->path = f;
        else if (f.tag == WT_CURSOR)
            x->cursor = f;
        else if (is_number && f.tag == WT_FTYPE)
            x->ftype = (char)v;
        else if (is_number && f.tag == WT_SIZE)
            x->size = v;
        else if (is_number && f.tag == WT_MODE)
            x->mode = v;
        else if (is_number && f.tag == WT_MTIME_NS)
            x->mtime_ns = v;
    }
}

static void bytes_member(struct jw *w, const char *key, const struct wire_field *f)
{
    struct buf text = BUF_INIT(1 << 16);
    name_text(&text, f->p, f->n);
    jw_key(w, key);
    jw_string_n(w, text.p, text.len);
    buf_release(&text);
}

static void facts(struct jw *w, char ftype, uint64_t size, uint64_t mode, uint64_t mtime_ns)
{
    char octal[16];
    (void)snprintf(octal, sizeof octal, "%04o", (unsigned)(mode & 07777));
    jw_kstring(w, "type", type_word(ftype));
    jw_kint(w, "size", (int64_t)MIN(size, (uint64_t)1 << 52));
    jw_kstring(w, "mode", octal);
    jw_kint(w, "mtime", (int64_t)(mtime_ns / 1000000));
}

static void on_entry(struct file_op *op, const unsigned char *p, size_t n)
{
    struct entry x;
    read_entry(p, n, &x);
    jw_object(&op->entries);
    bytes_member(&op->entries, "name", &x.name);
    facts(&op->entries, x.ftype, x.size, x.mode, x.mtime_ns);
    if (x.target.n)
        bytes_member(&op->entries, "target", &x.target);
    jw_end_object(&op->entries);
}

static void keep_bytes(char **into, const struct wire_field *f)
{
    if (!f->n)
        return;
    struct buf text = BUF_INIT(1 << 16);
    name_text(&text, f->p, f->n);
    free(*into);
    *into = buf_take(&text);
}

static void on_stat(struct file_op *op, const unsigned char *p, size_t n)
{
    struct entry x;
    read_entry(p, n, &x);
    op->size = x.size;
    op->mode = x.mode;
    op->mtime_ns = x.mtime_ns;
    op->ftype = x.ftype;
    keep_bytes(&op->resolved, &x.path);
}

static const struct {
    uint64_t number;
    enum err_kind kind;
    const char *code, *fix;
} errnos[] = {
    {ENOENT, ERR_NOTFOUND, "not_found", "check the path with list_files"},
    {ENOTDIR, ERR_INVALID, "invalid_path", "a part of the path is not a directory; use list_files"},
    {EISDIR, ERR_INVALID, "is_directory", "pass the path of a file; list_files shows a directory"},
    {EACCES, ERR_FORBIDDEN, "forbidden", "choose a path that may be written in the sandbox"},
    {EROFS, ERR_FORBIDDEN, "forbidden", "choose a path that may be written in the sandbox"},
    {ENOSPC, ERR_LIMIT, "disk_full", "delete files in the sandbox, then call again"},
    {ELOOP, ERR_INVALID, "invalid_path", "the symbolic links form a loop; use another path"},
};

static void failure(const unsigned char *p, size_t n, struct err *e)
{
    struct wire_field f;
    struct buf why = BUF_INIT(2048);
    size_t pos = 0;
    uint64_t number = 0, v;
    while (wire_field_next(p, n, &pos, &f) > 0) {
        if (f.tag == WT_TEXT)
            text_excerpt(&why, (const char *)f.p, f.n, 300);
        else if (f.tag == WT_ERRNO && wire_number(&f, &v) == 0)
            number = v;
    }
    err_set(e, ERR_INVALID, "%s", why.p);
    err_fix(e, "file_error", "check the path with list_files");
    for (size_t i = 0; i < ARRAY_LEN(errnos); i++)
        if (errnos[i].number == number) {
            e->kind = errnos[i].kind;
            err_fix(e, errnos[i].code, "%s", errnos[i].fix);
        }
    buf_release(&why);
}

static void on_frame(void *arg, const struct wire_header *h, const unsigned char *p, size_t n)
{
    struct file_op *op = arg;
    struct err e = ERR_INIT;
    struct entry x;
    if (h->type == WIRE_FAILED) {
        failure(p, n, &e);
        fail(op, &e);
    } else if (h->type == WIRE_FILE_STAT) {
        on_stat(op, p, n);
        if (!op->kind->looks_only) /* the only answer to a write */
            done(op);
    } else if (h->type == WIRE_FILE_DATA) {
        buf_add(&op->data, p, n);
        if (h->flags & WIRE_F_EOF)
            done(op);
    } else if (h->type == WIRE_FILE_ENTRY) {
        on_entry(op, p, n);
    } else if (h->type == WIRE_FILE_END) {
        read_entry(p, n, &x);
        keep_bytes(&op->cursor, &x.cursor);
        done(op);
    }
}

/* ---- sending ---- */

static void field(struct buf *b, enum wire_tag tag, const void *p, size_t n)
{
    char *at = buf_reserve(b, WIRE_FIELD(n));
    if (at)
        buf_commit(b, wire_field_put((unsigned char *)at, tag, p, (uint32_t)n));
}

static void number(struct buf *b, enum wire_tag tag, uint64_t v)
{
    unsigned char raw[8];
    wire_u64_put(raw, v);
    field(b, tag, raw, sizeof raw);
}

/* The bytes that a name stands for: \xNN and \\ are undone when it has a \xNN at all. */
static void bytes_field(struct buf *b, enum wire_tag tag, const char *s)
{
    struct buf raw = BUF_INIT(1 << 16);
    if (!strstr(s, "\\x"))
        buf_adds(&raw, s);
    else
        for (; *s; s++) {
            unsigned v;
            int used = 0;
            if (sscanf(s, "\\x%2x%n", &v, &used) == 1 && used == 4 && v) {
                buf_addc(&raw, (char)v);
                s += 3;
            } else {
                buf_addc(&raw, *s);
                s += s[0] == '\\' && s[1] == '\\';
            }
        }
    field(b, tag, raw.p, raw.len);
    buf_release(&raw);
}

static int send_request(struct file_op *op, struct link *l, enum wire_type type, struct buf *b)
{
    op->link = link_serial(l);
    op->stream = link_stream_add(l, 0, on_frame, op);
    int r = link_send(l, type, 0, op->stream, b->p, b->len);
    buf_release(b);
    return r;
}

static int send_read(struct file_op *op, struct link *l)
{
    struct buf b = BUF_INIT(1 << 17);
    const struct json *a = op->q->args;
    bytes_field(&b, WT_PATH, json_get_string(a, "path", ""));
    number(&b, WT_OFFSET, (uint64_t)json_get_int(a, "offset", 0));
    number(&b, WT_SIZE, (uint64_t)MIN(json_get_int(a, "size", 1 << 20), (int64_t)READ_MAX));
    return send_request(op, l, WIRE_FILE_READ, &b);
}

static int send_write(struct file_op *op, struct link *l)
{
    struct buf b = BUF_INIT(1 << 17), data = BUF_INIT(LINK_MAX_QUEUE / 2);
    const struct json *a = op->q->args;
    const char *text = json_get_string(a, "data", "");
    bytes_field(&b, WT_PATH, json_get_string(a, "path", ""));
    if (json_get(a, "mode"))
        number(&b, WT_MODE, (uint64_t)json_get_int(a, "mode", 0644));
    number(&b, WT_APPEND, json_get_bool(a, "append", false));
    number(&b, WT_PARENTS, 1);
    int r = text_unbase64(&data, text, strlen(text));
    if (r == 0)
        r = send_request(op, l, WIRE_FILE_WRITE, &b);
    if (r == 0)
        r = link_send(l, WIRE_FILE_DATA, WIRE_F_EOF, op->stream, data.p, data.len);
    buf_release(&b);
    buf_release(&data);
    return r;
}

static int send_list(struct file_op *op, struct link *l)
{
    struct buf b = BUF_INIT(1 << 17);
    const struct json *a = op->q->args;
    const char *cursor = json_get_string(a, "cursor", NULL);
    bytes_field(&b, WT_PATH, json_get_string(a, "path", "."));
    number(&b, WT_RECURSIVE, json_get_bool(a, "recursive", false));
    number(&b, WT_SIZE, (uint64_t)MIN(json_get_int(a, "limit", 200), (int64_t)LIST_MAX));
    if (cursor)
        bytes_field(&b, WT_CURSOR, cursor);
    jw_array(&op->entries);
    return send_request(op, l, WIRE_FILE_LIST, &b);
}

/* ---- results ---- */

static void finish_read(struct file_op *op, struct buf *out)
{
    struct buf text = BUF_INIT(2 * READ_MAX);
    struct jw w = JW_INIT(out);
    text_base64(&text, op->data.p, op->data.len);
    jw_object(&w);
    jw_kstring(&w, "path", op->resolved ? op->resolved : json_get_string(op->q->args, "path", ""));
    facts(&w, op->ftype, op->size, op->mode, op->mtime_ns);
    jw_key(&w, "data");
    jw_string_n(&w, text.p, text.len);
    jw_end_object(&w);
    buf_release(&text);
}

static void finish_write(struct file_op *op, struct buf *out)
{
    struct jw w = JW_INIT(out);
    jw_object(&w);
    jw_kstring(&w, "path", op->resolved ? op->resolved : json_get_string(op->q->args, "path", ""));
    jw_kint(&w, "size", (int64_t)op->size);
    jw_end_object(&w);
}

static void finish_list(struct file_op *op, struct buf *out)
{
    struct jw w = JW_INIT(out);
    jw_end_array(&op->entries);
    jw_object(&w);
    jw_kstring(&w, "path", json_get_string(op->q->args, "path", "."));
    jw_kraw(&w, "entries", op->data.p, op->data.len);
    jw_kstring(&w, "next_cursor", op->cursor);
    jw_end_object(&w);
}

/* ---- the course of it ---- */

static int on_late(sd_event_source *s, uint64_t usec, void *arg)
{
    (void)s;
    (void)usec;
    struct err e = ERR_INIT;
    err_set(&e, ERR_TIMEOUT, "the sandbox did not answer in time");
    fail(arg, &e);
    return 0;
}

static void on_ready(void *arg, struct sandbox *sb, const struct sandbox_ready *how,
                     const struct err *why)
{
    (void)how;
    struct file_op *op = arg;
    struct err e = ERR_INIT;
    if (why) {
        fail(op, why);
        return;
    }
    (void)timer_after(op->q->r, &op->timer, TIME_US, on_late, op);
    if (op->kind->send(op, sb->link) == 0)
        return;
    err_set(&e, ERR_INVALID, "the request could not be passed to the sandbox");
    err_fix(&e, "file_error", "call again; for more than a few MB use upload_file");
    fail(op, &e);
}

static struct sandbox *sandbox_of(struct request *q, const char *name, bool looks_only,
                                  bool *created, struct err *e)
{
    struct sandbox *sb = sandbox_find(q->r, name);
    *created = false;
    if (sb && !sb->removing)
        return sb;
    if (looks_only || sb || !text_sandbox_name(name)) {
        err_set(e, ERR_NOTFOUND, "there is no sandbox '%.63s'", name);
        err_fix(e, "not_found", "list_sandboxes shows what exists; exec makes a new one");
        return NULL;
    }
    *created = sandbox_new_default(q->r, name, &sb, e) == 0;
    return *created ? sb : NULL;
}

static void begin(struct request *q, const struct file_kind *kind)
{
    const char *name = json_get_string(q->args, "sandbox", "default");
    struct err e = ERR_INIT;
    bool created;
    struct sandbox *sb = sandbox_of(q, name, kind->looks_only, &created, &e);
    if (!sb) {
        request_fail(q, &e);
        return;
    }
    struct file_op *op = xcalloc(1, sizeof *op);
    op->q = q;
    op->kind = kind;
    buf_init(&op->data, READ_MAX);
    op->entries = (struct jw)JW_INIT(&op->data);
    (void)snprintf(op->sandbox, sizeof op->sandbox, "%s", name);
    sandbox_touch(sb);
    (void)sandbox_need(sb, created, q, on_ready, op);
}

void file_read_start(struct request *q)
{
    static const struct file_kind kind = {true, send_read, finish_read};
    begin(q, &kind);
}

void file_write_start(struct request *q)
{
    static const struct file_kind kind = {false, send_write, finish_write};
    begin(q, &kind);
}

void file_list_start(struct request *q)
{
    static const struct file_kind kind = {true, send_list, finish_list};
    begin(q, &kind);
}
