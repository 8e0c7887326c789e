/* What the filter needs of libslurm, for tests without Slurm. */
#ifndef FAKE_SLURM_H
#define FAKE_SLURM_H

#include "slurm_internal.h"

/* As slurm_init_job_desc_msg: nothing is asked for. */
void fake_job(job_desc_msg_t *job);
void fake_environment(job_desc_msg_t *job, uint32_t entries);

/* Free what the job holds; fails on a pointer that slurm_x* did not give. */
void fake_job_free(job_desc_msg_t *job);

#endif
