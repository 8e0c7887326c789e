/* The daemon's answer, carried out on a job description. */
#ifndef RTSCHED_JOB_ANSWER_H
#define RTSCHED_JOB_ANSWER_H

#include "../common/rtsched_client.h"
#include "slurm_internal.h"

enum rtsched_submit_reply {
	RTSCHED_ACCEPTED,
	RTSCHED_REJECTED,
	RTSCHED_UNUSABLE, /* it holds no verdict, or a value that a job cannot have */
	RTSCHED_SILENT,	  /* there is none */
};

/* Read the answer and, if `job` is not NULL and it is accepted, set the fields in it.
 *
 * The job is changed by all fields or, unless it is accepted, by none. `message` is NULL or a new
 * text for the user, from Slurm's allocator.
 */
enum rtsched_submit_reply rtsched_carry_out(const struct rtsched_answer *answer, job_desc_msg_t *job,
					    char **message);

/* Return a new text from Slurm's allocator in which control characters are blanks. */
char *rtsched_plain_text(const char *text, size_t length);

void rtsched_set_text(char **to, const char *value);

#endif
