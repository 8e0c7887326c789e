/* Which jobs were promised something, while the daemon cannot be asked: the file that it leaves for
 * that. rtsched/daemon/promises.py writes it, and says what stands in it. */
#ifndef RTSCHED_PROMISED_JOBS_H
#define RTSCHED_PROMISED_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RTSCHED_MOST_PROMISED_JOBS 262144
#define RTSCHED_LONGEST_PROMISED_JOBS (4 << 20) /* bytes */

/* What the file says; zeros are an empty one. */
struct rtsched_promised_jobs {
	uint32_t newest; /* the highest job id that the daemon had seen */
	uint32_t *jobs;	 /* ascending; from malloc */
	size_t n_jobs;
	uint32_t *users; /* whose last jobs may carry promises; ascending; from malloc */
	size_t n_users;
};

/* Read the file's text; if it is malformed, nothing is kept and `wrong` says what, in one sentence. */
bool rtsched_promised_jobs_read(const char *text, size_t length, struct rtsched_promised_jobs *list,
				char *wrong, size_t size);
void rtsched_promised_jobs_free(struct rtsched_promised_jobs *list);

enum rtsched_promised {
	RTSCHED_NOT_PROMISED,
	RTSCHED_PROMISED,
	RTSCHED_PERHAPS_PROMISED, /* newer than the file, and of a user who was promised something */
	RTSCHED_PROMISES_UNKNOWN, /* there is no such file, or it cannot be trusted */
};

/* Whether one of `users`, who change a job and own it, may change it as one without a promise. */
enum rtsched_promised rtsched_promised_jobs_find(const struct rtsched_promised_jobs *list,
						 uint32_t job, const uint32_t users[2]);

/* Look a job up in a file, which must belong to `owner` or root and be writable for nobody else.
 *
 * The file is looked at once a second, and read when it has changed. After RTSCHED_PROMISES_UNKNOWN
 * `why` says what is wrong with it. Thread safe.
 */
enum rtsched_promised rtsched_promised_jobs_look(const char *path, uid_t owner, uint32_t job,
						 const uint32_t users[2], char *why, size_t size);

#endif
