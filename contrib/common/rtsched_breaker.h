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

/* A breaker that tells users apart: failures of one user alone, such as of one who asks what takes
 * long, close the daemon to that user only. Those of several users in a row close it to all; if one
 * of them was borne more for that, for twice as long the first time, so that a daemon that hangs
 * costs no more in all. Questions that were under way when one failed wait for the same thing, and
 * do not count: else one moment at which the daemon stands still, while many submit, would close it
 * to all. Zeros are a closed one.
 */
struct rtsched_user_breaker {
	struct rtsched_breaker all, one;
	int64_t failed_at; /* ms; of the last failure that counted */
	int64_t row;  /* whose failures in a row there are: a user + 1, or several users' */
	int64_t user; /* who is kept out by `one`: a user + 1; 0: nobody */
};

#define RTSCHED_SEVERAL_USERS INT64_MAX

static inline bool rtsched_user_breaker_lets(struct rtsched_user_breaker *breaker, uint32_t user,
					     int64_t now, int pause_ms)
{
	if (__atomic_load_n(&breaker->user, __ATOMIC_ACQUIRE) == (int64_t)user + 1 &&
	    !rtsched_breaker_lets(&breaker->one, now, pause_ms))
		return false;
	return rtsched_breaker_lets(&breaker->all, now, pause_ms);
}

static inline void rtsched_user_breaker_succeeded(struct rtsched_user_breaker *breaker,
						  uint32_t user)
{
	int64_t own = (int64_t)user + 1;

	__atomic_store_n(&breaker->row, 0, __ATOMIC_RELEASE);
	rtsched_breaker_succeeded(&breaker->all);
	if (__atomic_compare_exchange_n(&breaker->user, &own, 0, false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		rtsched_breaker_succeeded(&breaker->one);
}

/* Return whether the failure of a question that began then opened it, for one user or for all. */
static inline bool rtsched_user_breaker_failed(struct rtsched_user_breaker *breaker, uint32_t user,
					       int64_t began, int64_t now, int failures,
					       int pause_ms)
{
	int64_t own = (int64_t)user + 1, whose = 0;
	int64_t before = __atomic_load_n(&breaker->failed_at, __ATOMIC_ACQUIRE);
	int count;

	if (began < before ||
	    !__atomic_compare_exchange_n(&breaker->failed_at, &before, now, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE))
		return false;
	count = __atomic_add_fetch(&breaker->all.failures, 1, __ATOMIC_RELAXED);
	if (__atomic_compare_exchange_n(&breaker->row, &whose, own, false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		whose = own;
	if (whose != own)
		__atomic_store_n(&breaker->row, RTSCHED_SEVERAL_USERS, __ATOMIC_RELEASE);
	if (count < failures)
		return false;
	if (whose == own) {
		__atomic_store_n(&breaker->user, own, __ATOMIC_RELEASE);
		return !__atomic_exchange_n(&breaker->one.closed_at, now + pause_ms,
					    __ATOMIC_ACQ_REL);
	}
	if (count > failures && whose != RTSCHED_SEVERAL_USERS)
		now += pause_ms;
	return !__atomic_exchange_n(&breaker->all.closed_at, now + pause_ms, __ATOMIC_ACQ_REL);
}

#endif
