#include "fcgi/tool.h"

int tool_list_files(struct call *c)
{
    return err_set(&c->err, ERR_INTERNAL, "not yet");
}

int tool_read_text(struct call *c)
{
    return err_set(&c->err, ERR_INTERNAL, "not yet");
}

int tool_write_text(struct call *c)
{
    return err_set(&c->err, ERR_INTERNAL, "not yet");
}
