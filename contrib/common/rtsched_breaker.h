/* A circuit breaker: after some failures in a row the daemon is left alone for a while, since each
 * further question would stall the batch system for a whole time-out. Then one question goes
 * through; its outcome decides for all others. A daemon that is known to answer again is asked
 * before that: at once, and after each question that it does not answer in time either it has twice
 * as long, up to the whole pause; until it answers one. Zeros are a closed breaker. Thread safe.
 */
#ifndef RTSCHED_BREAKER_H
#define RTSCHED_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#define RTSCHED_EARLY 5 /* questions before the end of a pause, at most, without an answer */

struct rtsched_breaker {
	int failures;	   /* in a row */
	int early;	   /* questions before the end of a pause since the last answer */
	int64_t early_at;  /* ms; before that, none */
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

/* Return whether it matters now that the daemon answers again. */
static inline bool rtsched_breaker_waits(const struct rtsched_breaker *breaker, int64_t now)
{
	return now < __atomic_load_n(&breaker->closed_at, __ATOMIC_ACQUIRE) &&
	       now >= __atomic_load_n(&breaker->early_at, __ATOMIC_ACQUIRE);
}

/* The daemon answers again: the pause ends, if that matters. */
static inline void rtsched_breaker_recovers(struct rtsched_breaker *breaker, int64_t now,
					    int pause_ms)
{
	int64_t until = __atomic_load_n(&breaker->closed_at, __ATOMIC_ACQUIRE);
	int64_t early_at = __atomic_load_n(&breaker->early_at, __ATOMIC_ACQUIRE);

	if (now >= until || now < early_at ||
	    !__atomic_compare_exchange_n(&breaker->early_at, &early_at, now + pause_ms, false,
					 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return;
	__atomic_add_fetch(&breaker->early, 1, __ATOMIC_ACQ_REL);
	__atomic_compare_exchange_n(&breaker->closed_at, &until, now, false, __ATOMIC_ACQ_REL,
				    __ATOMIC_ACQUIRE);
}

static inline void rtsched_breaker_succeeded(struct rtsched_breaker *breaker)
{
	__atomic_store_n(&breaker->failures, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&breaker->early, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&breaker->early_at, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&breaker->closed_at, 0, __ATOMIC_RELEASE);
}

/* Open it, or begin its pause anew, longer by `more_ms`; return whether it was closed. */
static inline bool rtsched_breaker_opens(struct rtsched_breaker *breaker, int64_t now, int pause_ms,
					 int more_ms)
{
	int early = __atomic_load_n(&breaker->early, __ATOMIC_ACQUIRE);
	int64_t wait = early < RTSCHED_EARLY ? pause_ms >> (RTSCHED_EARLY - early) : pause_ms;

	__atomic_store_n(&breaker->early_at, early ? now + wait : now, __ATOMIC_RELEASE);
	return !__atomic_exchange_n(&breaker->closed_at, now + pause_ms + more_ms,
				    __ATOMIC_ACQ_REL);
}

/* Return whether this failure opened it. */
static inline bool rtsched_breaker_failed(struct rtsched_breaker *breaker, int64_t now,
					  int failures, int pause_ms)
{
	if (__atomic_add_fetch(&breaker->failures, 1, __ATOMIC_RELAXED) < failures)
		return false;
	return rtsched_breaker_opens(breaker, now, pause_ms, 0);
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

/* Return whether it matters to a user now that the daemon answers again. */
static inline bool rtsched_user_breaker_waits(const struct rtsched_user_breaker *breaker,
					      uint32_t user, int64_t now)
{
	return rtsched_breaker_waits(&breaker->all, now) ||
	       (__atomic_load_n(&breaker->user, __ATOMIC_ACQUIRE) == (int64_t)user + 1 &&
		rtsched_breaker_waits(&breaker->one, now));
}

static inline void rtsched_user_breaker_recovers(struct rtsched_user_breaker *breaker, int64_t now,
						 int pause_ms)
{
	rtsched_breaker_recovers(&breaker->all, now, pause_ms);
	rtsched_breaker_recovers(&breaker->one, now, pause_ms);
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
	int count, more_ms = 0;

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
		return rtsched_breaker_opens(&breaker->one, now, pause_ms, 0);
	}
	if (count > failures && whose != RTSCHED_SEVERAL_USERS)
		more_ms = pause_ms;
	return rtsched_breaker_opens(&breaker->all, now, pause_ms, more_ms);
}

#endif
