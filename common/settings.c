#include "common/settings.h"

#include "common/fs.h"
#include "common/text.h"

#include <math.h>

enum setting_type {
    S_TEXT,
    S_SECRET,
    S_PATH,
    S_ISSUER,
    S_WORD,
    S_WORDS,
    S_INT,
    S_SECONDS,
    S_BYTES,
    S_CPUS
};

struct setting {
    const char *group; /* heading, on the first row of a group */
    const char *name;
    enum setting_type type;
    size_t offset;
    const char *def;
    int64_t min, max; /* numbers; for S_CPUS in hundredths */
    const char *help;
};

#define AT(field) offsetof(struct settings, field)
#define NONE      .min = 0, .max = 0

// clang-format off
static const struct setting table[] = {
{ "Who may call, and under which address", "SMCP_TOKEN", S_SECRET, AT(token), "", NONE,
  "Bearer token that every client sends. 'make up' makes one on first start when this is empty and SMCP_TOKEN_FILE does not exist." },
{ NULL, "SMCP_TOKEN_FILE", S_TEXT, AT(token_file), "", NONE,
  "File (mode 0600) that holds the token when SMCP_TOKEN is empty. Empty: the file 'token' beside SMCP_STATE_DB." },
{ NULL, "SMCP_SIGNING_KEY", S_SECRET, AT(signing_key), "", NONE,
  "Key that signs file URLs. Empty: the token." },
{ NULL, "SMCP_PUBLIC_BASE_URL", S_TEXT, AT(public_base_url), "http://127.0.0.1:8000", NONE,
  "Address under which clients reach the server; signed URLs start with it. Set it to your public HTTPS address." },
{ NULL, "SMCP_ALLOWED_ORIGINS", S_TEXT, AT(allowed_origins), "", NONE,
  "Browser origins that may call, comma separated (https://app.example.org). Loopback origins always may." },
{ NULL, "SMCP_ALLOWED_HOSTS", S_TEXT, AT(allowed_hosts), "", NONE,
  "Host names accepted in the Host header, comma separated, besides loopback and the host of SMCP_PUBLIC_BASE_URL. '*': any." },
{ NULL, "SMCP_OAUTH_ISSUER", S_ISSUER, AT(oauth_issuer), "", NONE,
  "OAuth authorization server whose access tokens (JWT) are accepted besides the bearer token, exactly as it writes its name (https://login.example.org). Empty: the bearer token alone." },
{ NULL, "SMCP_OAUTH_AUDIENCE", S_WORD, AT(oauth_audience), "", NONE,
  "What an access token's 'aud' must contain. Empty: SMCP_PUBLIC_BASE_URL followed by /mcp." },
{ NULL, "SMCP_OAUTH_SCOPES", S_WORDS, AT(oauth_scopes), "", NONE,
  "Scopes that an access token must have, separated by blanks. Empty: none is asked for." },
{ "Where to listen", "SMCP_HOST", S_TEXT, AT(host), "127.0.0.1", NONE,
  "Address that the web server listens on. Leave it on loopback and put TLS in front." },
{ NULL, "SMCP_PORT", S_INT, AT(port), "8000", 1, 65535,
  "Port that the web server listens on; /mcp and /files share it." },
{ "Where things are kept", "SMCP_DATA_DIR", S_PATH, AT(data_dir), "/var/lib/sandbox-mcp/data", NONE,
  "Workspaces of the sandboxes and logs of their jobs." },
{ NULL, "SMCP_STATE_DB", S_PATH, AT(state_db), "/var/lib/sandbox-mcp/state.db", NONE,
  "SQLite database: sandboxes, jobs, requests." },
{ NULL, "SMCP_RUN_DIR", S_PATH, AT(run_dir), "/run/sandbox-mcp", NONE,
  "Sockets, FIFOs and pid files; may be a tmpfs. Each instance needs its own." },
{ NULL, "SMCP_AGENT", S_TEXT, AT(agent), "", NONE,
  "The sandbox-agent binary. Empty: the one beside jobs-runner." },
{ "Sandboxes", "SMCP_DOCKER_SOCKET", S_PATH, AT(docker_socket), "/var/run/docker.sock", NONE,
  "Unix socket of the Docker engine." },
{ NULL, "SMCP_BASE_IMAGE", S_TEXT, AT(base_image), "sandbox-mcp-base:latest", NONE,
  "Image of a new sandbox when create_sandbox names none. The default is built on this machine; any other is pulled on first use." },
{ NULL, "SMCP_CONTAINER_PREFIX", S_TEXT, AT(container_prefix), "smcp-", NONE,
  "Start of container names. A name already taken by something else gets a suffix." },
{ NULL, "SMCP_SANDBOX_NETWORK", S_TEXT, AT(network), "bridge", NONE,
  "Docker network of a sandbox; 'none' cuts the network." },
{ NULL, "SMCP_RUNTIME", S_TEXT, AT(runtime), "", NONE,
  "Docker runtime of a sandbox (runc, crun, runsc). Empty: the engine's default." },
{ NULL, "SMCP_MEM_LIMIT", S_BYTES, AT(mem_limit), "2g", 6 << 20, INT64_MAX,
  "Memory of one sandbox (swap included)." },
{ NULL, "SMCP_CPUS", S_CPUS, AT(cpus), "2", 1, 102400,
  "Processor cores of one sandbox; fractions are allowed. More than the machine has counts as all." },
{ NULL, "SMCP_PIDS_LIMIT", S_INT, AT(pids_limit), "512", 16, 4194304,
  "Processes and threads of one sandbox." },
{ NULL, "SMCP_MAX_SANDBOXES", S_INT, AT(max_sandboxes), "20", 1, 100000,
  "Sandboxes that may exist at a time; one more is refused." },
{ "Life and time (seconds)", "SMCP_IDLE_STOP_SECONDS", S_SECONDS, AT(idle_stop), "7200", 0, 1000000000,
  "Stop a sandbox that was not used for so long; its files stay and the next use starts it. 0: never." },
{ NULL, "SMCP_IDLE_REMOVE_SECONDS", S_SECONDS, AT(idle_remove), "604800", 0, 1000000000,
  "Remove a sandbox and its files when it was not used for so long. 0: never." },
{ NULL, "SMCP_GC_INTERVAL_SECONDS", S_SECONDS, AT(gc_interval), "300", 1, 86400,
  "How often the clean-up looks." },
{ NULL, "SMCP_EXEC_TIMEOUT", S_SECONDS, AT(exec_timeout), "60", 1, 604800,
  "Default time limit of exec." },
{ NULL, "SMCP_EXEC_WAIT", S_SECONDS, AT(exec_wait), "25", 1, 300,
  "How long exec waits before a command that still runs becomes a job. Phone and desktop clients give up at about 30." },
{ NULL, "SMCP_JOB_TIMEOUT", S_SECONDS, AT(job_timeout), "3600", 1, 31536000,
  "Default time limit of run_background." },
{ NULL, "SMCP_JOB_LOG_RETENTION", S_SECONDS, AT(job_log_retention), "86400", 60, 1000000000,
  "How long the record and log of an ended job are kept." },
{ NULL, "SMCP_URL_TTL", S_SECONDS, AT(url_ttl), "3600", 1, 31536000,
  "How long a signed file URL is valid." },
{ "Sizes", "SMCP_JOB_LOG_MAX_BYTES", S_BYTES, AT(job_log_max), "64m", 1 << 20, INT64_C(1) << 40,
  "Most bytes kept of one job's output; of more, the beginning and the end are kept." },
{ NULL, "SMCP_MAX_OUTPUT", S_BYTES, AT(max_output), "50000", 1000, 1 << 20,
  "Most bytes of stdout, and of stderr, in one result." },
{ NULL, "SMCP_READ_TEXT_MAX_BYTES", S_BYTES, AT(read_text_max), "200000", 1000, 16 << 20,
  "Most bytes that read_text returns." },
{ NULL, "SMCP_MAX_BODY_BYTES", S_BYTES, AT(max_body), "16m", 1 << 16, 256 << 20,
  "Largest request body on /mcp." },
{ "Tools and workers", "SMCP_TOOLSETS", S_TEXT, AT(toolsets), "all", NONE,
  "Tool sets that are offered, comma separated." },
{ NULL, "SMCP_WORKERS_MIN", S_INT, AT(workers_min), "4", 1, 1024,
  "Responder processes that always wait for requests." },
{ NULL, "SMCP_WORKERS_MAX", S_INT, AT(workers_max), "96", 1, 1024,
  "Most responder processes; each waiting call holds one." },
{ NULL, "SMCP_LOG_LEVEL", S_INT, AT(log_level), "6", 3, 7,
  "3 errors, 4 warnings, 6 information, 7 debugging." },
};
// clang-format on

