/* A circuit breaker: after some failures in a row the daemon is left alone for a while, since each
 * further question would stall the batch system for a whole time-out. Then one question goes
 * through; its outcome decides for all others. A daemon that is known to answer again is asked
 * before that, once; if it fails, the pause begins anew and takes twice as long, so that a daemon
 * that does not keep up is asked no more often. Zeros are a closed breaker. Thread safe.
 */
#ifndef RTSCHED_BREAKER_H
#define RTSCHED_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

enum rtsched_early {
	RTSCHED_EARLY_MAY = 0, /* a question may go through before the pause ends */
	RTSCHED_EARLY_ASKED,   /* one does */
	RTSCHED_EARLY_FAILED,  /* it failed: none until this pause has ended */
};

struct rtsched_breaker {
	int failures;	   /* in a row */
	int early;	   /* an rtsched_early */
	int64_t closed_at; /* ms; 0: questions go through */
};

static inline bool rtsched_early_becomes(struct rtsched_breaker *breaker, int from, int to)
{
	return __atomic_compare_exchange_n(&breaker->early, &from, to, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_ACQUIRE);
}

/* Return whether the daemon may be asked now; if so, the outcome must be told. */
static inline bool rtsched_breaker_lets(struct rtsched_breaker *breaker, int64_t now, int pause_ms)
{
	int64_t until = __atomic_load_n(&breaker->closed_at, __ATOMIC_ACQUIRE);

	if (!until)
		return true;
	if (now < until)
		return false;
	/* One of the threads that get here asks; for the others the pause begins anew. */
	if (!__atomic_compare_exchange_n(&breaker->closed_at, &until, now + pause_ms, false,
					 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return false;
	rtsched_early_becomes(breaker, RTSCHED_EARLY_FAILED, RTSCHED_EARLY_MAY);
	return true;
}

/* Return whether it matters now that the daemon answers again. */
static inline bool rtsched_breaker_waits(const struct rtsched_breaker *breaker, int64_t now)
{
	return now < __atomic_load_n(&breaker->closed_at, __ATOMIC_ACQUIRE) &&
	       __atomic_load_n(&breaker->early, __ATOMIC_ACQUIRE) == RTSCHED_EARLY_MAY;
}

/* The daemon answers again: the pause ends, unless that was tried in vain. */
static inline void rtsched_breaker_recovers(struct rtsched_breaker *breaker, int64_t now)
{
	int64_t until = __atomic_load_n(&breaker->closed_at, __ATOMIC_ACQUIRE);

	if (now < until &&
	    rtsched_early_becomes(breaker, RTSCHED_EARLY_MAY, RTSCHED_EARLY_ASKED))
		__atomic_compare_exchange_n(&breaker->closed_at, &until, now, false,
					    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static inline void rtsched_breaker_succeeded(struct rtsched_breaker *breaker)
{
	__atomic_store_n(&breaker->failures, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&breaker->early, RTSCHED_EARLY_MAY, __ATOMIC_RELAXED);
	__atomic_store_n(&breaker->closed_at, 0, __ATOMIC_RELEASE);
}

/* Open it, or begin its pause anew; return whether it was closed. */
static inline bool rtsched_breaker_opens(struct rtsched_breaker *breaker, int64_t now, int pause_ms)
{
	if (rtsched_early_becomes(breaker, RTSCHED_EARLY_ASKED, RTSCHED_EARLY_FAILED))
		now += pause_ms;
	return !__atomic_exchange_n(&breaker->closed_at, now + pause_ms, __ATOMIC_ACQ_REL);
}

/* Return whether this failure opened it. */
static inline bool rtsched_breaker_failed(struct rtsched_breaker *breaker, int64_t now,
					  int failures, int pause_ms)
{
	if (__atomic_add_fetch(&breaker->failures, 1, __ATOMIC_RELAXED) < failures)
		return false;
	return rtsched_breaker_opens(breaker, now, pause_ms);
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

static inline void rtsched_user_breaker_recovers(struct rtsched_user_breaker *breaker, int64_t now)
{
	rtsched_breaker_recovers(&breaker->all, now);
	rtsched_breaker_recovers(&breaker->one, now);
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
		return rtsched_breaker_opens(&breaker->one, now, pause_ms);
	}
	if (count > failures && whose != RTSCHED_SEVERAL_USERS)
		now += pause_ms;
	return rtsched_breaker_opens(&breaker->all, now, pause_ms);
}

#endif
