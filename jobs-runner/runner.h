/*
 * runner.h - what every part of the daemon shares: one struct, passed along, never global.
 *
 * One thread runs one sd-event loop; nothing in it blocks. What has to block (fsync, deleting
 * trees) is done by the housekeeper (housekeeper.h), the only other thread.
 */
#ifndef RUNNER_H
#define RUNNER_H

#include "common/base.h"
#include "common/buf.h"
#include "common/db.h"
#include "common/err.h"
#include "common/json.h"
#include "common/settings.h"

#include <systemd/sd-event.h>

struct docker;
struct housekeeper;
struct outbox;
struct run;
struct sandbox;

struct runner {
    const struct settings *cfg;
    struct db db;
    sd_event *loop;
    struct docker *docker;
    struct housekeeper *housekeeper;
    struct outbox *outbox;
    char instance[33]; /* identity of the database: containers carry it as a label */
    char agent[PATH_MAX];
    struct sandbox *sandboxes; /* list */
    void *sandbox_index;       /* tsearch tree by name */
    size_t sandbox_count;
    struct run *runs; /* live ones, list */
    void *run_index;  /* tsearch tree by id */
    size_t run_count;
    sd_event_source *doorbell;
    sd_event_source *take_timer; /* requests could not be taken: try again */
    sd_event_source *gc_timer;
    sd_event_source *stall_timer;
    int doorbell_fd;
};

/* Timer helpers: `after_us` from now, once. The source belongs to the caller. */
int timer_after(struct runner *r, sd_event_source **s, int64_t after_us, sd_event_time_handler_t cb,
                void *arg);
void timer_off(sd_event_source **s);

#endif
