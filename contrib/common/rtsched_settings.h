/* The settings of a submit filter: lines of `key = value`, by default in /etc/rtsched/submit.conf. */
#ifndef RTSCHED_SETTINGS_H
#define RTSCHED_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RTSCHED_SETTINGS_FILE "/etc/rtsched/submit.conf"

/* What becomes of a job that wants a promise while the daemon does not answer. */
enum rtsched_policy {
	RTSCHED_FAIL_OPEN,	/* let in without a promise */
	RTSCHED_FAIL_HOLD,	/* held until the daemon has judged it */
	RTSCHED_FAIL_CLOSED, /* refused */
};

struct rtsched_settings {
	char socket[108];
	int timeout_ms;
	enum rtsched_policy on_failure;
	int breaker_failures;
	int breaker_ms;
	bool judge_all; /* every job, not only those with a deadline */
	bool share_nodes; /* Slurm only: promised jobs share nodes with others */
	char daemon_user[64];
	uid_t daemon_uid; /* RTSCHED_NOBODY if there is no such user */
	char promised_jobs[256];     /* Slurm only */
	char table[256];	     /* HTCondor only */
};

#define RTSCHED_NOBODY ((uid_t)-1)

void rtsched_settings_default(struct rtsched_settings *settings);

/* Read a file over the defaults.
 *
 * Returns whether it makes sense. If not, `settings` stays as it was, and `problem` says in one
 * sentence which line is wrong and why. A file that does not exist makes sense: the defaults hold.
 */
bool rtsched_settings_read(const char *path, struct rtsched_settings *settings, char *problem,
			   size_t size);

/* Look daemon_user up; false if there is no such user. */
bool rtsched_settings_find_user(struct rtsched_settings *settings);

#ifdef __cplusplus
}
#endif
#endif
