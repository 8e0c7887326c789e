/* What the filter looks up in slurmctld by name. */
#include <time.h>

#include "fake_slurm.h"

static char some[] = "n[1-3,5]", all[] = "n[1-9]";

char *idle_node_bitmap = some, *avail_node_bitmap = all;
time_t last_node_update = 1900000000;

char *slurm_bitmap2node_name(char *bitmap);

char *slurm_bitmap2node_name(char *bitmap)
{
	return slurm_xstrdup(bitmap);
}
