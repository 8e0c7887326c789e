#define _GNU_SOURCE
#include "unknown_jobs.h"

#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "slurm_internal.h"

#define MOST_LOOKED_UP 4096 /* jobs of one dependency */
#define MOST_NAMED 64

/* slurmctld's own, looked up by name as in node_state.c. */
static struct job_record *(*find_job)(uint32_t number);
static struct job_record *(*find_task)(uint32_t number, uint32_t task);

static void look_up(void)
{
	*(void **)&find_job = dlsym(RTLD_DEFAULT, "find_job_record");
	*(void **)&find_task = dlsym(RTLD_DEFAULT, "find_job_array_rec");
}

/* Take `NUMBER` or `NUMBER_TASK` off the text, as slurmctld reads them (`_find_dependent_job_ptr` in
 * src/slurmctld/job_scheduler.c); return whether there is such a job. */
static bool take_known(const char **at)
{
	char *end;
	uint32_t number = (uint32_t)strtoul(*at, &end, 10), task;

	*at = end;
	if (*end != '_' || !isdigit((unsigned char)end[1]))
		return find_job(number) || find_task(number, INFINITE);
	task = (uint32_t)strtoul(end + 1, &end, 10);
	*at = end;
	return find_task(number, task);
}

void rtsched_describe_unknown_jobs(struct rtsched_request *request, const char *dependency)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	char names[MOST_NAMED * 24];
	size_t length = 0;
	int named = 0;

	pthread_once(&once, look_up);
	if (!dependency || !find_job || !find_task)
		return;
	for (int jobs = 0; jobs < MOST_LOOKED_UP && named < MOST_NAMED; jobs++) {
		const char *word = strchr(dependency, ':');

		if (!word)
			break;
		dependency = ++word;
		if (!isdigit((unsigned char)*word) || take_known(&dependency))
			continue;
		if ((size_t)(dependency - word) + 2 > sizeof(names) - length)
			break;
		if (named++)
			names[length++] = ',';
		memcpy(names + length, word, (size_t)(dependency - word));
		length += (size_t)(dependency - word);
	}
	names[length] = '\0';
	if (named)
		rtsched_add_text(request, RTSCHED_TAG_UNKNOWN_JOBS, names);
}
