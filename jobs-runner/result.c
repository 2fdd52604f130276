#include "common/base.h"

#include "common/clock.h"
#include "jobs-runner/run.h"

static void note(struct buf *notes, const char *fmt, ...) _printf_(2, 3);
static void note(struct buf *notes, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    buf_addf(notes, "%s%s", notes->len ? " " : "", text);
}

/* stdout or stderr with its encoding; returns the bytes left out. */
static uint64_t stream(struct jw *w, const char *key, const struct capture *c, bool open,
                       enum text_encoding *enc)
{
    struct buf text = BUF_INIT(8 * c->half + 256);
    enum text_encoding mine;
    uint64_t dropped = capture_text(c, open, &text, &mine);
    jw_key(w, key);
    jw_string_n(w, text.p, text.len);
    buf_release(&text);
    *enc = MAX(*enc, mine);
    return dropped;
}

static void ending(const struct run *run, struct jw *w, struct buf *notes)
{
    char name[16];
    if (run->exit_code >= 0)
        jw_kint(w, "exit_code", run->exit_code);
    jw_kbool(w, "timed_out", run->timed_out);
    if (run->signal)
        jw_kstring(w, "signal", text_signal(run->signal, name));
    if (run->timed_out)
        note(notes,
             "The time limit of %" PRId64 " s was reached and every process of the command "
             "was killed; pass a larger timeout, or use run_background.",
             run->timeout_ms / 1000);
    if (run->oom_killed) {
        jw_kbool(w, "oom_killed", true);
        note(notes, "The sandbox's memory limit was reached and the kernel killed a process; use "
                    "less memory or a sandbox with a larger limit.");
    }
    if (run->left_running) {
        jw_kint(w, "left_running", run->left_running);
        note(notes,
             "%" PRId64 " background process%s of this command %s still running; later "
             "output of %s is not kept (redirect it to a file).",
             run->left_running, run->left_running == 1 ? "" : "es",
             run->left_running == 1 ? "is" : "are", run->left_running == 1 ? "it" : "them");
    }
}

static void healing(const struct run *run, struct jw *w)
{
    if (run->heal == HEAL_NONE)
        return;
    static const char *const names[] = {"", "recreated", "restarted", "unpaused"};
    jw_kbool(w, "recreated", run->heal != HEAL_UNPAUSED);
    jw_kstring(w, "healed", names[run->heal]);
    jw_kstring(w, "reason", run->heal_reason);
}

static void running_notes(const struct run *run, struct buf *notes)
{
    if (run->state == RUN_QUEUED)
        note(notes, "The sandbox is still being prepared; the command starts when it is ready.");
    note(notes,
         "The command goes on as job %s: get_job shows its output and end, stop_job ends "
         "it. Do not start it again.",
         run->id);
}

static void log_notes(const struct run *run, uint64_t dropped, enum text_encoding enc, struct jw *w,
                      struct buf *notes)
{
    if (dropped) {
        jw_kbool(w, "truncated", true);
        jw_kint(w, "dropped_bytes", (int64_t)dropped);
        note(notes,
             "The middle of the output was left out; get_job with job_id %s and offset "
             "reads all that was kept.",
             run->id);
    }
    if (enc != TEXT_UTF8)
        jw_kstring(w, "encoding", text_encoding_name(enc));
    if (run->merged)
        note(notes, "The server restarted meanwhile: stdout holds both streams.");
    if (run->log_failed)
        note(notes, "A part of the log could not be stored: the server's disk is full.");
}

void run_result(const struct run *run, bool running, struct buf *out)
{
    struct buf notes = BUF_INIT(4096);
    struct jw w = JW_INIT(out);
    enum text_encoding enc = TEXT_UTF8;
    int64_t us = running ? clock_mono_us() - run->started_us : run->duration_us;
    jw_object(&w);
    jw_kstring(&w, "status", running ? "running" : run->status);
    uint64_t dropped = stream(&w, "stdout", &run->out, running, &enc);
    dropped += stream(&w, "stderr", &run->err, running, &enc);
    if (running)
        jw_kbool(&w, "timed_out", false);
    else
        ending(run, &w, &notes);
    jw_kint(&w, "duration_ms", (us + 500) / 1000);
    jw_kstring(&w, "sandbox", run->sandbox);
    jw_kbool(&w, "sandbox_created", run->created);
    if (running || dropped || run->job)
        jw_kstring(&w, "job_id", run->id);
    healing(run, &w);
    if (running)
        running_notes(run, &notes);
    log_notes(run, dropped, enc, &w, &notes);
    if (run->created)
        note(&notes, "The sandbox was new and has been created for this call.");
    if (!running && *run->reason)
        jw_kstring(&w, run->heal == HEAL_NONE ? "reason" : "end_reason", run->reason);
    if (notes.len)
        jw_kstring(&w, "note", notes.p);
    jw_end_object(&w);
    buf_release(&notes);
}

void run_started_result(const struct run *run, struct buf *out)
{
    struct buf notes = BUF_INIT(512);
    struct jw w = JW_INIT(out);
    jw_object(&w);
    jw_kstring(&w, "job_id", run->id);
    jw_kstring(&w, "sandbox", run->sandbox);
    jw_kstring(&w, "status", run->status ? run->status : "running");
    jw_kbool(&w, "sandbox_created", run->created);
    healing(run, &w);
    if (run->created)
        note(&notes, "The sandbox was new and has been created for this job.");
    if (run->state == RUN_QUEUED && !run->status)
        note(&notes, "The sandbox is still being prepared; the job starts when it is ready.");
    if (notes.len)
        jw_kstring(&w, "note", notes.p);
    jw_end_object(&w);
    buf_release(&notes);
}
