#define _GNU_SOURCE
#include "rtsched_filter.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rtsched_file.h"

static const char *settings_file(void)
{
	const char *path = getenv("RTSCHED_SUBMIT_CONF");

	return path && *path ? path : RTSCHED_SETTINGS_FILE;
}

__attribute__((format(printf, 3, 4))) static void say(struct rtsched_filter *filter, bool is_error,
						      const char *format, ...)
{
	char line[1024];
	va_list values;

	va_start(values, format);
	vsnprintf(line, sizeof(line), format, values);
	va_end(values);
	filter->log(is_error, line);
}

/* Read the file if it is another one than was read last; the lock is held. */
static void refresh(struct rtsched_filter *filter, bool first)
{
	struct rtsched_settings *settings = &filter->settings;
	char problem[512];
	struct stat seen = {0};

	if (stat(settings_file(), &seen))
		memset(&seen, 0, sizeof(seen));
	if (!first && rtsched_is_unchanged(&filter->read_of, &seen))
		return;
	filter->read_of = seen;
	if (!rtsched_settings_read(settings_file(), settings, problem, sizeof(problem)))
		say(filter, true, "rtsched: %s; the settings are unchanged", problem);
	else
		say(filter, false, "rtsched: settings of %s: socket %s, %d ms", settings_file(),
		    settings->socket, settings->timeout_ms);
	if (!rtsched_settings_find_user(settings))
		say(filter, true,
		    "rtsched: there is no user %s: only root is accepted as the daemon. When the "
		    "user exists, `touch %s`",
		    settings->daemon_user, settings_file());
}

struct rtsched_settings rtsched_filter_settings(struct rtsched_filter *filter)
{
	struct rtsched_settings copied;
	int64_t now = rtsched_now_ms();

	pthread_mutex_lock(&filter->lock);
	if (now >= filter->look_at) {
		bool first = !filter->look_at;

		if (first)
			rtsched_settings_default(&filter->settings);
		filter->look_at = now + 1000;
		refresh(filter, first);
	}
	copied = filter->settings;
	pthread_mutex_unlock(&filter->lock);
	return copied;
}

static void complain(struct rtsched_filter *filter, const char *what, const char *why)
{
	int64_t now = rtsched_now_ms();
	int64_t expected = __atomic_load_n(&filter->complain_at, __ATOMIC_RELAXED);

	if (now >= expected &&
	    __atomic_compare_exchange_n(&filter->complain_at, &expected, now + 1000, false,
					__ATOMIC_RELAXED, __ATOMIC_RELAXED))
		say(filter, true, "rtsched: the daemon %s: %s", what, why);
}

void rtsched_filter_complain(struct rtsched_filter *filter, const char *why)
{
	static const char mark[] = "rtsched: "; /* as the daemon's own texts begin */

	complain(filter, "could not evaluate",
		 strncmp(why, mark, sizeof(mark) - 1) ? why : why + sizeof(mark) - 1);
}

/* Have another probe under way, or none (0), in place of the present one. */
static void replace_probe(struct rtsched_filter *filter, int probe)
{
	int before = __atomic_exchange_n(&filter->probe, probe, __ATOMIC_ACQ_REL);

	if (before)
		close(before - 1);
}

/* Return whether the daemon answers again; what asks that stays under way until it is answered. */
static bool answers_again(struct rtsched_filter *filter, const struct rtsched_settings *settings,
			  uid_t owner)
{
	int probe = __atomic_exchange_n(&filter->probe, 0, __ATOMIC_ACQ_REL);
	enum rtsched_probe_state state = RTSCHED_PROBE_LOST;

	if (probe)
		state = rtsched_probe_state(probe - 1);
	if (state == RTSCHED_PROBE_WAITS) {
		replace_probe(filter, probe);
		return false;
	}
	if (probe)
		close(probe - 1);
	if (state == RTSCHED_PROBE_LOST)
		replace_probe(filter, rtsched_probe(settings->socket, owner) + 1);
	return state == RTSCHED_PROBE_ANSWERED;
}

/* Return whether the breaker lets a question of a user through. */
static bool may_ask(struct rtsched_filter *filter, uint32_t user,
		    const struct rtsched_settings *settings, uid_t owner, int64_t now)
{
	if (rtsched_user_breaker_lets(&filter->breaker, user, now, settings->breaker_ms))
		return true;
	if (!rtsched_user_breaker_waits(&filter->breaker, user, now) ||
	    !answers_again(filter, settings, owner))
		return false;
	rtsched_user_breaker_recovers(&filter->breaker, now, settings->breaker_ms);
	return rtsched_user_breaker_lets(&filter->breaker, user, now, settings->breaker_ms);
}

enum rtsched_outcome rtsched_filter_ask(struct rtsched_filter *filter, uint32_t user,
					const struct rtsched_settings *settings,
					struct rtsched_request *request,
					struct rtsched_answer *answer)
{
	/* Without a known daemon_user only root's socket is trusted. */
	uid_t owner = settings->daemon_uid == RTSCHED_NOBODY ? 0 : settings->daemon_uid;
	int64_t began = rtsched_now_ms();
	enum rtsched_outcome outcome;

	memset(answer, 0, sizeof(*answer));
	if (!may_ask(filter, user, settings, owner, began))
		return RTSCHED_NOT_ASKED;
	rtsched_add_number(request, RTSCHED_TAG_TIMEOUT_MS, settings->timeout_ms);
	rtsched_add_number(request, RTSCHED_TAG_ASKED_MS, began);
	outcome = rtsched_ask(settings->socket, settings->timeout_ms, owner, request, answer);
	if (outcome == RTSCHED_ANSWERED) {
		rtsched_user_breaker_succeeded(&filter->breaker, user);
		return outcome;
	}
	complain(filter, "could not be reached", rtsched_outcome_text(outcome));
	if (rtsched_user_breaker_failed(&filter->breaker, user, began, rtsched_now_ms(),
					settings->breaker_failures, settings->breaker_ms)) {
		say(filter, true,
		    "rtsched: after %d failures in a row the daemon is not contacted for %d ms, or "
		    "until it answers again",
		    settings->breaker_failures, settings->breaker_ms);
		/* One of an earlier time may have been answered then. */
		replace_probe(filter, rtsched_probe(settings->socket, owner) + 1);
	}
	return outcome;
}
