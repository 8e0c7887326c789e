/* job_submit/rtsched: asks the rtsched daemon about jobs that want a promise, and carries out what
 * it answers. Everything else is decided here, without asking.
 *
 * slurmctld calls job_submit and job_modify from several threads at once, while it holds locks: every
 * millisecond is paid by the cluster. Nothing is kept between calls but the settings, the breaker, and
 * the time limits of the jobs of the last minute.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "../common/rtsched_filter.h"
#include "../common/rtsched_passed.h"
#include "job_answer.h"
#include "job_request.h"
#include "node_state.h"
#include "promised_jobs.h"
#include "slurm_internal.h"
#include "unknown_jobs.h"

const char plugin_name[] = "rtsched: promises at submit";
const char plugin_type[] = "job_submit/rtsched";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

#define UNJUDGED "rtsched:unjudged"
#define PARKED "rtsched:parked"

static void log_line(bool is_error, const char *line)
{
	if (is_error)
		slurm_error("%s", line);
	else
		slurm_info("%s", line);
}

static struct rtsched_filter filter = RTSCHED_FILTER(log_line);
static struct rtsched_passed passed = RTSCHED_NOTHING_PASSED;

int init(void)
{
	pthread_mutex_lock(&filter.lock);
	filter.look_at = 0; /* a reconfigure reads the settings again */
	pthread_mutex_unlock(&filter.lock);
	rtsched_filter_settings(&filter);
	return SLURM_SUCCESS;
}

void fini(void)
{
}

/* In lines of its own, after what plug-ins before this one said. */
static void tell(char **err_msg, const char *text)
{
	size_t room;
	char *both = NULL;

	if (!err_msg)
		return;
	room = strlen(text) + (*err_msg ? strlen(*err_msg) : 0) + 2;
	if (*err_msg && (both = malloc(room)))
		snprintf(both, room, "%s\n%s", *err_msg, text);
	rtsched_set_text(err_msg, both ? both : text);
	free(both);
}

static bool is_ours(const struct rtsched_settings *set, uint32_t uid)
{
	return uid == 0 || (set->daemon_uid != RTSCHED_NOBODY && uid == set->daemon_uid);
}

/* What nobody but the daemon and root may name */

/* The daemon's reservations are called rtsched_NUMBER. That is no setting: the daemon deletes what it
 * does not know of these, so both must mean the same, and a site's own names stay the site's. */
static bool names_our_reservation(const char *names)
{
	static const char prefix[] = "rtsched_";

	while (names && *names) {
		names += strspn(names, ", \t\n+-=");
		if (!strncasecmp(names, prefix, sizeof(prefix) - 1)) {
			const char *number = names + sizeof(prefix) - 1;
			size_t digits = strspn(number, "0123456789");

			if (digits && strchr(", \t\n", number[digits]))
				return true; /* also at the text's end, where the NUL is found */
		}
		names += strcspn(names, ",");
	}
	return false;
}

/* Whether the request forges what only the daemon may write; the user is told. */
static bool forged(const struct rtsched_settings *set, const job_desc_msg_t *job, uint32_t uid,
		   char **err_msg)
{
	if (is_ours(set, uid))
		return false;
	if (names_our_reservation(job->reservation)) {
		tell(err_msg, "rtsched: this reservation keeps nodes free for a promised job; no "
			      "other job may use it. Leave --reservation out");
		return true;
	}
	if (job->admin_comment && !strncmp(job->admin_comment + strspn(job->admin_comment, " \t"),
					   "rtsched:", strlen("rtsched:"))) {
		tell(err_msg, "rtsched: only the rtsched daemon may write an admin comment that "
			      "begins with rtsched:");
		return true;
	}
	return false;
}

/* Asking */

/* Ask, and carry out the answer; RTSCHED_UNUSABLE and RTSCHED_SILENT: nobody judged it. */
static enum rtsched_submit_reply judged(const struct rtsched_settings *set, uint32_t uid,
					struct rtsched_request *request, job_desc_msg_t *job,
					char **err_msg)
{
	struct rtsched_answer answer;
	enum rtsched_submit_reply reply = RTSCHED_SILENT;
	char *message = NULL;

	if (rtsched_filter_ask(&filter, uid, set, request, &answer) == RTSCHED_ANSWERED) {
		reply = rtsched_carry_out(&answer, job, &message);
		if (reply == RTSCHED_UNUSABLE) {
			if (message)
				message[strcspn(message, "\n")] = 0;
			rtsched_filter_complain(&filter,
						message ? message : "its answer is invalid");
		} else if (reply == RTSCHED_REJECTED) {
			tell(err_msg, message ? message : "rtsched: refused");
		} else if (message && job) {
			/* Of a change that is accepted nothing is said: scontrol would call it an
			 * error. */
			tell(err_msg, message);
		}
	}
	slurm_xfree((void **)&message);
	free(answer.payload);
	return reply;
}

