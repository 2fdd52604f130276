#include "common/base.h"

#include "jobs-runner/runner.h"

/* Timers need not be exact: the loop may join what is due within this time. */
#define ACCURACY_US 1000

int timer_after(struct runner *r, sd_event_source **s, int64_t after_us, sd_event_time_handler_t cb,
                void *arg)
{
    uint64_t wait = after_us > 0 ? (uint64_t)after_us : 0;
    if (!*s)
        return sd_event_add_time_relative(r->loop, s, CLOCK_MONOTONIC, wait, ACCURACY_US, cb, arg);
    int n = sd_event_source_set_time_relative(*s, wait);
    return n < 0 ? n : sd_event_source_set_enabled(*s, SD_EVENT_ONESHOT);
}

void timer_off(sd_event_source **s)
{
    if (*s)
        *s = sd_event_source_disable_unref(*s);
}
