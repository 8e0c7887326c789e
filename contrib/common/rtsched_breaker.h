/* A circuit breaker: after some failures in a row the daemon is left alone for a while, since each
 * further question would stall the batch system for a whole time-out. Then one question goes
 * through; its outcome decides for all others. Zeros are a closed breaker. Thread safe.
 */
#ifndef RTSCHED_BREAKER_H
#define RTSCHED_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

struct rtsched_breaker {
	int failures;	   /* in a row */
	int64_t closed_at; /* ms; 0: questions go through */
};

/* Return whether the daemon may be asked now; if so, the outcome must be told. */
static inline bool rtsched_breaker_lets(struct rtsched_breaker *breaker, int64_t now, int pause_ms)
{
	int64_t until = __atomic_load_n(&breaker->closed_at, __ATOMIC_ACQUIRE);

	if (!until)
		return true;
	if (now < until)
		return false;
	/* One of the threads that get here asks; for the others the pause begins anew. */
	return __atomic_compare_exchange_n(&breaker->closed_at, &until, now + pause_ms, false,
					   __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static inline void rtsched_breaker_succeeded(struct rtsched_breaker *breaker)
{
	__atomic_store_n(&breaker->failures, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&breaker->closed_at, 0, __ATOMIC_RELEASE);
}

/* Return whether this failure opened it. */
static inline bool rtsched_breaker_failed(struct rtsched_breaker *breaker, int64_t now,
					  int failures, int pause_ms)
{
	if (__atomic_add_fetch(&breaker->failures, 1, __ATOMIC_RELAXED) < failures)
		return false;
	return !__atomic_exchange_n(&breaker->closed_at, now + pause_ms, __ATOMIC_ACQ_REL);
}

#endif
