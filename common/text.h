/*
 * text.h - bytes of unknown origin to text that is safe in JSON.
 *
 * What a command prints can be anything. text_clean turns it into valid UTF-8, and says what it
 * was: UTF-8 stays as it is; GB18030 (which contains GBK and GB2312) is converted when the bytes
 * read as such text and not as UTF-8 with some damage; anything else gets U+FFFD for each broken
 * sequence.
 * A piece cut out of a longer stream may begin or end inside a character: the cut flags say so,
 * and the partial character at that end is left out instead of being replaced.
 */
#ifndef SMCP_TEXT_H
#define SMCP_TEXT_H

#include "common/base.h"
#include "common/buf.h"

enum text_encoding { TEXT_UTF8, TEXT_GB18030, TEXT_BINARY };

#define TEXT_CUT_FRONT 1u
#define TEXT_CUT_BACK  2u

const char *text_encoding_name(enum text_encoding enc);

bool text_utf8_valid(const char *p, size_t n);

/* Length of the longest front part that does not end inside a UTF-8 character. */
size_t text_utf8_trim(const char *p, size_t n);

/* Append the cleaned bytes; returns what they were. */
enum text_encoding text_clean(struct buf *out, const char *p, size_t n, unsigned cut);

/* The first bytes of a text for a message: control characters out, cut on a character border. */
void text_excerpt(struct buf *out, const char *p, size_t n, size_t max);

/* Whole base-10 number with nothing around it, within [lo, hi]. 0 or -1. */
int text_int(const char *s, int64_t lo, int64_t hi, int64_t *ret);

/* Sandbox name: 1 to 63 of A-Z a-z 0-9 _ . -, the first a letter or digit. */
bool text_sandbox_name(const char *s);

/* Edits (insert, delete, change) between two short names, for "did you mean". */
unsigned text_distance(const char *a, const char *b);

/* "SIGKILL"; "SIG64" for one without a name. Returns `room`. */
char *text_signal(int sig, char room[16]);

void text_base64(struct buf *out, const void *p, size_t n);
int text_unbase64(struct buf *out, const char *p, size_t n);

#endif
