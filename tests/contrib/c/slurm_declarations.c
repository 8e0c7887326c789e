/* Compiled with the sources of a Slurm release, not with its public headers alone: what the submit
 * filter declares of them by itself is what stands there, and slurmctld calls it as it is defined. */
#include "src/interfaces/job_submit.c"

#include "../../../contrib/slurm/job_submit_rtsched.c"

#define SAME(one, other, what)                                                                     \
	_Static_assert(__builtin_types_compatible_p(__typeof__(one), __typeof__(other)), what)

/* slurmctld's own table of what it calls in a plug-in. */
SAME(((slurm_submit_ops_t *)0)->submit, &job_submit, "job_submit");
SAME(((slurm_submit_ops_t *)0)->modify, &job_modify, "job_modify");

/* libslurm exports these two under both names; xmalloc.h declares slurm_xfree and slurm_xrecalloc as
 * they are, so that a difference is an error of its own. */
SAME(&xstrdup, &slurm_xstrdup, "slurm_xstrdup");

SAME(RTSCHED_JOB_ID((job_desc_msg_t *)0), (uint32_t)0, "the job's number");
