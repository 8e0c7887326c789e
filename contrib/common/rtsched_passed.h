/* Which jobs a submit filter let pass lately, and for how long they may run: the daemon sees them with
 * its next poll only, and they may have started by then. One entry per second. Thread safe.
 */
#ifndef RTSCHED_PASSED_H
#define RTSCHED_PASSED_H

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define RTSCHED_PASSED_SECONDS 64 /* longer than the daemon answers from one poll */
#define RTSCHED_PASSED_SIZE 4096  /* bytes of the text of all of them */
#define RTSCHED_UNLIMITED INT64_C(-1)
#define RTSCHED_DEFAULT_LIMIT INT64_C(-2) /* it named no limit */

struct rtsched_passed {
	pthread_mutex_t lock;
	struct {
		int64_t second;	 /* since the epoch */
		int64_t longest; /* the longest limit, minutes, or RTSCHED_UNLIMITED */
		bool by_default; /* a job that named no limit was among them */
	} at[RTSCHED_PASSED_SECONDS];
};

#define RTSCHED_NOTHING_PASSED                                                                     \
	{.lock = PTHREAD_MUTEX_INITIALIZER, .at = {}}

/* Note a job that passes now, with its limit: minutes, or one of the two above. */
static inline void rtsched_passed_note(struct rtsched_passed *passed, int64_t now, int64_t limit)
{
	int slot = (int)(now % RTSCHED_PASSED_SECONDS);

	if (now <= 0)
		return;
	pthread_mutex_lock(&passed->lock);
	if (passed->at[slot].second != now) {
		passed->at[slot].second = now;
		passed->at[slot].longest = 0;
		passed->at[slot].by_default = false;
	}
	if (limit == RTSCHED_DEFAULT_LIMIT)
		passed->at[slot].by_default = true;
	else if (limit < 0 || passed->at[slot].longest < 0)
		passed->at[slot].longest = RTSCHED_UNLIMITED;
	else if (limit > passed->at[slot].longest)
		passed->at[slot].longest = limit;
	pthread_mutex_unlock(&passed->lock);
}

/* Write what passed lately as `SECOND:LIMIT,...`; `text` has RTSCHED_PASSED_SIZE bytes. */
static inline void rtsched_passed_text(struct rtsched_passed *passed, int64_t now, char *text)
{
	size_t used = 0;

	text[0] = 0;
	pthread_mutex_lock(&passed->lock);
	for (int slot = 0; slot < RTSCHED_PASSED_SECONDS; slot++) {
		int64_t second = passed->at[slot].second;

		if (second <= now - RTSCHED_PASSED_SECONDS)
			continue;
		if (passed->at[slot].longest || !passed->at[slot].by_default)
			used += (size_t)snprintf(text + used, RTSCHED_PASSED_SIZE - used,
						 "%s%" PRId64 ":%" PRId64, used ? "," : "", second,
						 passed->at[slot].longest);
		if (passed->at[slot].by_default)
			used += (size_t)snprintf(text + used, RTSCHED_PASSED_SIZE - used,
						 "%s%" PRId64 ":%" PRId64, used ? "," : "", second,
						 RTSCHED_DEFAULT_LIMIT);
	}
	pthread_mutex_unlock(&passed->lock);
}

#endif
