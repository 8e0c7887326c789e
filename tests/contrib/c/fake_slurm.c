/* The allocator keeps a mark before each block, as Slurm's does: a pointer of another allocator is
 * found out when it is freed here, and the sanitizer finds the reverse. */
#include "fake_slurm.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct block {
	uint64_t mark;
	uint64_t size;
};

#define MARK 0x4d6172a5b10c6b42ull

static void *allocate(size_t size)
{
	struct block *block = calloc(1, sizeof(*block) + size);

	if (!block)
		abort();
	*block = (struct block){MARK, size};
	return block + 1;
}

static struct block *block_of(void *item)
{
	struct block *block = (struct block *)item - 1;

	if (block->mark != MARK) {
		fputs("a pointer that is not Slurm's\n", stderr);
		abort();
	}
	return block;
}

char *slurm_xstrdup(const char *text)
{
	return text ? strcpy(allocate(strlen(text) + 1), text) : NULL;
}

void slurm_xfree(void **item)
{
	if (*item) {
		struct block *block = block_of(*item);

		block->mark = 0;
		free(block);
	}
	*item = NULL;
}

void *slurm_xrecalloc(void **item, size_t count, size_t size, bool clear, bool may_fail,
		      const char *file, int line, const char *function)
{
	void *grown = allocate(count * size);

	(void)clear, (void)may_fail, (void)file, (void)line, (void)function;
	if (*item) {
		size_t old = block_of(*item)->size;

		memcpy(grown, *item, old < count * size ? old : count * size);
		slurm_xfree(item);
	}
	return *item = grown;
}

void slurm_info(const char *format, ...)
{
	(void)format;
}

void slurm_error(const char *format, ...)
{
	va_list values;

	va_start(values, format);
	vfprintf(stderr, format, values);
	va_end(values);
	fputc('\n', stderr);
}

void fake_job(job_desc_msg_t *job)
{
	memset(job, 0, sizeof(*job));
	RTSCHED_JOB_ID(job) = NO_VAL;
	job->user_id = job->group_id = NO_VAL;
	job->contiguous = job->core_spec = job->reboot = NO_VAL16;
	job->sockets_per_node = job->cores_per_socket = job->threads_per_core = NO_VAL16;
	job->ntasks_per_socket = job->ntasks_per_core = job->ntasks_per_tres = NO_VAL16;
	job->time_limit = job->time_min = job->min_nodes = job->max_nodes = NO_VAL;
	job->min_cpus = job->max_cpus = job->num_tasks = NO_VAL;
	job->cpus_per_task = job->ntasks_per_node = job->pn_min_cpus = NO_VAL16;
	job->pn_min_tmp_disk = job->delay_boot = job->req_switch = NO_VAL;
	job->pn_min_memory = NO_VAL64;
	job->priority = job->nice = job->site_factor = job->het_job_offset = NO_VAL;
	job->shared = job->requeue = NO_VAL16;
}

void fake_environment(job_desc_msg_t *job, uint32_t entries)
{
	char variable[64];

	if (!entries)
		return;
	job->environment = allocate(entries * sizeof(char *));
	for (job->env_size = 0; job->env_size < entries; job->env_size++) {
		snprintf(variable, sizeof(variable), "V%u=%u", job->env_size, job->env_size);
		job->environment[job->env_size] = slurm_xstrdup(variable);
	}
}

void fake_job_free(job_desc_msg_t *job)
{
	char **texts[] = {&job->req_nodes, &job->features, &job->admin_comment, &job->comment,
			  &job->extra, &job->reservation, &job->name, &job->script,
			  &job->job_id_str, &job->exc_nodes, &job->dependency, &job->array_inx,
			  &job->clusters, &job->tres_per_task, &job->cpus_per_tres,
			  &job->mem_per_tres, &job->submit_line, &job->prefer,
			  &job->alloc_node, &job->partition};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		slurm_xfree((void **)texts[i]);
	for (uint32_t i = 0; i < job->env_size; i++)
		slurm_xfree((void **)&job->environment[i]);
	slurm_xfree((void **)&job->environment);
	job->env_size = 0;
}
