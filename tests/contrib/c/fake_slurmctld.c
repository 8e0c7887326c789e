/* What the filter looks up in slurmctld by name. */
#include <time.h>

#include "fake_slurm.h"

static char some[] = "n[1-3,5]", all[] = "n[1-9]";

char *idle_node_bitmap = some, *avail_node_bitmap = all;
time_t last_node_update = 1900000000;

void *find_job_record(uint32_t number);
void *find_job_array_rec(uint32_t number, uint32_t task);

/* Job 7, and the array 8 with tasks 0 to 3. */
void *find_job_record(uint32_t number)
{
	return number == 7 ? some : NULL;
}

void *find_job_array_rec(uint32_t number, uint32_t task)
{
	return number == 8 && (task < 4 || task == INFINITE) ? some : NULL;
}

char *slurm_bitmap2node_name(char *bitmap);

char *slurm_bitmap2node_name(char *bitmap)
{
	return slurm_xstrdup(bitmap);
}
