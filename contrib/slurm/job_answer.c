#include "job_answer.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define FREE(item) slurm_xfree((void **)&(item))

void rtsched_set_text(char **to, const char *value)
{
	char *old = *to;

	*to = slurm_xstrdup(value);
	FREE(old);
}

/* A field's text is not ended by a NUL, and slurm_xstrdup wants one that is. */
static char *copy(const char *text, size_t length)
{
	char *ended = malloc(length + 1), *copied = NULL;

	if (!ended)
		return NULL;
	if (length)
		memcpy(ended, text, length);
	ended[length] = 0;
	copied = slurm_xstrdup(ended);
	free(ended);
	return copied;
}

char *rtsched_plain_text(const char *text, size_t length)
{
	char *plain = copy(text, length);

	for (char *at = plain; at && *at; at++)
		if (*at != '\n' && iscntrl((unsigned char)*at))
			*at = ' ';
	return plain;
}

/* Numbers: where they go, and what a job can have there. */

static bool between(int64_t value, int64_t least, int64_t most)
{
	return value >= least && value <= most;
}

/* Turn a number into how Slurm keeps nice values and factors; false: it is beyond what there are. */
static bool offset(int64_t *value)
{
	if (!between(*value, -INT32_MAX, INT32_MAX - 2))
		return false;
	*value += (int64_t)NICE_OFFSET;
	return true;
}

/* Return the place for a number in the job and check the number; NULL: there is none. */
static uint32_t *place_of_number(job_desc_msg_t *job, uint16_t tag, int64_t *value, bool *good)
{
	switch (tag) {
	case RTSCHED_TAG_MIN_NODES:
		*good = between(*value, 1, INT32_MAX);
		return &job->min_nodes;
	case RTSCHED_TAG_MAX_NODES:
		*good = between(*value, 1, INT32_MAX);
		return &job->max_nodes;
	case RTSCHED_TAG_TIME_LIMIT:
		*good = *value == -1 || between(*value, 1, INT32_MAX);
		*value = *value == -1 ? (int64_t)INFINITE : *value;
		return &job->time_limit;
	case RTSCHED_TAG_TIME_MIN: /* it can be taken away only */
		*good = *value == 0;
		*value = (int64_t)NO_VAL;
		return &job->time_min;
	case RTSCHED_TAG_PRIORITY:
		*good = between(*value, 0, (int64_t)NO_VAL - 1);
		return &job->priority;
	case RTSCHED_TAG_SITE_FACTOR:
		*good = offset(value);
		return &job->site_factor;
	case RTSCHED_TAG_NICE:
		*good = offset(value);
		return &job->nice;
	default:
		return NULL;
	}
}

static uint16_t *place_of_short(job_desc_msg_t *job, uint16_t tag)
{
	switch (tag) {
	case RTSCHED_TAG_SHARED:
		return &job->shared;
	case RTSCHED_TAG_NTASKS_PER_NODE:
		return &job->ntasks_per_node;
	default:
		return NULL;
	}
}

static char **place_of_text(job_desc_msg_t *job, uint16_t tag)
{
	switch (tag) {
	case RTSCHED_TAG_PARTITION:
		return &job->partition;
	case RTSCHED_TAG_REQ_NODES:
		return &job->req_nodes;
	case RTSCHED_TAG_FEATURES:
		return &job->features;
	case RTSCHED_TAG_ADMIN_COMMENT:
		return &job->admin_comment;
	case RTSCHED_TAG_COMMENT:
		return &job->comment;
	case RTSCHED_TAG_EXTRA:
		return &job->extra;
	case RTSCHED_TAG_RESERVATION:
		return &job->reservation;
	default:
		return NULL;
	}
}

/* The length of NAME= in `NAME=value`; 0 unless NAME begins with RTSCHED_.
 *
 * No other variable is set, so that whoever takes over the daemon's account cannot run programs as
 * the users, by LD_PRELOAD or PATH. */
static size_t name_length(const struct rtsched_field *field)
{
	static const char start[] = "RTSCHED_";
	size_t at = sizeof(start) - 1;

	if (field->type != RTSCHED_TEXT || field->length < at || memcmp(field->text, start, at))
		return 0;
	while (at < field->length && (isalnum((unsigned char)field->text[at]) ||
				      field->text[at] == '_'))
		at++;
	return at < field->length && field->text[at] == '=' ? at + 1 : 0;
}

