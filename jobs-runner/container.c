#include "common/base.h"

#include "common/layout.h"
#include "common/wire.h"
#include "jobs-runner/sandbox_internal.h"

/* Docker's default set less what a sandbox has no honest use for. */
static const char *const dropped_capabilities[] = {"NET_RAW", "MKNOD", "AUDIT_WRITE", "SETPCAP"};

void container_name(const struct sandbox *sb, struct buf *out)
{
    buf_addf(out, "%s%s", sb->r->cfg->container_prefix, sb->name);
    if (sb->name_tries > 0)
        buf_addf(out, "-%.6s", sb->r->instance);
    if (sb->name_tries > 1) {
        char id[ULID_LEN + 1];
        ulid_new(id);
        buf_addf(out, "-%s", id + ULID_LEN - 8);
    }
}

/* Host names take letters, digits and inner hyphens only. */
static void host_name(const struct sandbox *sb, struct buf *out)
{
    for (const char *p = sb->name; *p; p++)
        buf_addc(out, *p == '_' || *p == '.' ? '-' : *p);
    while (out->len && out->p[out->len - 1] == '-') {
        out->len--;
        out->p[out->len] = '\0';
    }
}

static void mount(struct jw *w, const char *source, const char *target, bool read_only)
{
    jw_object(w);
    jw_kstring(w, "Type", "bind");
    jw_kstring(w, "Source", source);
    jw_kstring(w, "Target", target);
    jw_kbool(w, "ReadOnly", read_only);
    jw_end_object(w);
}

static void mounts(const struct sandbox *sb, struct jw *w)
{
    struct buf path = BUF_INIT(PATH_MAX);
    jw_key(w, "Mounts");
    jw_array(w);
    layout_workspace(sb->r->cfg, sb->name, &path);
    mount(w, path.p, "/workspace", false);
    buf_clear(&path);
    layout_socket_dir(sb->r->cfg, sb->name, &path);
    mount(w, path.p, WIRE_DIR, false);
    mount(w, sb->r->agent, WIRE_AGENT_PATH, true);
    jw_end_array(w);
    buf_release(&path);
}

static void strings(struct jw *w, const char *key, const char *const *list, size_t n)
{
    jw_key(w, key);
    jw_array(w);
    for (size_t i = 0; i < n; i++)
        jw_string(w, list[i]);
    jw_end_array(w);
}

static double cores(double wanted)
{
    long have = sysconf(_SC_NPROCESSORS_ONLN);
    return have > 0 && wanted > (double)have ? (double)have : wanted;
}

static void host_config(const struct sandbox *sb, struct jw *w)
{
    static const char *const security[] = {"no-new-privileges"};
    jw_key(w, "HostConfig");
    jw_object(w);
    mounts(sb, w);
    jw_kint(w, "Memory", sb->spec.memory);
    jw_kint(w, "MemorySwap", sb->spec.memory);
    jw_kint(w, "NanoCpus", (int64_t)(cores(sb->spec.cpus) * 1e9));
    jw_kint(w, "PidsLimit", sb->spec.pids);
    jw_kstring(w, "NetworkMode", sb->spec.network);
    jw_kstring(w, "Runtime", *sb->spec.runtime ? sb->spec.runtime : NULL);
    strings(w, "SecurityOpt", security, ARRAY_LEN(security));
    strings(w, "CapDrop", dropped_capabilities, ARRAY_LEN(dropped_capabilities));
    jw_kraw(w, "LogConfig", "{\"Type\":\"none\"}", 15);
    jw_kraw(w, "RestartPolicy", "{\"Name\":\"no\"}", 13);
    jw_end_object(w);
}

static void labels(const struct sandbox *sb, struct jw *w)
{
    jw_key(w, "Labels");
    jw_object(w);
    jw_kstring(w, "io.sandbox_mcp", "1");
    jw_kstring(w, "io.sandbox_mcp.name", sb->name);
    jw_kstring(w, "io.sandbox_mcp.instance", sb->r->instance);
    jw_end_object(w);
}

void container_body(const struct sandbox *sb, struct buf *out)
{
    static const char *const entry[] = {WIRE_AGENT_PATH};
    struct buf host = BUF_INIT(64);
    struct jw w = JW_INIT(out);
    jw_object(&w);
    jw_kstring(&w, "Image", sb->spec.image);
    strings(&w, "Entrypoint", entry, 1);
    strings(&w, "Cmd", NULL, 0);
    jw_kstring(&w, "User", "0:0");
    jw_kstring(&w, "WorkingDir", "/workspace");
    host_name(sb, &host);
    jw_kstring(&w, "Hostname", host.p);
    jw_kraw(&w, "Healthcheck", "{\"Test\":[\"NONE\"]}", 17);
    jw_kstring(&w, "StopSignal", "SIGTERM");
    labels(sb, &w);
    host_config(sb, &w);
    jw_end_object(&w);
    buf_release(&host);
}