static void *field(const struct settings *s, const struct setting *t)
{
    union {
        const struct settings *in;
        char *out;
    } u = {.in = s};
    return u.out + t->offset;
}

static bool is_text(const struct setting *t)
{
    return t->type <= S_WORDS;
}

static const char *text_of(const struct settings *s, const struct setting *t)
{
    char *v;
    memcpy(&v, field(s, t), sizeof v);
    return v ? v : "";
}

static void text_set(struct settings *s, const struct setting *t, const char *value)
{
    char *old, *copy = xstrdup(value);
    memcpy(&old, field(s, t), sizeof old);
    free(old);
    memcpy(field(s, t), &copy, sizeof copy);
}

static int parse_whole(const char *text, int64_t *ret, char **end)
{
    if (*text < '0' || *text > '9')
        return -1;
    errno = 0;
    long long v = strtoll(text, end, 10);
    if (errno || v < 0)
        return -1;
    *ret = v;
    return 0;
}

int settings_parse_bytes(const char *text, int64_t *ret)
{
    static const char units[] = "kmgt";
    int64_t v;
    char *end;
    if (parse_whole(text, &v, &end) < 0)
        return -1;
    int64_t factor = 1;
    if (*end) {
        const char *u = strchr(units, *end | 0x20);
        if (!u)
            return -1;
        for (const char *p = units; p <= u; p++)
            factor *= 1024;
        end++;
        if ((*end | 0x20) == 'i')
            end++;
        if ((*end | 0x20) == 'b')
            end++;
    }
    if (*end || v > INT64_MAX / factor)
        return -1;
    *ret = v * factor;
    return 0;
}

