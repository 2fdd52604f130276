#ifndef X
#define X
#include "images/agent/input.h"
int files_on_read(const struct frame *f);
int files_on_write(const struct frame *f);
int files_on_data(const struct frame *f);
int files_on_list(const struct frame *f);
void files_lost_runner(void);
#endif
