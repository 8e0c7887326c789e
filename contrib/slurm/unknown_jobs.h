/* Which jobs of a dependency slurmctld does not know: it refuses `afterok` and `afternotok` on these, and
 * takes any other dependency on them for satisfied. */
#ifndef RTSCHED_UNKNOWN_JOBS_H
#define RTSCHED_UNKNOWN_JOBS_H

#include "../common/rtsched_client.h"

/* Describe the jobs that `dependency` (NULL: none) names and that do not exist, or no more.
 *
 * Nothing where this slurmctld has no way to look. To be called where slurmctld holds its job lock, as
 * it does around job_submit; takes no lock.
 */
void rtsched_describe_unknown_jobs(struct rtsched_request *request, const char *dependency);

#endif
