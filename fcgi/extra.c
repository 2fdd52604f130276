#include "fcgi/extra.h"

const struct extra extra = {.tools = NULL};