int settings_parse_cpus(const char *text, double *ret)
{
    if (!*text || strspn(text, "0123456789.") != strlen(text))
        return -1;
    char *end;
    double v = strtod(text, &end);
    if (*end || !isfinite(v) || v < 0.01 || v > 1024)
        return -1;
    *ret = v;
    return 0;
}

static int set_number(struct settings *s, const struct setting *t, const char *value, struct err *e)
{
    int64_t v = -1;
    char *end = NULL;
    int r = t->type == S_BYTES ? settings_parse_bytes(value, &v) : parse_whole(value, &v, &end);
    if (r < 0 || (end && *end) || v < t->min || v > t->max) {
        const char *what = t->type == S_BYTES     ? "a size such as 512m or 2g"
                           : t->type == S_SECONDS ? "whole seconds"
                                                  : "a whole number";
        err_set(e, ERR_INVALID, "%s=%s is not accepted: it takes %s from %" PRId64 " to %" PRId64,
                t->name, value, what, t->min, t->max);
        return err_fix(e, "config", "correct %s in the env file or the environment", t->name);
    }
    memcpy(field(s, t), &v, sizeof v);
    return 0;
}

static bool path_ok(const char *v)
{
    return *v == '/';
}

/* The characters of an address without user, query and fragment; none that ends a quoted string. */
static const char url_characters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    "-._~:/[]%!$&'()*+,;=";

/* What follows the scheme, or NULL when it is not such an address. */
static const char *url_rest(const char *url, const char *scheme)
{
    size_t n = strlen(scheme);
    if (strncmp(url, scheme, n) != 0 || !url[n] || strchr(":/", url[n]))
        return NULL;
    return url[n + strspn(url + n, url_characters)] ? NULL : url + n;
}

bool settings_url_ok(const char *url)
{
    static const char *const loopback[] = {"localhost", "127.0.0.1", "[::1]"};
    if (url_rest(url, "https://"))
        return true;
    const char *host = url_rest(url, "http://");
    for (size_t i = 0; host && i < ARRAY_LEN(loopback); i++) {
        size_t n = strlen(loopback[i]);
        if (strncmp(host, loopback[i], n) == 0 && (!host[n] || strchr(":/", host[n])))
            return true;
    }
    return false;
}

static bool issuer_ok(const char *v)
{
    return !*v || settings_url_ok(v);
}

