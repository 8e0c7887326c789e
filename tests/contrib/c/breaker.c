/* The breaker, by hand and by many threads at once. */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "rtsched_breaker.h"

#undef NDEBUG

static struct rtsched_breaker shared;
static int let_through;

static void by_hand(void)
{
	struct rtsched_breaker breaker = {0};

	assert(rtsched_breaker_lets(&breaker, 1000, 500));
	assert(!rtsched_breaker_failed(&breaker, 1000, 2, 500)); /* one failure is borne */
	assert(rtsched_breaker_lets(&breaker, 1000, 500));
	assert(rtsched_breaker_failed(&breaker, 1000, 2, 500)); /* the second opens it */
	assert(!rtsched_breaker_lets(&breaker, 1499, 500));
	assert(rtsched_breaker_lets(&breaker, 1500, 500)); /* one probe */
	assert(!rtsched_breaker_lets(&breaker, 1500, 500));
	assert(!rtsched_breaker_failed(&breaker, 1550, 2, 500)); /* it fails: open as before */
	assert(!rtsched_breaker_lets(&breaker, 2049, 500));
	assert(rtsched_breaker_lets(&breaker, 2050, 500));
	rtsched_breaker_succeeded(&breaker);
	assert(rtsched_breaker_lets(&breaker, 2050, 500));
	assert(!rtsched_breaker_failed(&breaker, 2050, 2, 500)); /* the count began anew */
}

/* A daemon that answers again is asked before the pause ends; in vain, not for a while that doubles. */
static void recovering(void)
{
	static const int waits[] = {0, 50, 100, 200, 400}; /* of a pause of 800 ms */
	struct rtsched_breaker breaker = {0};
	int64_t now = 1000;

	rtsched_breaker_recovers(&breaker, 900, 500); /* it is closed: nothing to do */
	assert(!rtsched_breaker_waits(&breaker, 900));
	assert(rtsched_breaker_failed(&breaker, 1000, 1, 500));
	assert(rtsched_breaker_waits(&breaker, 1010));
	assert(!rtsched_breaker_lets(&breaker, 1010, 500));
	rtsched_breaker_recovers(&breaker, 1010, 500);
	assert(rtsched_breaker_lets(&breaker, 1010, 500));
	rtsched_breaker_recovers(&breaker, 1020, 500);
	assert(!rtsched_breaker_lets(&breaker, 1020, 500)); /* one question decides */
	rtsched_breaker_succeeded(&breaker);
	assert(rtsched_breaker_lets(&breaker, 1020, 500));

	assert(rtsched_breaker_failed(&breaker, now, 1, 800));
	for (int i = 0; i < 5; i++) {
		if (waits[i]) {
			assert(!rtsched_breaker_waits(&breaker, now + waits[i] - 1));
			rtsched_breaker_recovers(&breaker, now + waits[i] - 1, 800);
		}
		assert(!rtsched_breaker_lets(&breaker, now + waits[i], 800));
		assert(rtsched_breaker_waits(&breaker, now + waits[i]));
		now += waits[i];
		rtsched_breaker_recovers(&breaker, now, 800);
		assert(rtsched_breaker_lets(&breaker, now, 800));
		assert(!rtsched_breaker_failed(&breaker, now, 1, 800));
	}
	for (int i = 0; i < 3; i++) { /* from here on, as if it did not answer at all */
		assert(!rtsched_breaker_waits(&breaker, now + 799));
		rtsched_breaker_recovers(&breaker, now + 799, 800);
		assert(!rtsched_breaker_lets(&breaker, now + 799, 800));
		now += 800;
		assert(rtsched_breaker_lets(&breaker, now, 800));
		assert(!rtsched_breaker_failed(&breaker, now, 1, 800));
	}
	assert(rtsched_breaker_lets(&breaker, now + 800, 800));
	rtsched_breaker_succeeded(&breaker); /* and from here on, as at first */
	assert(rtsched_breaker_failed(&breaker, now, 1, 800));
	assert(rtsched_breaker_waits(&breaker, now));
}

/* Return how many questions of one user fail, if each does that goes through. */
static int failing(bool seems_to_answer)
{
	struct rtsched_user_breaker breaker = {0};
	int questions = 0;

	for (int64_t now = 1; now < 100000; now++) {
		if (!rtsched_user_breaker_lets(&breaker, 7, now, 500)) {
			if (seems_to_answer && rtsched_user_breaker_waits(&breaker, 7, now))
				rtsched_user_breaker_recovers(&breaker, now, 500);
			continue;
		}
		questions++;
		rtsched_user_breaker_failed(&breaker, 7, now, now, 2, 500);
	}
	return questions;
}