static bool is_judged(enum rtsched_submit_reply reply)
{
	return reply == RTSCHED_ACCEPTED || reply == RTSCHED_REJECTED;
}

/* Tell why nobody judged it, between what is said before and after that. */
static void tell_cause(char **err_msg, enum rtsched_submit_reply reply, const char *before,
		       const char *after)
{
	bool silent = reply == RTSCHED_SILENT;
	char text[1024];

	snprintf(text, sizeof(text), "rtsched: %sthe scheduler daemon %s%s%s", before,
		 silent ? "does not answer" : "could not evaluate it", after,
		 silent ? "" : ". If this persists, tell your administrators: its log says why");
	tell(err_msg, text);
}

static int refuse_too_long(char **err_msg)
{
	tell(err_msg, "rtsched: the job's description is longer than 256 KiB: shorten its comment, "
		      "node lists or dependencies");
	return ESLURM_ACCESS_DENIED;
}

/* Submit */

static bool wants_promise(const job_desc_msg_t *job)
{
	return (job->deadline && job->deadline != (time_t)NO_VAL) ||
	       rtsched_has_word(job->comment) || rtsched_has_word(job->extra);
}

/* Tell whether a job that waits held is to get whole nodes; an array has its own way to get them.
 *
 * Where jobs share nodes, one on several takes the same of each, which can be seen to only by who
 * has judged it; and one that may not start yet has its nodes reserved. */
static bool takes_whole_nodes(const struct rtsched_settings *set, const job_desc_msg_t *job)
{
	bool one_node = job->max_nodes == 1 || job->num_tasks == 1;
	bool waits = job->begin_time > time(NULL) || (job->dependency && *job->dependency);
	bool component = job->het_job_offset != NO_VAL;

	if (job->array_inx)
		return false;
	return !set->share_nodes || !one_node || waits || component;
}

static int submit_unjudged(const struct rtsched_settings *set, enum rtsched_submit_reply reply,
			   job_desc_msg_t *job, char **err_msg)
{
	if (set->on_failure == RTSCHED_FAIL_CLOSED) {
		if (!wants_promise(job))
			return SLURM_SUCCESS;
		tell_cause(err_msg, reply, "",
			   ", so no deadline can be promised now: submit again later, or without a "
			   "deadline");
		return ESLURM_ACCESS_DENIED;
	}
	/* A job that its user holds is not parked, or the daemon would release it. */
	if (set->on_failure == RTSCHED_FAIL_HOLD && job->priority != 0) {
		job->priority = 0;
		if (wants_promise(job) && takes_whole_nodes(set, job))
			job->shared = JOB_SHARED_NONE; /* later it cannot be set */
		rtsched_set_text(&job->admin_comment, PARKED);
		tell_cause(err_msg, reply, "", "; the job is held until it has been evaluated");
		return SLURM_SUCCESS;
	}
	rtsched_set_text(&job->admin_comment, UNJUDGED);
	if (wants_promise(job))
		tell_cause(err_msg, reply, "accepted without a promise: ", "");
	return SLURM_SUCCESS;
}

/* Note that a job passes: it may start before the daemon's next poll. */
static void note(const job_desc_msg_t *job)
{
	int64_t limit = job->time_limit;

	if (job->time_limit == NO_VAL)
		limit = RTSCHED_DEFAULT_LIMIT;
	else if (job->time_limit == INFINITE)
		limit = RTSCHED_UNLIMITED;
	rtsched_passed_note(&passed, time(NULL), limit);
}

static void describe_instant(struct rtsched_request *request, const job_desc_msg_t *job)
{
	char text[RTSCHED_PASSED_SIZE];

	rtsched_describe_nodes(request);
	rtsched_describe_unknown_jobs(request, job->dependency);
	rtsched_passed_text(&passed, time(NULL), text);
	rtsched_add_text(request, RTSCHED_TAG_PASSED, text);
}

