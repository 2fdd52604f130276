#include "common/base.h"

#include "common/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* What is accepted prints as JSON that is accepted again and prints the same. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err e = ERR_INIT;
    struct json *j = NULL, *again = NULL;
    if (json_parse((const char *)data, n, &j, &e) < 0) {
        check(e.kind == ERR_INVALID && !j);
        return 0;
    }
    struct buf first = BUF_INIT(8 * n + 64), second = BUF_INIT(8 * n + 64);
    json_print(j, &first);
    check(!buf_bad(&first));
    check(json_parse(first.p, first.len, &again, &e) == 0);
    json_print(again, &second);
    check(streq(first.p, second.p));
    (void)json_free(j);
    (void)json_free(again);
    buf_release(&first);
    buf_release(&second);
    return 0;
}
