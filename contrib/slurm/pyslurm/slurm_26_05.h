/*
 * Lets pyslurm 25.11 compile against the headers of Slurm 26.05; build.sh includes it before all else.
 *
 * Since 26.05, functions that take a job take a slurm_step_id_t in place of a job id. Each macro
 * below wraps the id and calls the function of the same name: a macro is not expanded again inside
 * itself. slurm_free_ctl_conf() left the library; pyslurm calls it once, for the configuration
 * that it holds until its process ends anyhow.
 */
#ifndef RTSCHED_PYSLURM_SLURM_26_05_H
#define RTSCHED_PYSLURM_SLURM_26_05_H

#include <slurm/slurm.h>

static inline slurm_step_id_t rtsched_whole_job(uint32_t job_id)
{
	slurm_step_id_t id = SLURM_STEP_ID_INITIALIZER;

	id.job_id = job_id;
	return id;
}

#define slurm_get_end_time(job, end) slurm_get_end_time(rtsched_whole_job(job), end)
#define slurm_get_rem_time(job) slurm_get_rem_time(rtsched_whole_job(job))
#define slurm_job_node_ready(job) slurm_job_node_ready(rtsched_whole_job(job))
#define slurm_kill_job(job, signal, flags) slurm_kill_job(rtsched_whole_job(job), signal, flags)
#define slurm_load_job(answer, job, flags) slurm_load_job(answer, rtsched_whole_job(job), flags)
#define slurm_notify_job(job, text) slurm_notify_job(rtsched_whole_job(job), text)
#define slurm_requeue(job, flags) slurm_requeue(rtsched_whole_job(job), flags)
#define slurm_resume(job) slurm_resume(rtsched_whole_job(job))
#define slurm_suspend(job) slurm_suspend(rtsched_whole_job(job))

static inline void slurm_free_ctl_conf(slurm_conf_t *conf)
{
	(void)conf;
}

#endif