static int submit(job_desc_msg_t *job, uint32_t uid, char **err_msg)
{
	struct rtsched_settings set = rtsched_filter_settings(&filter);
	struct rtsched_request request = {0};
	enum rtsched_submit_reply reply;

	if (forged(&set, job, uid, err_msg))
		return ESLURM_ACCESS_DENIED;
	if (uid && is_ours(&set, uid))
		return SLURM_SUCCESS;
	if (!set.judge_all && !wants_promise(job))
		return SLURM_SUCCESS;
	rtsched_describe_submit(job, uid, &request);
	describe_instant(&request, job);
	if (request.too_long) {
		rtsched_request_free(&request);
		return refuse_too_long(err_msg);
	}
	reply = judged(&set, uid, &request, job, err_msg);
	rtsched_request_free(&request);
	if (!is_judged(reply))
		return submit_unjudged(&set, reply, job, err_msg);
	return reply == RTSCHED_REJECTED ? ESLURM_ACCESS_DENIED : SLURM_SUCCESS;
}

int job_submit(job_desc_msg_t *job, uint32_t uid, char **err_msg)
{
	int returned = submit(job, uid, err_msg);

	if (returned == SLURM_SUCCESS)
		note(job);
	return returned;
}

/* Modify */

/* Nobody can say what a change would break: what the daemon promised stays as it is, and all other
 * jobs belong to their users. */
static int modify_unjudged(const struct rtsched_settings *set, enum rtsched_submit_reply reply,
			   const job_desc_msg_t *job, uint32_t uid, char **err_msg)
{
	const uint32_t users[2] = {uid, job->user_id};
	char why[200], after[768];

	if (set->on_failure == RTSCHED_FAIL_OPEN)
		return SLURM_SUCCESS; /* the daemon will see the change, and what it breaks */
	switch (rtsched_promised_jobs_look(set->promised_jobs, set->daemon_uid,
					   rtsched_job_number(job), users, why, sizeof(why))) {
	case RTSCHED_NOT_PROMISED:
		return SLURM_SUCCESS;
	case RTSCHED_PROMISED:
		tell_cause(err_msg, reply, "",
			   ", and this job was promised a deadline: it cannot be changed until the "
			   "daemon is back. Try again later");
		break;
	case RTSCHED_PERHAPS_PROMISED:
		tell_cause(err_msg, reply, "",
			   ", and this job may just have been promised a deadline: it "
			   "cannot be changed until the daemon is back. Try again later");
		break;
	case RTSCHED_PROMISES_UNKNOWN:
		snprintf(after, sizeof(after),
			 ", and the list of promised jobs is not available (%s: %s), so no "
			 "job can be changed until the daemon is back. Try again later",
			 set->promised_jobs, why);
		tell_cause(err_msg, reply, "", after);
		break;
	}
	return ESLURM_ACCESS_DENIED;
}

static int modify(job_desc_msg_t *job, uint32_t uid, char **err_msg)
{
	struct rtsched_settings set = rtsched_filter_settings(&filter);
	struct rtsched_request request = {0};
	enum rtsched_submit_reply reply = RTSCHED_ACCEPTED;
	bool too_long;

	if (is_ours(&set, uid))
		return SLURM_SUCCESS;
	if (forged(&set, job, uid, err_msg))
		return ESLURM_ACCESS_DENIED;
	if (rtsched_describe_modify(job, uid, &request) && !request.too_long)
		reply = judged(&set, uid, &request, NULL, err_msg);
	too_long = request.too_long;
	rtsched_request_free(&request);
	if (too_long)
		return refuse_too_long(err_msg);
	if (!is_judged(reply))
		return modify_unjudged(&set, reply, job, uid, err_msg);
	return reply == RTSCHED_REJECTED ? ESLURM_ACCESS_DENIED : SLURM_SUCCESS;
}

int job_modify(job_desc_msg_t *job, struct job_record *record, uint32_t uid, char **err_msg)
{
	int returned = modify(job, uid, err_msg);

	(void)record; /* its layout is not public */
	if (returned == SLURM_SUCCESS && job->time_limit != NO_VAL)
		note(job); /* with that limit it may start */
	return returned;
}
