#include "fcgi/tool.h"

#include "common/clock.h"
#include "common/text.h"
#include "fcgi/files.h"
#include "fcgi/queries.h"
#include "fcgi/window.h"

#define TOUCH_MS      10000        /* last_used need not be written more often */
#define SCAN_MAX      (512u << 20) /* bytes read on the way to a line */
#define ELSEWHERE_MAX (4 << 20)    /* bytes asked of the sandbox when lines are skipped */

/* --- the sandbox and its workspace ---------------------------------------------------------- */

/* How old last_used may become: a use must count before the clean-up acts. */
static int64_t touch_after(const struct settings *s)
{
    int64_t ms = TOUCH_MS;
    if (s->idle_stop)
        ms = MIN(ms, s->idle_stop * 250);
    if (s->idle_remove)
        ms = MIN(ms, s->idle_remove * 250);
    return ms;
}

/* 1 it exists, 0 it does not, -1 error. Notes that it was used. */
static int use_sandbox(struct call *c, const char *name)
{
    struct db *db = &c->app->db;
    int64_t now = clock_real_ms();
    int n = db_row(db, Q_SANDBOX, &c->err, "t", name);
    if (n != 1)
        return n;
    bool stale = db_int(db, Q_SANDBOX, 1) < now - touch_after(c->app->settings);
    db_done(db, Q_SANDBOX);
    if (stale && db_run(db, Q_SANDBOX_TOUCH, &c->err, "it", now, name) < 0)
        return -1;
    return 1;
}

/* Workspace for a tool that only looks; -1 with the error filled in. */
static int open_workspace(struct call *c, const char *name)
{
    int n = use_sandbox(c, name);
    if (n == 1)
        return files_workspace(c->app->settings, name, &c->err);
    if (n == 0) {
        err_set(&c->err, ERR_NOTFOUND, "there is no sandbox \"%s\"", name);
        err_fix(&c->err, "not_found",
                "list_sandboxes shows what exists; exec, write_text and create_sandbox make one");
    }
    return -1;
}

/* --- asking the sandbox --------------------------------------------------------------------- */

/* The path as the sandbox sees it. */
static void write_path(struct call *c, struct jw *w, const char *def)
{
    struct buf path = BUF_INIT(2 * PATH_MAX);
    const char *arg = args_string(&c->args, "path", def);
    if (*arg != '/')
        buf_adds(&path, "/workspace/");
    buf_adds(&path, arg);
    jw_kstring(w, "path", path.p);
    buf_release(&path);
}

struct json_request {
    struct buf text;
    struct jw w;
};

static void request_begin(struct json_request *r, struct call *c, const char *def_path)
{
    buf_init(&r->text, CALL_RESULT_MAX);
    r->w = (struct jw)JW_INIT(&r->text);
    jw_object(&r->w);
    jw_kstring(&r->w, "sandbox", args_string(&c->args, "sandbox", "default"));
    write_path(c, &r->w, def_path);
}

static int request_ask(struct json_request *r, struct call *c, const char *kind, call_step *next)
{
    jw_end_object(&r->w);
    int result = call_ask(c, kind, &r->text, ASK_FAST_MS, next);
    buf_release(&r->text);
    return result;
}

/* The answer as a tree; NULL: the call is settled already, with *ret. */
static struct json *answer(struct call *c, int *ret)
{
    struct json *j = NULL;
    if (c->request.reply != REPLY_OK)
        *ret = call_pass(c);
    else if (json_parse(c->request.result.p, c->request.result.len, &j, &c->err) < 0)
        *ret = CALL_FAILED;
    return j;
}

/* --- read_text ------------------------------------------------------------------------------ */

static void window_from_args(struct call *c, struct window *w)
{
    window_init(w, args_int(&c->args, "start_line", 1), args_int(&c->args, "max_lines", INT64_MAX),
                (size_t)c->app->settings->read_text_max);
}