/* Visible characters that need no escape in a header. */
static bool words_ok(const char *v)
{
    for (; *v; v++)
        if (*v < ' ' || *v > '~' || *v == '"' || *v == '\\')
            return false;
    return true;
}

static bool word_ok(const char *v)
{
    return words_ok(v) && !strchr(v, ' ');
}

static const struct {
    bool (*ok)(const char *value);
    const char *takes, *fix;
} texts[] = {
    [S_PATH] = {path_ok, "an absolute path", "start its value with /"},
    [S_ISSUER] = {issuer_ok, "an https address without query (http for this machine alone)",
                  "take the 'issuer' that the authorization server's metadata give"},
    [S_WORD] = {word_ok, "visible ASCII characters without blanks, quotes and backslashes",
                "correct it in the env file or the environment"},
    [S_WORDS] = {words_ok, "words of visible ASCII characters without quotes and backslashes",
                 "correct it in the env file or the environment"},
};

static int set_text(struct settings *s, const struct setting *t, const char *value, struct err *e)
{
    if (texts[t->type].ok && !texts[t->type].ok(value)) {
        err_set(e, ERR_INVALID, "%s=%s is not accepted: it takes %s", t->name, value,
                texts[t->type].takes);
        return err_fix(e, "config", "%s: %s", t->name, texts[t->type].fix);
    }
    text_set(s, t, value);
    return 0;
}

static int set_value(struct settings *s, const struct setting *t, const char *value, struct err *e)
{
    if (is_text(t))
        return set_text(s, t, value, e);
    if (t->type != S_CPUS)
        return set_number(s, t, value, e);
    double v;
    if (settings_parse_cpus(value, &v) < 0) {
        err_set(e, ERR_INVALID, "%s=%s is not accepted: it takes a number from 0.01 to 1024",
                t->name, value);
        return err_fix(e, "config", "correct %s in the env file or the environment", t->name);
    }
    memcpy(field(s, t), &v, sizeof v);
    return 0;
}

static const struct setting *find(const char *name, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strlen(table[i].name) == n && memcmp(table[i].name, name, n) == 0)
            return &table[i];
    return NULL;
}

static const char *nearest(const char *name)
{
    const char *best = table[0].name;
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (text_distance(table[i].name, name) < text_distance(best, name))
            best = table[i].name;
    return best;
}

/* A name of ours that is none is most likely mistyped. Others belong to other programs. */
static void note_unknown(struct settings *s, const char *line, size_t n)
{
    struct buf b = BUF_INIT(1 << 16);
    _cleanup_free_ char *name = xstrndup(line, MIN(n, (size_t)60));
    if (strncmp(name, "SMCP_", 5) != 0 || streq(name, "SMCP_ENV_FILE"))
        return;
    if (s->unknown)
        buf_addf(&b, "%s; ", s->unknown);
    buf_addf(&b, "%s is no setting (is %s meant?)", name, nearest(name));
    free(s->unknown);
    s->unknown = buf_take(&b);
}

/* One line of an env file, as systemd and a shell read it: NAME=value, quotes optional. */
static int file_line(struct settings *s, char *line, const char *path, int no, struct err *e)
{
    line += strspn(line, " \t");
    if (strncmp(line, "export ", 7) == 0)
        line += 7;
    line[strcspn(line, "\r\n")] = '\0';
    if (!*line || *line == '#')
        return 0;
    char *eq = strchr(line, '=');
    if (!eq)
        return err_set(e, ERR_INVALID, "%s:%d: the line is not NAME=value", path, no);
    char *value = eq + 1;
    size_t n = strlen(value);
    while (n && (value[n - 1] == ' ' || value[n - 1] == '\t'))
        value[--n] = '\0';
    if (n >= 2 && (*value == '"' || *value == '\'') && value[n - 1] == *value) {
        value[n - 1] = '\0';
        value++;
    }
    const struct setting *t = find(line, (size_t)(eq - line));
    if (!t)
        note_unknown(s, line, (size_t)(eq - line));
    if (!t || !*value)
        return 0;
    return set_value(s, t, value, e) < 0 ? err_wrap(e, "%s:%d", path, no) : 0;
}

static int load_file(struct settings *s, const char *path, struct err *e)
{
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    if (!f)
        return err_sys(e, "cannot read the env file %s", path);
    _cleanup_free_ char *line = NULL;
    size_t cap = 0;
    for (int no = 1; getline(&line, &cap, f) >= 0; no++)
        if (file_line(s, line, path, no, e) < 0)
            return -1;
    return 0;
}

