#include "fcgi/keys.h"

#include "common/clock.h"
#include "common/fs.h"
#include "common/log.h"
#include "fcgi/fetch.h"

#include <sys/file.h>

#define FILE_MAX    (2 * FETCH_MAX)
#define LOCK_TRY_NS 20000000

void keys_init(struct keys *k, const struct settings *s)
{
    *k = (struct keys){.settings = s};
}

void keys_release(struct keys *k)
{
    jwks_release(&k->set);
}

/* --- the shared file ------------------------------------------------------------------------ */

static void path_of(const struct keys *k, const char *suffix, struct buf *out)
{
    buf_addf(out, "%s/oauth-keys.%s", k->settings->run_dir, suffix);
}

/* Takes over what a text of the shared file says; of another issuer's it takes nothing. */
static int adopt(struct keys *k, const struct buf *text, struct err *e)
{
    _cleanup_json_ struct json *j = NULL;
    struct jwks set = {0};
    if (json_parse(text->p, text->len, &j, e) < 0)
        return -1;
    if (!streq(json_get_string(j, "issuer", ""), k->settings->oauth_issuer))
        return 0;
    k->tried_ms = json_get_int(j, "tried_ms", 0);
    if (!json_get(j, "set"))
        return 0;
    if (jwks_parse(json_get(j, "set"), &set, e) < 0)
        return -1;
    jwks_release(&k->set);
    k->set = set;
    k->fetched_ms = json_get_int(j, "fetched_ms", 0);
    return 0;
}

static void reload(struct keys *k)
{
    struct buf path = BUF_INIT(PATH_MAX), text = BUF_INIT(FILE_MAX);
    struct stat st;
    struct err e = ERR_INIT;
    path_of(k, "json", &path);
    if (stat(path.p, &st) == 0 && (st.st_ino != k->file || st.st_mtim.tv_sec != k->changed.tv_sec ||
                                   st.st_mtim.tv_nsec != k->changed.tv_nsec)) {
        k->file = st.st_ino;
        k->changed = st.st_mtim;
        if (fs_read_secret(path.p, &text, &e) < 0 || adopt(k, &text, &e) < 0)
            log_err(LOG_LEVEL_WARN, path.p, &e);
    }
    buf_release(&path);
    buf_release(&text);
}

/* Whole or not at all: others read at any time. */
static int replace(const char *path, const struct buf *text, struct err *e)
{
    struct buf new = BUF_INIT(PATH_MAX);
    buf_addf(&new, "%s.new", path);
    int fd = open(new.p, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int r = fd < 0 ? err_sys(e, "cannot write %s", new.p) : fs_write_all(fd, text->p, text->len, e);
    if (fd >= 0)
        (void)close(fd);
    if (r == 0 && rename(new.p, path) < 0)
        r = err_sys(e, "cannot rename %s", new.p);
    buf_release(&new);
    return r;
}

/* --- fetching ------------------------------------------------------------------------------- */

/* A date in the future is of a clock that was set back since. */
static bool within(int64_t then_ms, int64_t span_ms, int64_t now_ms)
{
    return then_ms <= now_ms && now_ms - then_ms < span_ms;
}

/* -1 when another worker has it (and it was not given back in time). */
static int take_lock(const struct keys *k, bool wait)
{
    struct buf path = BUF_INIT(PATH_MAX);
    path_of(k, "lock", &path);
    int fd = open(path.p, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    buf_release(&path);
    int64_t until = clock_mono_us() + (wait ? KEYS_WAIT_MS * 1000LL : 0);
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK || clock_mono_us() >= until) {
            (void)close(fd);
            return -1;
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = LOCK_TRY_NS}, NULL);
    }
    return fd;
}

/* What the shared file will say; "set" is absent as long as no fetch succeeded. */
static void write_text(const struct keys *k, const struct json *set, int64_t fetched_ms,
                       struct buf *out)
{
    struct jw w = JW_INIT(out);
    jw_object(&w);
    jw_kstring(&w, "issuer", k->settings->oauth_issuer);
    jw_kint(&w, "tried_ms", clock_real_ms());
    if (set) {
        jw_kint(&w, "fetched_ms", fetched_ms);
        jw_key(&w, "set");
        jw_json(&w, set);
    }
    jw_end_object(&w);
}

static int fetch_set(const struct keys *k, struct json **ret, struct err *e)
{
    struct buf text = BUF_INIT(FETCH_MAX + 1); /* a sign in front */
    struct jwks set = {0};
    int r = fetch_keys(k->settings->oauth_issuer, &text, e);
    if (r == 0)
        r = json_parse(text.p, text.len, ret, e);
    if (r == 0)
        r = jwks_parse(*ret, &set, e);
    jwks_release(&set);
    buf_release(&text);
    return r;
}

/* The set in the shared file, for a text that only dates the try. */
static const struct json *old_set(const char *path, struct json **ret_tree)
{
    struct buf text = BUF_INIT(FILE_MAX);
    struct err e = ERR_INIT;
    if (fs_read_secret(path, &text, &e) < 0 || json_parse(text.p, text.len, ret_tree, &e) < 0)
        *ret_tree = NULL;
    buf_release(&text);
    return json_get(*ret_tree, "set");
}

/* Under the lock. A fetch that fails leaves the keys and dates the try. */
static void fetch_and_store(struct keys *k)
{
    struct buf path = BUF_INIT(PATH_MAX), text = BUF_INIT(FILE_MAX);
    _cleanup_json_ struct json *tree = NULL;
    struct err e = ERR_INIT;
    path_of(k, "json", &path);
    if (fetch_set(k, &tree, &e) == 0) {
        write_text(k, tree, clock_real_ms(), &text);
        log_info("the keys of the OAuth issuer were fetched");
    } else {
        log_err(LOG_LEVEL_WARN, "the keys of the OAuth issuer", &e);
        tree = json_free(tree);
        write_text(k, k->set.n ? old_set(path.p, &tree) : NULL, k->fetched_ms, &text);
    }
    if (buf_bad(&text) || adopt(k, &text, &e) < 0 || replace(path.p, &text, &e) < 0)
        log_err(LOG_LEVEL_WARN, "the keys of the OAuth issuer", &e);
    buf_release(&path);
    buf_release(&text);
}

static void refresh(struct keys *k, bool wait, int64_t pause_ms)
{
    if (within(k->tried_ms, pause_ms, clock_real_ms()))
        return;
    _cleanup_close_ int lock = take_lock(k, wait);
    reload(k);
    if (lock >= 0 && !within(k->tried_ms, pause_ms, clock_real_ms()))
        fetch_and_store(k);
}

const struct jwk *keys_find(struct keys *k, const struct jwt *t, struct err *e)
{
    reload(k);
    const struct jwk *key = jwks_find(&k->set, t);
    if (key && within(k->fetched_ms, KEYS_AGE_MS, clock_real_ms()))
        return key;
    refresh(k, !key, key ? KEYS_RENEW_MS : KEYS_RETRY_MS);
    key = jwks_find(&k->set, t);
    if (key)
        return key;
    if (!k->set.n) {
        err_set(e, ERR_UNAVAILABLE, "the keys of the OAuth issuer cannot be had at the moment");
        (void)err_fix(e, "issuer_down", "try again in a minute");
    } else {
        err_set(e, ERR_UNAUTH,
                "this access token is not accepted: the issuer has no key that it is signed with");
        (void)err_fix(e, "invalid_token", "get a new one from the authorization server");
    }
    return NULL;
}
