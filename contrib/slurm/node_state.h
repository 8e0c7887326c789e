/* Which nodes slurmctld has free at the instant of a call: the daemon's last poll may be older. */
#ifndef RTSCHED_NODE_STATE_H
#define RTSCHED_NODE_STATE_H

#include "../common/rtsched_client.h"

/* Describe the idle and the available nodes, and when the last change of a node was.
 *
 * Nothing of what this slurmctld does not have, or what the request has no room for. To be called where
 * slurmctld holds its node lock, as it does around job_submit; takes no lock.
 */
void rtsched_describe_nodes(struct rtsched_request *request);

#endif
