/* A job description as a request to the daemon. */
#ifndef RTSCHED_JOB_REQUEST_H
#define RTSCHED_JOB_REQUEST_H

#include "../common/rtsched_client.h"
#include "slurm_internal.h"

/* Whether the text holds a word of ours, such as `rtsched:sigma=100`. */
bool rtsched_has_word(const char *text);

/* Describe what `submit_uid` wants to submit. */
void rtsched_describe_submit(const job_desc_msg_t *job, uint32_t submit_uid,
			     struct rtsched_request *request);

/* Describe what `submit_uid` wants to change.
 *
 * Returns whether that touches anything that a promise may rest on; if not, nobody needs to be asked.
 */
bool rtsched_describe_modify(const job_desc_msg_t *job, uint32_t submit_uid,
			     struct rtsched_request *request);

/* Return the number of the job that a change is about, as the daemon reads it: of an array's task the
 * array's. NO_VAL: it names none. */
uint32_t rtsched_job_number(const job_desc_msg_t *job);

#endif
