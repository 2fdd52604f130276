#include "common/base.h"

#include "common/wire.h"

/* The agent has no library; its decoder is pure enough to be compiled right in. */
#include "images/agent/fields.c"
#include "images/agent/input.c"
#include "images/agent/queue.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* What every handler of the agent does with a payload of fields. */
static int on_fields(const struct frame *f)
{
    static struct fields fields;
    struct wire_field v;
    char text[WIRE_RUN_ID_MAX + 1];
    size_t pos = 0, envs = 0, total = 0;
    if (fields_parse(f->p, f->n, &fields))
        return -1;
    for (size_t tag = 1; tag <= WT_TARGET; tag++) {
        (void)fields_number(&fields, (enum wire_tag)tag, 7);
        if (fields_string(&fields, (enum wire_tag)tag, text, sizeof text))
            check(strlen(text) < sizeof text);
    }
    while (fields_each(&fields, WT_ENV, &pos, &v)) {
        check(v.n <= f->n && (v.n == 0 || memchr(v.p, 0, v.n) != v.p + v.n));
        total += v.n + 1;
        envs++;
    }
    /* The memory for a run's strings is sized by this. */
    check(envs == fields.envs && total <= f->n);
    return 0;
}

static int on_raw(const struct frame *f)
{
    return f->n > WIRE_MAX_MESSAGE || (f->n && f->p[0] == 0xff && f->p[f->n - 1] == 0xff) ? -1 : 0;
}

static const struct frame_handler table[WIRE_TYPE_COUNT] = {
    [WIRE_HELLO] = {on_fields, true},     [WIRE_RUN] = {on_fields, true},
    [WIRE_SIGNAL] = {on_fields, true},    [WIRE_PING] = {on_raw, true},
    [WIRE_STDIN] = {on_raw, false},       [WIRE_FILE_DATA] = {on_raw, false},
    [WIRE_FILE_READ] = {on_fields, true}, [WIRE_FILE_LIST] = {on_fields, true},
};

/* The first byte chooses in what pieces the bytes arrive. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct input in = {.table = table};
    size_t piece = n ? data[0] + 1u : 1;
    for (size_t at = 1; at < n;) {
        size_t room;
        unsigned char *to = input_room(&in, &room);
        check(to && room > 0);
        size_t k = MIN(MIN(piece, n - at), room);
        memcpy(to, data + at, k);
        at += k;
        if (input_take(&in, k))
            break;
    }
    input_trim(&in);
    input_reset(&in);
    return 0;
}
