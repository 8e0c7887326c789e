#include "job_request.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUBMIT_LINE_LIMIT 1024 /* bytes of a command line that are sent */

static void text(struct rtsched_request *request, enum rtsched_tag tag, const char *value)
{
	if (value)
		rtsched_add_text(request, tag, value);
}

static void number16(struct rtsched_request *request, enum rtsched_tag tag, uint16_t value)
{
	if (value != NO_VAL16)
		rtsched_add_number(request, tag, value);
}

static void number32(struct rtsched_request *request, enum rtsched_tag tag, uint32_t value)
{
	if (value != NO_VAL)
		rtsched_add_number(request, tag, value == INFINITE ? -1 : (int64_t)value);
}

static void offset32(struct rtsched_request *request, enum rtsched_tag tag, uint32_t value)
{
	if (value != NO_VAL)
		rtsched_add_number(request, tag, (int64_t)value - (int64_t)NICE_OFFSET);
}

static void instant(struct rtsched_request *request, enum rtsched_tag tag, time_t value)
{
	if (value && value != (time_t)NO_VAL)
		rtsched_add_number(request, tag, value);
}

static void memory(struct rtsched_request *request, uint64_t value)
{
	if (value == NO_VAL64)
		return;
	if (value & MEM_PER_CPU)
		rtsched_add_number(request, RTSCHED_TAG_MEM_PER_CPU,
				   (int64_t)(value & ~MEM_PER_CPU));
	else
		rtsched_add_number(request, RTSCHED_TAG_PN_MIN_MEMORY, (int64_t)value);
}

static bool asked16(uint16_t value)
{
	return value && value != NO_VAL16;
}

static bool asked32(uint32_t value)
{
	return value && value != NO_VAL;
}

static void layout16(struct rtsched_request *request, enum rtsched_tag tag, uint16_t value)
{
	if (asked16(value))
		rtsched_add_number(request, tag, value == INFINITE16 ? -1 : value);
}

/* How a job's tasks are laid out on its nodes, and what goes with each of its GPUs. */
static void layout(struct rtsched_request *request, const job_desc_msg_t *job)
{
	text(request, RTSCHED_TAG_CPUS_PER_TRES, job->cpus_per_tres);
	text(request, RTSCHED_TAG_MEM_PER_TRES, job->mem_per_tres);
	layout16(request, RTSCHED_TAG_SOCKETS_PER_NODE, job->sockets_per_node);
	layout16(request, RTSCHED_TAG_CORES_PER_SOCKET, job->cores_per_socket);
	layout16(request, RTSCHED_TAG_THREADS_PER_CORE, job->threads_per_core);
	layout16(request, RTSCHED_TAG_NTASKS_PER_SOCKET, job->ntasks_per_socket);
	layout16(request, RTSCHED_TAG_NTASKS_PER_CORE, job->ntasks_per_core);
	layout16(request, RTSCHED_TAG_NTASKS_PER_TRES, job->ntasks_per_tres);
	layout16(request, RTSCHED_TAG_CONTIGUOUS, job->contiguous);
	if (asked32(job->req_switch))
		number32(request, RTSCHED_TAG_REQ_SWITCH, job->req_switch);
}

/* The beginning of the command line: which option a user wrote, to name it. */
static void submit_line(struct rtsched_request *request, const char *line)
{
	char beginning[SUBMIT_LINE_LIMIT + 1];

	if (!line)
		return;
	snprintf(beginning, sizeof(beginning), "%.*s", SUBMIT_LINE_LIMIT, line);
	rtsched_add_text(request, RTSCHED_TAG_SUBMIT_LINE, beginning);
}

/* Options that say where or when a job may run, by name. A daemon that knows the field of one of
 * them, which `layout` adds, plans with that; one that does not gives no promise. */