static void write_content(struct call *c, const struct window *win, const char *path, int64_t size)
{
    struct buf clean = BUF_INIT(4 * win->out.max + 16);
    enum text_encoding enc =
        text_clean(&clean, win->out.p, win->out.len, win->cut_line ? TEXT_CUT_BACK : 0);
    struct jw w = JW_INIT(&c->out);
    jw_object(&w);
    jw_kstring(&w, "path", path);
    jw_key(&w, "content");
    jw_string_n(&w, clean.p, clean.len);
    jw_kint(&w, "size", size);
    jw_kstring(&w, "encoding", text_encoding_name(enc));
    jw_kbool(&w, "truncated", win->more);
    if (win->more)
        jw_kint(&w, "next_line", window_next_line(win));
    if (win->cut_line)
        jw_kstring(&w, "note",
                   "this line is longer than SMCP_READ_TEXT_MAX_BYTES and was cut; "
                   "exec with cut -c or head -c reads more of it");
    if (!win->more && win->first > 1 && !win->out.len)
        jw_kstring(&w, "note", "the file has no line start_line");
    jw_end_object(&w);
    buf_release(&clean);
}

static int read_here(struct call *c, int fd, struct window *win)
{
    char piece[65536 / 4];
    for (size_t seen = 0; seen < SCAN_MAX;) {
        ssize_t n = read(fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(&c->err, "cannot read the file");
        if (n == 0 || window_feed(win, piece, (size_t)n))
            return 0;
        seen += (size_t)n;
    }
    err_set(&c->err, ERR_LIMIT, "start_line lies beyond the first %u bytes", SCAN_MAX);
    return err_fix(&c->err, "limit", "use exec with sed -n 'FROM,TOp' or tail");
}

static int after_read(struct call *c)
{
    int r = CALL_FAILED;
    _cleanup_json_ struct json *j = answer(c, &r);
    if (!j)
        return r;
    if (!streq(json_get_string(j, "type", "file"), "file")) {
        err_set(&c->err, ERR_INVALID, "this is a %.20s, not a file",
                json_get_string(j, "type", ""));
        return err_fix(&c->err, "not_a_file", "name a regular file");
    }
    const char *data = json_get_string(j, "data", "");
    struct buf raw = BUF_INIT(CALL_RESULT_MAX);
    struct window win;
    window_from_args(c, &win);
    r = text_unbase64(&raw, data, strlen(data));
    if (r == 0) {
        int64_t size = json_get_int(j, "size", (int64_t)raw.len);
        if (!window_feed(&win, raw.p, raw.len) && size > (int64_t)raw.len)
            win.more = true;
        write_content(c, &win, json_get_string(j, "path", ""), size);
    } else {
        err_set(&c->err, ERR_INTERNAL, "the jobs-runner sent broken data");
    }
    window_release(&win);
    buf_release(&raw);
    return r;
}

static int ask_read(struct call *c)
{
    struct json_request r;
    bool skips = args_int(&c->args, "start_line", 1) > 1;
    request_begin(&r, c, "");
    jw_kint(&r.w, "offset", 0);
    jw_kint(&r.w, "size",
            skips ? MAX((int64_t)ELSEWHERE_MAX, c->app->settings->read_text_max)
                  : c->app->settings->read_text_max + 1);
    return request_ask(&r, c, "file_read", after_read);
}

static int read_file(struct call *c, int ws, const char *rel)
{
    struct stat st;
    _cleanup_close_ int fd = -1;
    int r = files_open(ws, rel, false, &fd, &st, &c->err);
    if (r != FILES_OK)
        return r;
    struct window win;
    struct buf shown = BUF_INIT(4 * PATH_MAX);
    window_from_args(c, &win);
    r = read_here(c, fd, &win);
    files_show(rel, &shown);
    if (r == 0)
        write_content(c, &win, shown.p, st.st_size);
    window_release(&win);
    buf_release(&shown);
    return r;
}

/* What the three tools have in common: here, or else in the sandbox. */
static int look(struct call *c, const char *def,
                int (*here)(struct call *c, int ws, const char *rel), call_step *there)
{
    const char *sandbox = call_sandbox(c);
    if (!sandbox)
        return CALL_FAILED;
    _cleanup_close_ int ws = open_workspace(c, sandbox);
    if (ws < 0)
        return CALL_FAILED;
    struct buf rel = BUF_INIT(PATH_MAX);
    int r = files_path(args_string(&c->args, "path", def), &rel, &c->err);
    if (r == FILES_OK)
        r = here(c, ws, rel.p);
    buf_release(&rel);
    return r == FILES_ELSEWHERE ? there(c) : r;
}

static int path_is_empty(struct call *c)
{
    err_set(&c->err, ERR_INVALID, "the argument \"path\" is empty");
    return err_fix(&c->err, "invalid_argument", "name a file, such as notes.txt");
}

int tool_read_text(struct call *c)
{
    if (!*args_string(&c->args, "path", ""))
        return path_is_empty(c);
    return look(c, "", read_file, ask_read);
}

/* --- list_files ----------------------------------------------------------------------------- */

static int list_here(struct call *c, int ws, const char *rel)
{
    const char *cursor = args_string(&c->args, "cursor", "");
    struct buf after = BUF_INIT(PATH_MAX * FILES_DEPTH_MAX),
               next = BUF_INIT(PATH_MAX * FILES_DEPTH_MAX);
    struct buf shown = BUF_INIT(4 * PATH_MAX);
    if (text_unbase64(&after, cursor, strlen(cursor)) < 0 || strlen(after.p) != after.len) {
        buf_release(&after);
        err_set(&c->err, ERR_INVALID, "the argument \"cursor\" is not one of ours");
        return err_fix(&c->err, "invalid_argument", "use next_cursor of the page before, or none");
    }
    struct files_list how = {.recursive = args_bool(&c->args, "recursive", false),
                             .limit = args_int(&c->args, "limit", 200),
                             .cursor = after.len ? after.p : NULL};
    struct jw w = JW_INIT(&c->out);
    files_show(rel, &shown);
    jw_object(&w);
    jw_kstring(&w, "path", shown.p);
    jw_key(&w, "entries");
    jw_array(&w);
    int r = files_list(ws, rel, &how, &w, &next, &c->err);
    if (r == FILES_OK) {
        jw_end_array(&w);
        buf_clear(&shown);
        text_base64(&shown, next.p, next.len);
        if (next.len)
            jw_kstring(&w, "next_cursor", shown.p);
        jw_end_object(&w);
    }
    if (r == FILES_ELSEWHERE)
        buf_clear(&c->out);
    buf_release(&after);
    buf_release(&next);
    buf_release(&shown);
    return r;
}

/* The runner's entries have times in milliseconds; here all times are written out. */
static void rewrite_entry(struct jw *w, const struct json *entry)
{
    char iso[32];
    jw_object(w);
    for (const struct json *m = json_first(entry); m; m = json_next(m)) {
        jw_key(w, json_key(m));
        if (streq(json_key(m), "mtime") && json_is_int(m))
            jw_string(w, clock_iso(json_int(m), iso));
        else
            jw_json(w, m);
    }
    jw_end_object(w);
}

static int after_list(struct call *c)
{
    int r = CALL_FAILED;
    _cleanup_json_ struct json *j = answer(c, &r);
    if (!j)
        return r;
    struct jw w = JW_INIT(&c->out);
    jw_object(&w);
    jw_kstring(&w, "path", json_get_string(j, "path", ""));
    jw_key(&w, "entries");
    jw_array(&w);
    const struct json *entries = json_get(j, "entries");
    for (const struct json *x = json_first(entries); x; x = json_next(x))
        rewrite_entry(&w, x);
    jw_end_array(&w);
    jw_kstring(&w, "next_cursor", json_get_string(j, "next_cursor", NULL));
    jw_end_object(&w);
    return CALL_DONE;
}

static int ask_list(struct call *c)
{
    struct json_request r;
    request_begin(&r, c, ".");
    jw_kbool(&r.w, "recursive", args_bool(&c->args, "recursive", false));
    jw_kint(&r.w, "limit", args_int(&c->args, "limit", 200));
    jw_kstring(&r.w, "cursor", args_string(&c->args, "cursor", NULL));
    return request_ask(&r, c, "file_list", after_list);
}

int tool_list_files(struct call *c)
{
    return look(c, ".", list_here, ask_list);
}

/* --- write_text ----------------------------------------------------------------------------- */

/* "755", "0644", "0o755" or the number 755; -1: none given, -2: wrong. */
static int mode_argument(struct call *c)
{
    const struct json *j = args_get(&c->args, "mode");
    char text[24];
    if (!j)
        return -1;
    if (json_type(j) == JSON_STRING)
        (void)snprintf(text, sizeof text, "%.20s", json_string(j));
    else
        (void)snprintf(text, sizeof text, "%" PRId64, json_int(j));
    const char *digits = text + (strncmp(text, "0o", 2) == 0 ? 2 : 0);
    size_t n = strlen(digits);
    long v = strtol(digits, NULL, 8);
    if (n >= 3 && n <= 4 && strspn(digits, "01234567") == n && v <= 0777)
        return (int)v;
    err_set(&c->err, ERR_INVALID, "the argument \"mode\" is \"%s\"", text);
    err_fix(&c->err, "invalid_argument", "give permissions in octal, such as 644 or 755");
    return -2;
}

static void write_result(struct call *c, const char *path, int64_t size)
{
    struct jw w = JW_INIT(&c->out);
    jw_object(&w);
    jw_kstring(&w, "path", path);
    jw_kint(&w, "size", size);
    if (c->sandbox_created) {
        jw_kbool(&w, "sandbox_created", true);
        jw_kstring(&w, "note", "the sandbox did not exist and was made");
    }
    jw_end_object(&w);
}

static int after_write(struct call *c)
{
    int r = CALL_FAILED;
    _cleanup_json_ struct json *j = answer(c, &r);
    if (!j)
        return r;
    write_result(c, json_get_string(j, "path", ""), json_get_int(j, "size", 0));
    return CALL_DONE;
}

static int ask_write(struct call *c)
{
    struct json_request r;
    struct buf data = BUF_INIT(CALL_RESULT_MAX);
    const char *content = args_string(&c->args, "content", "");
    int mode = mode_argument(c);
    text_base64(&data, content, strlen(content));
    request_begin(&r, c, "");
    jw_key(&r.w, "data");
    jw_string_n(&r.w, data.p, data.len);
    jw_kbool(&r.w, "append", args_bool(&c->args, "append", false));
    if (mode >= 0)
        jw_kint(&r.w, "mode", mode);
    r.text.bad |= buf_bad(&data);
    buf_release(&data);
    return request_ask(&r, c, "file_write", after_write);
}

static int write_here(struct call *c, int ws, const char *rel)
{
    const char *content = args_string(&c->args, "content", "");
    struct files_write w = {.data = content,
                            .n = strlen(content),
                            .append = args_bool(&c->args, "append", false),
                            .mode = mode_argument(c)};
    int64_t size = 0;
    int r = w.mode == -2 ? -1 : files_write(ws, rel, &w, &size, &c->err);
    if (r != FILES_OK)
        return r;
    struct buf shown = BUF_INIT(4 * PATH_MAX);
    files_show(rel, &shown);
    write_result(c, shown.p, size);
    buf_release(&shown);
    return CALL_DONE;
}

static int write_after_create(struct call *c)
{
    if (c->request.reply != REPLY_OK)
        return call_pass(c);
    c->sandbox_created = true;
    return look(c, "", write_here, ask_write);
}

static int ask_create(struct call *c, const char *sandbox)
{
    struct buf args = BUF_INIT(256);
    struct jw w = JW_INIT(&args);
    jw_object(&w);
    jw_kstring(&w, "sandbox", sandbox);
    jw_end_object(&w);
    int r = call_ask(c, "create", &args, ASK_CREATE_MS, write_after_create);
    buf_release(&args);
    return r;
}

int tool_write_text(struct call *c)
{
    const char *sandbox = call_sandbox(c);
    if (!sandbox || mode_argument(c) == -2)
        return CALL_FAILED;
    if (!*args_string(&c->args, "path", ""))
        return path_is_empty(c);
    int n = use_sandbox(c, sandbox);
    if (n == 1) {
        /* Still being made: the runner answers when it is ready. */
        _cleanup_close_ int ws = files_workspace(c->app->settings, sandbox, &c->err);
        n = ws >= 0;
    }
    if (n < 0)
        return CALL_FAILED;
    return n == 0 ? ask_create(c, sandbox) : look(c, "", write_here, ask_write);
}
