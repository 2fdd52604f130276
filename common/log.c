#include "common/log.h"

static const char *log_program = "sandbox-mcp";
static enum log_level log_max = LOG_LEVEL_INFO;

void log_init(const char *program, enum log_level max)
{
    log_program = program;
    log_max = max;
}

static size_t escape(char *out, size_t room, const char *s)
{
    size_t n = 0;
    for (; *s && n + 5 < room; s++) {
        unsigned char c = (unsigned char)*s;
        if (c >= 0x20 && c != 0x7f)
            out[n++] = *s;
        else
            n += (size_t)snprintf(out + n, room - n, "\\x%02x", c);
    }
    return n;
}

void log_line(enum log_level level, const char *fmt, ...)
{
    if (level > log_max)
        return;
    char msg[1024], line[1400];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    int n = snprintf(line, sizeof line, "<%d>%s: ", (int)level, log_program);
    size_t len = (size_t)n;
    len += escape(line + len, sizeof line - len - 1, msg);
    line[len++] = '\n';
    (void)!write(STDERR_FILENO, line, len);
}

void log_err(enum log_level level, const char *what, const struct err *e)
{
    log_line(level, "%s: %s (%s, %s:%d)", what, e->msg, err_code(e), e->file ? e->file : "?",
             e->line);
}