static void other(struct rtsched_request *request, const job_desc_msg_t *job)
{
	const struct {
		bool asked;
		const char *name;
	} options[] = {
	    {asked16(job->contiguous), "contiguous"},
	    {asked16(job->core_spec), "core-spec"},
	    {asked16(job->reboot), "reboot"},
	    {asked16(job->sockets_per_node), "sockets-per-node"},
	    {asked16(job->cores_per_socket), "cores-per-socket"},
	    {asked16(job->threads_per_core), "threads-per-core"},
	    {asked16(job->ntasks_per_socket), "ntasks-per-socket"},
	    {asked16(job->ntasks_per_core), "ntasks-per-core"},
	    {asked16(job->ntasks_per_tres), "ntasks-per-gpu"},
	    {job->cpus_per_tres && *job->cpus_per_tres, "cpus-per-gpu"},
	    {job->mem_per_tres && *job->mem_per_tres, "mem-per-gpu"},
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 5, 0)
	    {asked16(job->segment_size), "segment"},
#endif
	    {asked32(job->req_switch), "switches"},
	    {job->burst_buffer && *job->burst_buffer, "bb"},
	    {job->cluster_features && *job->cluster_features, "cluster-constraint"},
	    {job->batch_features && *job->batch_features, "batch"},
	    {job->clusters && *job->clusters, "clusters"},
	    {job->job_size_str && *job->job_size_str, "nodes-list"},
	    {asked16(job->immediate), "immediate"},
	    {job->warn_flags != NO_VAL16 && job->warn_flags & KILL_JOB_RESV, "signal=R"},
	    {job->end_time && job->end_time != (time_t)NO_VAL, "end-time"},
	};
	char names[512] = "";
	size_t used = 0;

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (options[i].asked)
			used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
						 used ? "," : "", options[i].name);
	if (used)
		rtsched_add_text(request, RTSCHED_TAG_OTHER, names);
	text(request, RTSCHED_TAG_CLUSTERS, job->clusters);
}

/* Who, and what says nothing about where or when the job runs. */
static void particulars(struct rtsched_request *request, const job_desc_msg_t *job, uint32_t uid)
{
	rtsched_add_number(request, RTSCHED_TAG_SUBMIT_UID, uid);
	text(request, RTSCHED_TAG_NAME, job->name);
	text(request, RTSCHED_TAG_COMMENT, job->comment);
	text(request, RTSCHED_TAG_EXTRA, job->extra);
}

/* What a promise may rest on. */
static void demands(struct rtsched_request *request, const job_desc_msg_t *job)
{
	text(request, RTSCHED_TAG_ACCOUNT, job->account);
	text(request, RTSCHED_TAG_PARTITION, job->partition);
	text(request, RTSCHED_TAG_QOS, job->qos);
	text(request, RTSCHED_TAG_RESERVATION, job->reservation);
	text(request, RTSCHED_TAG_ADMIN_COMMENT, job->admin_comment);
	text(request, RTSCHED_TAG_FEATURES, job->features);
	text(request, RTSCHED_TAG_PREFER, job->prefer);
	text(request, RTSCHED_TAG_DEPENDENCY, job->dependency);
	text(request, RTSCHED_TAG_ARRAY_INX, job->array_inx);
	text(request, RTSCHED_TAG_LICENSES, job->licenses);
	text(request, RTSCHED_TAG_REQ_NODES, job->req_nodes);
	text(request, RTSCHED_TAG_EXC_NODES, job->exc_nodes);
	text(request, RTSCHED_TAG_TRES_PER_JOB, job->tres_per_job);
	text(request, RTSCHED_TAG_TRES_PER_NODE, job->tres_per_node);
	text(request, RTSCHED_TAG_TRES_PER_SOCKET, job->tres_per_socket);
	text(request, RTSCHED_TAG_TRES_PER_TASK, job->tres_per_task);
	instant(request, RTSCHED_TAG_DEADLINE, job->deadline);
	instant(request, RTSCHED_TAG_BEGIN_TIME, job->begin_time);
	number32(request, RTSCHED_TAG_TIME_LIMIT, job->time_limit);
	number32(request, RTSCHED_TAG_TIME_MIN, job->time_min);
	number32(request, RTSCHED_TAG_MIN_NODES, job->min_nodes);
	number32(request, RTSCHED_TAG_MAX_NODES, job->max_nodes);
	number32(request, RTSCHED_TAG_MIN_CPUS, job->min_cpus);
	number32(request, RTSCHED_TAG_MAX_CPUS, job->max_cpus);
	number32(request, RTSCHED_TAG_NUM_TASKS, job->num_tasks);
	number16(request, RTSCHED_TAG_CPUS_PER_TASK, job->cpus_per_task);
	number16(request, RTSCHED_TAG_NTASKS_PER_NODE, job->ntasks_per_node);
	number16(request, RTSCHED_TAG_PN_MIN_CPUS, job->pn_min_cpus);
	number32(request, RTSCHED_TAG_PN_MIN_TMP_DISK, job->pn_min_tmp_disk);
	number32(request, RTSCHED_TAG_DELAY_BOOT, job->delay_boot);
	memory(request, job->pn_min_memory);
	number32(request, RTSCHED_TAG_PRIORITY, job->priority);
	offset32(request, RTSCHED_TAG_NICE, job->nice);
	offset32(request, RTSCHED_TAG_SITE_FACTOR, job->site_factor);
	number16(request, RTSCHED_TAG_SHARED, job->shared);
	number16(request, RTSCHED_TAG_REQUEUE, job->requeue);
	layout(request, job);
	other(request, job);
}

