#define _GNU_SOURCE
#include "node_state.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "slurm_internal.h"

#define RESERVED 16384 /* bytes of a request that are left for what else is in it */

struct bitmap; /* Slurm's bitstr_t */

/* These are slurmctld's own. They are looked up by name, since outside it, such as for `rtsched slurm
 * check`, a missing variable would keep the plug-in from being loaded. */
static struct bitmap **idle, **available;
static time_t *changed;
static char *(*names_of)(struct bitmap *);

static void look_up(void)
{
	idle = dlsym(RTLD_DEFAULT, "idle_node_bitmap");
	available = dlsym(RTLD_DEFAULT, "avail_node_bitmap");
	changed = dlsym(RTLD_DEFAULT, "last_node_update");
	*(void **)&names_of = dlsym(RTLD_DEFAULT, "slurm_bitmap2node_name");
}

static void describe(struct rtsched_request *request, enum rtsched_tag tag, struct bitmap *nodes)
{
	char *names = nodes ? names_of(nodes) : NULL;

	if (names && request->length + strlen(names) + RESERVED <= RTSCHED_REQUEST_LIMIT)
		rtsched_add_text(request, tag, names);
	slurm_xfree((void **)&names);
}

void rtsched_describe_nodes(struct rtsched_request *request)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, look_up);
	if (changed)
		rtsched_add_number(request, RTSCHED_TAG_LAST_NODE_UPDATE, *changed);
	if (!idle || !available || !names_of)
		return;
	describe(request, RTSCHED_TAG_IDLE_NODES, *idle);
	describe(request, RTSCHED_TAG_AVAIL_NODES, *available);
}
