/* What all submit filters do alike: settings that follow their file, and questions behind a breaker.
 *
 * C11 and POSIX; thread safe. A filter keeps one of these for its life.
 */
#ifndef RTSCHED_FILTER_H
#define RTSCHED_FILTER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "rtsched_breaker.h"
#include "rtsched_client.h"
#include "rtsched_settings.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rtsched_filter {
	/* Where lines for the log go; must not be NULL. */
	void (*log)(bool is_error, const char *line);
	struct rtsched_user_breaker breaker;
	int64_t complain_at; /* ms */
	int probe;	     /* a socket + 1: asks whether the daemon answers again; 0: none */
	/* Below: guarded by the lock. */
	pthread_mutex_t lock;
	struct rtsched_settings settings;
	struct stat read_of; /* the file that was read */
	int64_t look_at;     /* ms; 0: nothing has been read yet */
};

/* A filter that has asked and read nothing yet; all members are named for the sake of C++. */
#define RTSCHED_FILTER(to)                                                                         \
	{.log = (to), .breaker = {}, .complain_at = 0, .probe = 0,                                 \
	 .lock = PTHREAD_MUTEX_INITIALIZER, .settings = {}, .read_of = {}, .look_at = 0}

/* Return the settings; the file is looked at once a second, and read when it has changed. */
struct rtsched_settings rtsched_filter_settings(struct rtsched_filter *filter);

/* Ask the daemon for a user, unless the breaker is open; failures are logged. As rtsched_ask
 * otherwise. While it is open, it is looked whether the daemon answers again; nobody waits for
 * that. */
enum rtsched_outcome rtsched_filter_ask(struct rtsched_filter *filter, uint32_t user,
					const struct rtsched_settings *settings,
					struct rtsched_request *request,
					struct rtsched_answer *answer);

/* Log why an answer is no verdict, at most once a second: a flood of jobs must not become a flood of
 * lines. */
void rtsched_filter_complain(struct rtsched_filter *filter, const char *why);

#ifdef __cplusplus
}
#endif
#endif