bool rtsched_has_word(const char *text)
{
	return text && strstr(text, "rtsched:");
}

void rtsched_describe_submit(const job_desc_msg_t *job, uint32_t submit_uid,
			     struct rtsched_request *request)
{
	rtsched_request_begin(request, RTSCHED_KIND_SUBMIT);
	number32(request, RTSCHED_TAG_USER_ID, job->user_id);
	number32(request, RTSCHED_TAG_GROUP_ID, job->group_id);
	particulars(request, job, submit_uid);
	demands(request, job);
	number32(request, RTSCHED_TAG_HET_JOB_OFFSET, job->het_job_offset);
	if (job->overcommit && job->overcommit != NO_VAL8)
		rtsched_add_number(request, RTSCHED_TAG_OVERCOMMIT, 1);
	submit_line(request, job->submit_line);
	text(request, RTSCHED_TAG_ALLOC_NODE, job->alloc_node);
	rtsched_add_number(request, RTSCHED_TAG_BATCH, job->script || job->script_buf);
	if (job->bitflags & CRON_JOB)
		rtsched_add_number(request, RTSCHED_TAG_CRON, 1);
}

bool rtsched_describe_modify(const job_desc_msg_t *job, uint32_t submit_uid,
			     struct rtsched_request *request)
{
	size_t before;

	rtsched_request_begin(request, RTSCHED_KIND_MODIFY);
	/* slurmctld goes by the text, if there is one (_slurm_rpc_update_job). */
	if (!job->job_id_str)
		number32(request, RTSCHED_TAG_JOB_ID, RTSCHED_JOB_ID(job));
	text(request, RTSCHED_TAG_JOB_ID_STR, job->job_id_str);
	particulars(request, job, submit_uid);
	before = request->length;
	demands(request, job);
	return request->length > before || request->too_long || rtsched_has_word(job->comment) ||
	       rtsched_has_word(job->extra);
}

uint32_t rtsched_job_number(const job_desc_msg_t *job)
{
	long number;

	if (!job->job_id_str)
		return RTSCHED_JOB_ID(job);
	number = strtol(job->job_id_str, NULL, 10);
	/* Of what it does not refuse slurmctld keeps 32 bits (update_job_str). */
	return number <= 0 || number == LONG_MAX ? NO_VAL : (uint32_t)number;
}
