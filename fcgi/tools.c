#include "fcgi/tools.h"

#include "common/embed.h"
#include "common/text.h"
#include "fcgi/extra.h"
#include "fcgi/schema.h"

#define EMBED_TOOL(name)                                                                           \
    EMBED(in_##name, "fcgi/tools/" #name ".json");                                                 \
    EMBED(out_##name, "fcgi/tools/" #name ".out.json")

EMBED_TOOL(exec);
EMBED_TOOL(run_background);
EMBED_TOOL(get_job);
EMBED_TOOL(stop_job);
EMBED_TOOL(list_sandboxes);
EMBED_TOOL(create_sandbox);
EMBED_TOOL(destroy_sandbox);
EMBED_TOOL(list_files);
EMBED_TOOL(read_text);
EMBED_TOOL(write_text);

#define ROW(tool, words, set, flags, text)                                                         \
    {                                                                                              \
        .name = #tool, .title = words, .toolset = set, .hints = flags, .description = text,        \
        .input = in_##tool, .output = out_##tool, .run = tool_##tool                               \
    }

// clang-format off
static const struct tool table[] = {
ROW(exec, "Run a command", SET_CORE,
    HINT_DESTRUCTIVE | HINT_OPENWORLD | TOOL_CANCELS | TOOL_PROGRESS | TOOL_TASK,
    "Run a shell command in a sandbox (its own Linux container, root, made when missing) and get exit_code, "
    "stdout, stderr. Each call is a fresh sh in /workspace: files stay; cd, variables and functions do not. "
    "stdin is empty, so nothing may ask questions. A command that outlives `wait` is not lost: the answer "
    "has status \"running\" and a job_id for get_job. For servers and long work take run_background. "
    "Long output keeps its beginning and end."),
ROW(run_background, "Start a job", SET_CORE, HINT_DESTRUCTIVE | HINT_OPENWORLD | TOOL_TASK,
    "Start a long command (build, download, server) in a sandbox and return its job_id at once. "
    "Follow it with get_job, end it with stop_job."),
ROW(get_job, "Look at a job", SET_CORE, HINT_READONLY | HINT_IDEMPOTENT | TOOL_PROGRESS,
    "State and log of a job. Waits up to `wait` seconds for its end and answers at once when it ends, so "
    "call it again rather than sleeping. log_tail is the end of the log; with `offset` you read on "
    "without gap from next_offset."),
ROW(stop_job, "Stop a job", SET_CORE, HINT_DESTRUCTIVE | HINT_IDEMPOTENT,
    "End a job with everything it started."),
ROW(list_sandboxes, "List sandboxes", SET_CORE, HINT_READONLY | HINT_IDEMPOTENT,
    "All sandboxes with status, image, limits, last use and running jobs."),
ROW(create_sandbox, "Create a sandbox", SET_CORE, HINT_IDEMPOTENT | HINT_OPENWORLD | TOOL_PROGRESS,
    "Make a sandbox with an image, limits or network of your choice. Not needed otherwise: exec, "
    "run_background and write_text make a missing one. One that exists is left as it is."),
ROW(destroy_sandbox, "Destroy a sandbox", SET_CORE, HINT_DESTRUCTIVE | HINT_IDEMPOTENT,
    "Remove a sandbox: its processes and everything outside /workspace. /workspace stays for the next "
    "sandbox of that name unless delete_files is true."),
ROW(list_files, "List files", SET_CORE, HINT_READONLY | HINT_IDEMPOTENT,
    "List a directory, sorted, in pages. A name with \"escaped\": true holds bytes that are not UTF-8 as "
    "\\xNN (and \\\\ for a backslash); every path argument takes that form back."),
ROW(read_text, "Read a text file", SET_CORE, HINT_READONLY | HINT_IDEMPOTENT,
    "Read a text file, or a range of its lines. Up to @READ_MAX@ bytes a call; `truncated` and next_line "
    "say how to go on."),
ROW(write_text, "Write a text file", SET_CORE, HINT_DESTRUCTIVE | HINT_IDEMPOTENT,
    "Write a text file whole (missing directories are made, mode and owner of an existing file are kept), "
    "or append to it. Safer than a here-document in exec."),
};

/* Names of the predecessors: they answer, but are not listed. */
static const struct {
    const char *old;
    const char *now;
    struct rename renames[RENAMES_MAX];
} aliases[] = {
    {"list_all", "list_sandboxes", {{NULL, NULL}}},
    {"destroy", "destroy_sandbox", {{"name", "sandbox"}}},
    {"bg", "run_background", {{"cmd", "command"}}},
    {"logs", "get_job", {{"name", "job_id"}, {"id", "job_id"}, {"tail", "tail_lines"}}},
    {"kill", "stop_job", {{"name", "job_id"}, {"id", "job_id"}}},
    {"read_file", "read_text", {{"sandbox_path", "path"}}},
    {"write_file", "write_text", {{"sandbox_path", "path"}}},
};

static const struct {
    const char *name;
    unsigned bits;
} sets[] = {
    {"core", SET_CORE},       {"exec", SET_EXEC},     {"jobs", SET_JOBS},
    {"files", SET_FILES},     {"manage", SET_MANAGE}, {"snapshots", SET_SNAPSHOTS},
    {"network", SET_NETWORK}, {"children", SET_CHILDREN}, {"all", SET_ALL},
};

static const struct {
    unsigned bit;
    const char *name;
} hints[] = {
    {HINT_READONLY, "readOnlyHint"},
    {HINT_DESTRUCTIVE, "destructiveHint"},
    {HINT_IDEMPOTENT, "idempotentHint"},
    {HINT_OPENWORLD, "openWorldHint"},
};
// clang-format on

/* Made once by tools_load and only read afterwards. */
static struct {
    struct json *input;
    char *listed; /* the entry in tools/list */
} * loaded;

size_t tools_count(void)
{
    return ARRAY_LEN(table) + extra.n_tools;
}

const struct tool *tools_at(size_t i)
{
    if (i < ARRAY_LEN(table))
        return &table[i];
    return i < tools_count() ? &extra.tools[i - ARRAY_LEN(table)] : NULL;
}

static const struct json *input_of(const struct tool *t)
{
    size_t i = 0;
    while (tools_at(i) != t)
        i++;
    return loaded[i].input;
}

/* Values of settings that the texts mention. */
struct filler {
    const char *mark;
    int64_t value;
};

static void fill_in(const char *text, const struct filler *f, size_t n, struct buf *out)
{
    while (*text) {
        size_t plain = strcspn(text, "@"), i = 0;
        buf_add(out, text, plain);
        text += plain;
        while (i < n && strncmp(text, f[i].mark, strlen(f[i].mark)) != 0)
            i++;
        if (i < n) {
            buf_addf(out, "%" PRId64, f[i].value);
            text += strlen(f[i].mark);
        } else if (*text) {
            buf_addc(out, *text++);
        }
    }
}

static int load_schema(const char *text, struct json **ret, struct err *e)
{
    if (json_parse(text, strlen(text), ret, e) < 0)
        return -1;
    return schema_check(*ret, e);
}

static void write_annotations(const struct tool *t, struct jw *w)
{
    jw_key(w, "annotations");
    jw_object(w);
    for (size_t i = 0; i < ARRAY_LEN(hints); i++)
        jw_kbool(w, hints[i].name, t->hints & hints[i].bit);
    jw_end_object(w);
}

static void write_entry(const struct tool *t, const char *description, const struct json *input,
                        const struct json *output, struct buf *out)
{
    struct jw w = JW_INIT(out);
    jw_object(&w);
    jw_kstring(&w, "name", t->name);
    jw_kstring(&w, "title", t->title);
    jw_kstring(&w, "description", description);
    jw_key(&w, "inputSchema");
    jw_json(&w, input);
    if (output) {
        jw_key(&w, "outputSchema");
        jw_json(&w, output);
    }
    write_annotations(t, &w);
    jw_end_object(&w);
}

static int load_tool(size_t i, const struct filler *f, size_t n, struct err *e)
{
    const struct tool *t = tools_at(i);
    struct buf input = BUF_INIT(1 << 16), words = BUF_INIT(1 << 16), entry = BUF_INIT(1 << 16);
    _cleanup_json_ struct json *output = NULL;
    fill_in(t->input, f, n, &input);
    fill_in(t->description, f, n, &words);
    int r = load_schema(input.p, &loaded[i].input, e);
    if (r == 0 && t->output)
        r = load_schema(t->output, &output, e);
    if (r == 0) {
        write_entry(t, words.p, loaded[i].input, output, &entry);
        loaded[i].listed = buf_take(&entry);
    } else {
        err_wrap(e, "tool %s", t->name);
    }
    buf_release(&input);
    buf_release(&words);
    buf_release(&entry);
    return r;
}

int tools_load(const struct settings *s, struct err *e)
{
    const struct filler f[] = {
        {"@EXEC_TIMEOUT@", s->exec_timeout},
        {"@EXEC_WAIT@", s->exec_wait},
        {"@JOB_TIMEOUT@", s->job_timeout},
        {"@READ_MAX@", s->read_text_max},
    };
    if (!loaded)
        loaded = xcalloc(tools_count(), sizeof *loaded);
    for (size_t i = 0; i < tools_count(); i++)
        if (!loaded[i].input && load_tool(i, f, ARRAY_LEN(f), e) < 0)
            return -1;
    return 0;
}

void tools_unload(void)
{
    for (size_t i = 0; loaded && i < tools_count(); i++) {
        loaded[i].input = json_free(loaded[i].input);
        free(loaded[i].listed);
    }
    free(loaded);
    loaded = NULL;
}

static const struct tool *by_name(const char *name, unsigned toolsets)
{
    for (size_t i = 0; i < tools_count(); i++)
        if (streq(tools_at(i)->name, name))
            return tools_at(i)->toolset & toolsets ? tools_at(i) : NULL;
    return NULL;
}

const struct tool *tools_find(const char *name, unsigned toolsets,
                              const struct rename **ret_renames)
{
    const struct tool *t = by_name(name, toolsets);
    *ret_renames = NULL;
    for (size_t i = 0; !t && i < ARRAY_LEN(aliases); i++)
        if (streq(aliases[i].old, name)) {
            *ret_renames = aliases[i].renames;
            return by_name(aliases[i].now, toolsets);
        }
    return t;
}

const char *tools_nearest(const char *name, unsigned toolsets)
{
    const char *near = NULL;
    unsigned best = 6;
    for (size_t i = 0; i < tools_count(); i++) {
        const struct tool *t = tools_at(i);
        unsigned d = text_distance(name, t->name);
        if ((t->toolset & toolsets) && d < best && d * 2 <= strlen(t->name)) {
            best = d;
            near = t->name;
        }
    }
    return near;
}

void tools_names(unsigned toolsets, struct buf *out)
{
    for (size_t i = 0; i < tools_count(); i++)
        if (tools_at(i)->toolset & toolsets)
            buf_addf(out, "%s%s", out->len ? ", " : "", tools_at(i)->name);
}

void tools_list(unsigned toolsets, struct jw *w)
{
    jw_array(w);
    for (size_t i = 0; i < tools_count(); i++)
        if (tools_at(i)->toolset & toolsets)
            jw_raw(w, loaded[i].listed, strlen(loaded[i].listed));
    jw_end_array(w);
}

int tools_validate(const struct tool *t, const struct args *args, struct err *e)
{
    const struct json *schema = input_of(t);
    if (schema_validate(schema, args, e) == 0)
        return 0;
    struct buf usage = BUF_INIT(400);
    char fix[sizeof e->fix];
    schema_usage(schema, t->name, &usage);
    memcpy(fix, e->fix, sizeof fix);
    err_fix(e, "invalid_argument", "%.160s; usage: %s", fix, usage.p);
    buf_release(&usage);
    return -1;
}

static unsigned set_bits(const char *name, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(sets); i++)
        if (strlen(sets[i].name) == n && memcmp(sets[i].name, name, n) == 0)
            return sets[i].bits;
    return 0;
}

int toolsets_parse(const char *list, unsigned *ret, struct err *e)
{
    unsigned bits = 0;
    while (*list) {
        list += strspn(list, ", \t");
        size_t n = strcspn(list, ", \t");
        unsigned bit = set_bits(list, n);
        if (n && !bit) {
            struct buf shown = BUF_INIT(400);
            text_excerpt(&shown, list, n, 40);
            err_set(e, ERR_INVALID,
                    "there is no tool set \"%s\": there are all, core, exec, jobs, files, manage, "
                    "snapshots, network, children",
                    shown.p);
            buf_release(&shown);
            return err_fix(e, "config", "correct SMCP_TOOLSETS or the address");
        }
        bits |= bit;
        list += n;
    }
    *ret = bits ? bits : SET_ALL;
    return 0;
}

static const char *set_name(unsigned bit)
{
    for (size_t i = 0; i < ARRAY_LEN(sets); i++)
        if (sets[i].bits == bit)
            return sets[i].name;
    return "";
}

static void markdown_arguments(const struct json *schema, struct buf *out)
{
    const struct json *props = json_get(schema, "properties");
    if (!json_len(props)) {
        buf_adds(out, "No arguments.\n\n");
        return;
    }
    buf_adds(out, "| argument | type | default | meaning |\n|---|---|---|---|\n");
    for (const struct json *c = json_first(props); c; c = json_next(c)) {
        const struct json *type = json_get(c, "type"), *def = json_get(c, "default");
        buf_addf(out, "| `%s` | ", json_key(c));
        json_print(type, out);
        buf_adds(out, " | ");
        if (def)
            json_print(def, out);
        buf_addf(out, " | %s |\n", json_get_string(c, "description", ""));
    }
    buf_addc(out, '\n');
}

void tools_markdown(struct buf *out)
{
    buf_adds(out, "# Tools\n\nGenerated: sandbox-mcp --tools-docs\n\n");
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        _cleanup_json_ struct json *entry = NULL;
        struct err e = ERR_INIT;
        if (json_parse(loaded[i].listed, strlen(loaded[i].listed), &entry, &e) < 0)
            BUG("an entry of tools/list is not JSON");
        struct buf usage = BUF_INIT(1000);
        schema_usage(loaded[i].input, table[i].name, &usage);
        buf_addf(out, "## %s\n\n*%s* (set `%s`): `%s`\n\n%s\n\n", table[i].name, table[i].title,
                 set_name(table[i].toolset), usage.p, json_get_string(entry, "description", ""));
        markdown_arguments(loaded[i].input, out);
        buf_release(&usage);
    }
    buf_adds(out, "## Old names\n\n| name | answers as |\n|---|---|\n");
    for (size_t i = 0; i < ARRAY_LEN(aliases); i++)
        buf_addf(out, "| `%s` | `%s` |\n", aliases[i].old, aliases[i].now);
}
