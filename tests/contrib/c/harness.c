/* harness submit|modify UID COUNT FIELD=VALUE...: hand a job to the filter as slurmctld would.
 *
 * FIELD*N=VALUE repeats the value N times; env=N gives the job so many variables. Prints for the last
 * of COUNT calls what was returned and what the job looks like then. With THREADS set, so many threads
 * do it at once; with PAUSE_MS, so many milliseconds pass between two calls.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_slurm.h"

int init(void);
void fini(void);
int job_submit(job_desc_msg_t *job, uint32_t uid, char **err_msg);
int job_modify(job_desc_msg_t *job, struct job_record *record, uint32_t uid, char **err_msg);

static int count;
static char **values;

static char *repeated(const char *value, size_t times)
{
	size_t length = strlen(value);
	char *whole = malloc(length * times + 1), *kept;

	for (size_t i = 0; i < times; i++)
		memcpy(whole + i * length, value, length);
	whole[length * times] = 0;
	kept = slurm_xstrdup(whole);
	free(whole);
	return kept;
}

#define TEXT(name) \
	if (!strcmp(key, #name)) \
		job->name = repeated(value, times);
#define NUMBER(name) \
	if (!strcmp(key, #name)) \
		job->name = strtoull(value, NULL, 0);

static void fill(job_desc_msg_t *job, const char *pair)
{
	char key[64] = "";
	const char *value = strchr(pair, '=') + 1;
	size_t times = 1;
	char *star;

	memcpy(key, pair, (size_t)(value - 1 - pair));
	if ((star = strchr(key, '*'))) {
		*star = 0;
		times = strtoul(star + 1, NULL, 10);
	}
	TEXT(name) TEXT(comment) TEXT(extra) TEXT(admin_comment) TEXT(reservation) TEXT(features)
	TEXT(req_nodes) TEXT(exc_nodes) TEXT(dependency) TEXT(script) TEXT(job_id_str)
	TEXT(array_inx) TEXT(clusters) TEXT(tres_per_task) TEXT(cpus_per_tres) TEXT(mem_per_tres)
	TEXT(submit_line) TEXT(prefer) TEXT(alloc_node)
	NUMBER(deadline) NUMBER(time_limit) NUMBER(min_nodes) NUMBER(max_nodes) NUMBER(nice)
	NUMBER(priority) NUMBER(user_id) NUMBER(pn_min_memory) NUMBER(contiguous) NUMBER(end_time)
	NUMBER(num_tasks) NUMBER(begin_time) NUMBER(het_job_offset) NUMBER(time_min)
	NUMBER(sockets_per_node) NUMBER(cores_per_socket) NUMBER(threads_per_core)
	NUMBER(ntasks_per_socket) NUMBER(ntasks_per_core) NUMBER(ntasks_per_tres)
	NUMBER(req_switch) NUMBER(overcommit) NUMBER(immediate) NUMBER(warn_flags)
	if (!strcmp(key, "env"))
		fake_environment(job, (uint32_t)strtoul(value, NULL, 10));
}

static void show(const job_desc_msg_t *job, int returned, const char *message)
{
	printf("returned=%d\nmessage=%s\n", returned, message ? message : "");
	printf("admin_comment=%s\n", job->admin_comment ? job->admin_comment : "");
	printf("partition=%s\n", job->partition ? job->partition : "");
	printf("comment=%.200s\n", job->comment ? job->comment : "");
	printf("features=%s\nreq_nodes=%s\nreservation=%s\n", job->features ? job->features : "",
	       job->req_nodes ? job->req_nodes : "", job->reservation ? job->reservation : "");
	printf("min_nodes=%u\nmax_nodes=%u\ntime_limit=%u\n", job->min_nodes, job->max_nodes,
	       job->time_limit);
	printf("priority=%u\nsite_factor=%lld\nnice=%lld\nshared=%u\n", job->priority,
	       (long long)job->site_factor - NICE_OFFSET, (long long)job->nice - NICE_OFFSET,
	       job->shared);
	printf("ntasks_per_node=%u\ntime_min=%u\n", job->ntasks_per_node, job->time_min);
	printf("prefer=%s\n", job->prefer ? job->prefer : "");
	for (uint32_t i = 0; i < job->env_size; i++)
		if (!strncmp(job->environment[i], "RTSCHED_", 8))
			printf("env=%s\n", job->environment[i]);
	printf("env_size=%u\n", job->env_size);
}

static void *work(void *shown)
{
	uint32_t uid = (uint32_t)strtoul(values[2], NULL, 10);
	int times = atoi(values[3]);
	int pause_ms = getenv("PAUSE_MS") ? atoi(getenv("PAUSE_MS")) : 0;

	for (int i = 0; i < times; i++) {
		job_desc_msg_t job;
		char *message = NULL;
		int returned;

		fake_job(&job);
		for (int j = 4; j < count; j++)
			fill(&job, values[j]);
		if (!strcmp(values[1], "submit"))
			returned = job_submit(&job, uid, &message);
		else
			returned = job_modify(&job, NULL, uid, &message);
		if (pause_ms)
			usleep((useconds_t)pause_ms * 1000);
		if (shown && i == times - 1)
			show(&job, returned, message);
		slurm_xfree((void **)&message);
		fake_job_free(&job);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[64];
	int others = getenv("THREADS") ? atoi(getenv("THREADS")) - 1 : 0;

	count = argc;
	values = argv;
	init();
	for (int i = 0; i < others; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	work(argv);
	for (int i = 0; i < others; i++)
		pthread_join(threads[i], NULL);
	fini();
	return 0;
}