static void set_variable(job_desc_msg_t *job, const struct rtsched_field *field)
{
	size_t name = name_length(field);
	char *variable;

	if (!job->environment || !(variable = copy(field->text, field->length)))
		return; /* only batch jobs carry an environment */
	for (uint32_t i = 0; i < job->env_size; i++) {
		if (job->environment[i] && !strncmp(job->environment[i], variable, name)) {
			FREE(job->environment[i]);
			job->environment[i] = variable;
			return;
		}
	}
	slurm_xrecalloc((void **)&job->environment, (size_t)job->env_size + 2, sizeof(char *), true,
			false, __FILE__, __LINE__, __func__);
	job->environment[job->env_size++] = variable;
	job->environment[job->env_size] = NULL;
}

/* Whether a job can have this value; tags that are not known can have any. */
static bool sensible(const struct rtsched_field *field)
{
	static job_desc_msg_t nowhere;
	int64_t value = field->number;
	bool good = true;

	if (place_of_number(&nowhere, field->tag, &value, &good) ||
	    place_of_short(&nowhere, field->tag) || field->tag == RTSCHED_TAG_VERDICT) {
		if (field->tag == RTSCHED_TAG_VERDICT)
			good = between(value, RTSCHED_ACCEPT, RTSCHED_REJECT);
		if (field->tag == RTSCHED_TAG_SHARED)
			good = between(value, JOB_SHARED_NONE, JOB_SHARED_USER);
		if (field->tag == RTSCHED_TAG_NTASKS_PER_NODE)
			good = between(value, 1, (int64_t)NO_VAL16 - 1);
		return field->type == RTSCHED_NUMBER && good;
	}
	if (field->tag == RTSCHED_TAG_ENV)
		return name_length(field) > 0;
	if (field->tag == RTSCHED_TAG_DEADLINE) /* it can be taken away only */
		return field->type == RTSCHED_NUMBER && value == 0;
	if (field->tag == RTSCHED_TAG_PREFER) /* likewise */
		return field->type == RTSCHED_TEXT && field->length == 0;
	if (place_of_text(&nowhere, field->tag) || field->tag == RTSCHED_TAG_MESSAGE)
		return field->type == RTSCHED_TEXT;
	return true;
}

static void set(job_desc_msg_t *job, const struct rtsched_field *field)
{
	int64_t value = field->number;
	bool good;
	uint32_t *number = place_of_number(job, field->tag, &value, &good);
	uint16_t *brief = place_of_short(job, field->tag);
	char **text = place_of_text(job, field->tag), *copied;

	if (number) {
		*number = (uint32_t)value;
	} else if (text) {
		if ((copied = copy(field->text, field->length))) {
			FREE(*text);
			*text = copied;
		}
	} else if (brief) {
		*brief = (uint16_t)value;
	} else if (field->tag == RTSCHED_TAG_ENV) {
		set_variable(job, field);
	} else if (field->tag == RTSCHED_TAG_DEADLINE) {
		job->deadline = (time_t)value;
	} else if (field->tag == RTSCHED_TAG_PREFER) {
		FREE(job->prefer);
	}
}

enum rtsched_submit_reply rtsched_carry_out(const struct rtsched_answer *answer, job_desc_msg_t *job,
					    char **message)
{
	struct rtsched_cursor cursor = {answer->payload, answer->payload + answer->length};
	struct rtsched_field field;
	struct rtsched_field said = {0};
	int64_t verdict = -1;

	*message = NULL;
	while (rtsched_next(&cursor, &field) == RTSCHED_FIELD) {
		if (!sensible(&field))
			return RTSCHED_UNUSABLE;
		if (field.tag == RTSCHED_TAG_VERDICT)
			verdict = field.number;
		if (field.tag == RTSCHED_TAG_MESSAGE)
			said = field;
	}
	if (said.length)
		*message = rtsched_plain_text(said.text, said.length);
	if (answer->kind != RTSCHED_KIND_ANSWER || verdict < 0)
		return RTSCHED_UNUSABLE;
	if (verdict == RTSCHED_REJECT)
		return RTSCHED_REJECTED;
	cursor.at = answer->payload;
	while (job && rtsched_next(&cursor, &field) == RTSCHED_FIELD)
		set(job, &field);
	return RTSCHED_ACCEPTED;
}
