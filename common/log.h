/*
 * log.h - one event, one line on stderr: "<priority>program: message key=value".
 *
 * The <n> prefix is what journald reads. Control characters are escaped, so a hostile string
 * cannot forge a line. Only the top of a call chain logs. Tokens, commands and file contents are
 * never logged.
 */
#ifndef SMCP_LOG_H
#define SMCP_LOG_H

#include "common/base.h"
#include "common/err.h"

enum log_level { LOG_LEVEL_ERROR = 3, LOG_LEVEL_WARN = 4, LOG_LEVEL_INFO = 6, LOG_LEVEL_DEBUG = 7 };

void log_init(const char *program, enum log_level max);
void log_line(enum log_level level, const char *fmt, ...) _printf_(2, 3);

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* "what: message (kind, file:line)" */
void log_err(enum log_level level, const char *what, const struct err *e);

#endif
