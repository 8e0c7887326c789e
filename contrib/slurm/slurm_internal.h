/* What libslurm exports but its public headers do not declare, and what differs between releases. */
#ifndef RTSCHED_SLURM_INTERNAL_H
#define RTSCHED_SLURM_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(23, 11, 0)
#error "rtsched's submit filter needs Slurm 23.11 or later"
#endif

/* slurmctld's record of a job. Its layout is slurmctld's own, and differs between releases. */
struct job_record;

/* Texts in a job description come from this allocator. */
extern char *slurm_xstrdup(const char *text);
extern void slurm_xfree(void **item);
extern void *slurm_xrecalloc(void **item, size_t count, size_t size, bool clear, bool may_fail,
			     const char *file, int line, const char *function);

/* As spank.h has them. */
extern void slurm_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void slurm_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A job's number in its description: from 25.11 on it stands in a step id. */
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
#define RTSCHED_JOB_ID(job) ((job)->step_id.job_id)
#else
#define RTSCHED_JOB_ID(job) ((job)->job_id)
#endif

#endif
