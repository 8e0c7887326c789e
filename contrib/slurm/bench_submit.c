/* bench_submit CLIENTS JOBS [NAME=VALUE]...: submit batch jobs by libslurm from several processes at
 * a time, as fast as the controller takes them, and print what it took as one line of JSON.
 *
 *   nodes=N       nodes of each job (1)
 *   minutes=N     its time limit (5)
 *   begin=S       it may begin in S seconds (3600): nothing is started meanwhile
 *   deadline=S    it must end within S seconds; 0, the default: none
 *   spread=S      the deadlines of one client's jobs lie evenly over S further seconds (0)
 *
 *   cc -O2 -o bench_submit bench_submit.c -lslurm
 */
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NODES, MINUTES, BEGIN, DEADLINE, SPREAD, OPTIONS };

static const char *const names[OPTIONS] = {"nodes", "minutes", "begin", "deadline", "spread"};
static long options[OPTIONS] = {1, 5, 3600, 0, 0};

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int by_size(const void *one, const void *other)
{
	double first = *(const double *)one, second = *(const double *)other;

	return (first > second) - (first < second);
}

static int fail(const char *what)
{
	fprintf(stderr, "bench_submit: %s\n", what);
	return 2;
}

static int read_option(const char *word)
{
	for (int i = 0; i < OPTIONS; i++) {
		size_t length = strlen(names[i]);
		char *end;

		if (strncmp(word, names[i], length) || word[length] != '=')
			continue;
		options[i] = strtol(word + length + 1, &end, 10);
		return *end == 0 && end > word + length + 1 && options[i] >= 0;
	}
	return 0;
}

/* Submit one job; return how long that took in seconds, negative if it was refused. */
static double submit(time_t deadline)
{
	static char *environment[] = {"PATH=/bin:/usr/bin", NULL};
	submit_response_msg_t *response = NULL;
	job_desc_msg_t job;
	double begun;

	slurm_init_job_desc_msg(&job);
	job.name = "bench";
	job.script = "#!/bin/sh\ntrue\n";
	job.environment = environment;
	job.env_size = 1;
	job.user_id = getuid();
	job.group_id = getgid();
	job.work_dir = "/tmp";
	job.std_out = "/dev/null";
	job.min_nodes = job.max_nodes = (uint32_t)options[NODES];
	job.time_limit = (uint32_t)options[MINUTES];
	if (options[BEGIN])
		job.begin_time = time(NULL) + options[BEGIN];
	job.deadline = deadline;
	begun = now();
	if (slurm_submit_batch_job(&job, &response))
		return begun - now();
	begun = now() - begun;
	slurm_free_submit_response_response_msg(response);
	return begun;
}

static void be_client(double *took, long jobs)
{
	for (long i = 0; i < jobs; i++) {
		time_t deadline = options[DEADLINE];

		if (deadline)
			deadline += time(NULL) + options[SPREAD] * i / jobs;
		took[i] = submit(deadline);
	}
}

static void show(double *took, long count, double seconds)
{
	long refused = 0;

	for (long i = 0; i < count; i++) {
		if (took[i] < 0) {
			refused++;
			took[i] = -took[i];
		}
	}
	qsort(took, (size_t)count, sizeof(*took), by_size);
	printf("{\"jobs\": %ld, \"refused\": %ld, \"seconds\": %.6f, \"p50_ms\": %.4f, "
	       "\"p99_ms\": %.4f, \"max_ms\": %.4f}\n",
	       count, refused, seconds, took[count / 2] * 1e3, took[count * 99 / 100] * 1e3,
	       took[count - 1] * 1e3);
}

int main(int argc, char **argv)
{
	long clients = argc > 2 ? atol(argv[1]) : 0, jobs = argc > 2 ? atol(argv[2]) : 0;
	size_t size = (size_t)clients * (size_t)jobs * sizeof(double);
	double *took, begun;
	int failed = 0, status;

	if (clients < 1 || clients > 1000 || jobs < 1 || jobs > 1000000)
		return fail("say how many clients (to 1000), and how many jobs of each");
	for (int i = 3; i < argc; i++)
		if (!read_option(argv[i]))
			return fail("no such option, or no number; the head of its source lists them");
	took = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (took == MAP_FAILED)
		return fail(strerror(errno));
	slurm_init(NULL);
	begun = now();
	for (long i = 0; i < clients; i++) {
		if (fork())
			continue;
		be_client(took + i * jobs, jobs);
		_exit(0);
	}
	while (wait(&status) > 0)
		failed |= status;
	if (failed)
		return fail("a client died");
	show(took, clients * jobs, now() - begun);
	return 0;
}