/* Failures of one user alone close it to that user; of several in a row, to all. */
static void by_user(void)
{
	struct rtsched_user_breaker breaker = {0};

	assert(!rtsched_user_breaker_failed(&breaker, 7, 1000, 1000, 2, 500));
	assert(rtsched_user_breaker_failed(&breaker, 7, 1000, 1000, 2, 500));
	assert(!rtsched_user_breaker_lets(&breaker, 7, 1499, 500));
	assert(rtsched_user_breaker_lets(&breaker, 8, 1001, 500));
	rtsched_user_breaker_succeeded(&breaker, 8); /* no word on the questions of the other one */
	assert(!rtsched_user_breaker_lets(&breaker, 7, 1499, 500));
	assert(!rtsched_user_breaker_failed(&breaker, 8, 1499, 1499, 2, 500));
	assert(rtsched_user_breaker_lets(&breaker, 7, 1500, 500)); /* a probe of its own */
	assert(!rtsched_user_breaker_lets(&breaker, 7, 1500, 500));
	rtsched_user_breaker_succeeded(&breaker, 7);
	assert(rtsched_user_breaker_lets(&breaker, 7, 1501, 500));

	assert(!rtsched_user_breaker_failed(&breaker, 7, 2000, 2000, 2, 500));
	assert(rtsched_user_breaker_failed(&breaker, 8, 2000, 2000, 2, 500)); /* two of two users */
	assert(!rtsched_user_breaker_lets(&breaker, 9, 2499, 500));
	assert(rtsched_user_breaker_lets(&breaker, 9, 2500, 500)); /* one probe of all */
	assert(!rtsched_user_breaker_lets(&breaker, 8, 2500, 500));
	rtsched_user_breaker_succeeded(&breaker, 9);

	for (int i = 0; i < 2; i++)
		rtsched_user_breaker_failed(&breaker, 7, 3000, 3000, 2, 500);
	assert(rtsched_user_breaker_failed(&breaker, 8, 3000, 3000, 2, 500)); /* the third that is borne */
	assert(!rtsched_user_breaker_lets(&breaker, 9, 3999, 500)); /* for a pause more */
	assert(rtsched_user_breaker_waits(&breaker, 9, 3001)); /* unless it answers again */
	assert(rtsched_user_breaker_lets(&breaker, 9, 4000, 500));
	rtsched_user_breaker_succeeded(&breaker, 9);

	for (uint32_t user = 7; user < 17; user++) /* all of these wait when the daemon stands still */
		assert(!rtsched_user_breaker_failed(&breaker, user, 5000, 5050, 2, 500));
	assert(rtsched_user_breaker_lets(&breaker, 8, 5060, 500));
	assert(rtsched_user_breaker_failed(&breaker, 8, 5060, 5110, 2, 500)); /* it still does */
}

static struct rtsched_user_breaker of_users;

static void *mixing_users(void *unused)
{
	(void)unused;
	for (int i = 0; i < 20000; i++)
		if (rtsched_user_breaker_lets(&of_users, (uint32_t)i % 3, i, 3)) {
			if (i % 5)
				rtsched_user_breaker_failed(&of_users, (uint32_t)i % 3, i, i, 2, 3);
			else
				rtsched_user_breaker_succeeded(&of_users, (uint32_t)i % 3);
		} else if (rtsched_user_breaker_waits(&of_users, (uint32_t)i % 3, i)) {
			rtsched_user_breaker_recovers(&of_users, i, 3);
		}
	return NULL;
}

static void *probing(void *unused)
{
	(void)unused;
	for (int i = 0; i < 20000; i++)
		if (rtsched_breaker_lets(&shared, 2000, 500))
			__atomic_add_fetch(&let_through, 1, __ATOMIC_RELAXED);
	return NULL;
}

static void *mixing(void *unused)
{
	(void)unused;
	for (int i = 0; i < 20000; i++)
		if (rtsched_breaker_lets(&shared, i, 3)) {
			if (i % 3)
				rtsched_breaker_failed(&shared, i, 2, 3);
			else
				rtsched_breaker_succeeded(&shared);
		} else {
			rtsched_breaker_recovers(&shared, i, 3);
		}
	return NULL;
}

static void by_many(void *(*work)(void *))
{
	pthread_t threads[8];

	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
}

int main(void)
{
	by_hand();
	recovering();
	assert(failing(true) <= failing(false) + RTSCHED_EARLY);
	by_user();
	by_many(mixing_users);
	rtsched_breaker_failed(&shared, 1000, 1, 500);
	by_many(probing);
	assert(let_through == 1); /* of all threads at once, one probes */
	by_many(mixing);
	puts("good");
	return 0;
}
