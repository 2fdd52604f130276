/* clock.h - the two clocks. Deadlines and idle times use the monotonic one, records the real one.
 */
#ifndef SMCP_CLOCK_H
#define SMCP_CLOCK_H

#include "common/base.h"

int64_t clock_real_ms(void); /* since 1970-01-01 UTC */
int64_t clock_mono_us(void); /* since some start; never goes back */

/* "2026-01-31T12:00:00Z" into out (at least 32 bytes); returns out. */
char *clock_iso(int64_t real_ms, char out[32]);

#endif