static int load(struct settings *s, const char *env_file, struct err *e)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (set_value(s, &table[i], table[i].def, e) < 0)
            return -1;
    if (!env_file)
        env_file = getenv("SMCP_ENV_FILE");
    if (env_file && *env_file && load_file(s, env_file, e) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const char *v = getenv(table[i].name);
        if (v && *v && set_value(s, &table[i], v, e) < 0)
            return -1;
    }
    if (*s->oauth_issuer && !url_rest(s->public_base_url, "https://") &&
        !url_rest(s->public_base_url, "http://"))
        return err_set(
            e, ERR_INVALID,
            "SMCP_PUBLIC_BASE_URL=%s is not accepted beside SMCP_OAUTH_ISSUER: it takes an "
            "http or https address without query",
            s->public_base_url);
    if (s->workers_max < s->workers_min)
        return err_set(e, ERR_INVALID, "SMCP_WORKERS_MAX=%" PRId64 " is below SMCP_WORKERS_MIN",
                       s->workers_max);
    return 0;
}

int settings_load(struct settings *ret, const char *env_file, struct err *e)
{
    memset(ret, 0, sizeof *ret);
    if (load(ret, env_file, e) == 0)
        return 0;
    settings_release(ret);
    return -1;
}

void settings_release(struct settings *s)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (is_text(&table[i])) {
            char *v;
            memcpy(&v, field(s, &table[i]), sizeof v);
            free(v);
        }
    free(s->unknown);
    memset(s, 0, sizeof *s);
}

int settings_load_token(struct settings *s, struct err *e)
{
    if (!*s->token) {
        struct buf path = BUF_INIT(PATH_MAX), text = BUF_INIT(4096);
        if (*s->token_file)
            buf_adds(&path, s->token_file);
        else
            buf_addf(&path, "%.*stoken", (int)(strrchr(s->state_db, '/') + 1 - s->state_db),
                     s->state_db);
        int r = fs_read_secret(path.p, &text, e);
        if (r == 0) {
            free(s->token);
            s->token = xstrndup(text.p, strcspn(text.p, " \r\n\t"));
        }
        buf_release(&path);
        buf_release(&text);
        if (r < 0)
            return err_fix(e, "config", "run 'make up', which makes the token, or set SMCP_TOKEN");
    }
    if (strlen(s->token) < 16) {
        err_set(e, ERR_INVALID, "the token is shorter than 16 characters");
        return err_fix(e, "config", "make one with: openssl rand -hex 32");
    }
    return 0;
}

static void value_print(const struct settings *s, const struct setting *t, struct buf *out)
{
    int64_t i = 0;
    double d = 0;
    if (is_text(t)) {
        const char *v = text_of(s, t);
        buf_adds(out, t->type == S_SECRET && *v ? "(set)" : v);
    } else if (t->type == S_CPUS) {
        memcpy(&d, field(s, t), sizeof d);
        buf_addf(out, "%g", d);
    } else {
        memcpy(&i, field(s, t), sizeof i);
        buf_addf(out, "%" PRId64, i);
    }
}

void settings_print(const struct settings *s, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        buf_addf(out, "%s=", table[i].name);
        value_print(s, &table[i], out);
        buf_addc(out, '\n');
    }
    if (s->unknown)
        buf_addf(out, "# %s\n", s->unknown);
}

void settings_env_example(struct buf *out)
{
    buf_adds(out,
             "# Settings of sandbox-mcp. Copy to .env and change what you need; a line that is\n"
             "# commented out shows the default. Generated: sandbox-mcp --env-example\n");
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (table[i].group)
            buf_addf(out, "\n# == %s ==\n", table[i].group);
        buf_addf(out, "\n# %s\n#%s=%s\n", table[i].help, table[i].name, table[i].def);
    }
}

void settings_markdown(struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (table[i].group)
            buf_addf(out, "%s### %s\n\n| variable | default | meaning |\n|---|---|---|\n",
                     i ? "\n" : "", table[i].group);
        buf_addf(out, "| `%s` | %s | %s |\n", table[i].name,
                 *table[i].def ? table[i].def : "(empty)", table[i].help);
    }
}
