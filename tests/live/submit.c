/* submit COUNT FIELD[=VALUE] [MORE]: submit batch jobs by libslurm, as a user's own program could.
 * MORE is appended ten times to the value. */
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
#define JOB_ID(response) ((response)->step_id.job_id)
#else
#define JOB_ID(response) ((response)->job_id)
#endif

static char *extended(const char *value, const char *more)
{
	char *whole = calloc(1, strlen(value) + 10 * strlen(more) + 1);

	strcpy(whole, value);
	for (int i = 0; i < 10; i++)
		strcat(whole, more);
	return whole;
}

int main(int argc, char **argv)
{
	char *environment[] = {"PATH=/bin:/usr/bin", NULL};
	int count = atoi(argv[1]), refused = 0;

	slurm_init(NULL);
	for (int i = 0; i < count; i++) {
		submit_response_msg_t *response = NULL;
		job_desc_msg_t job;

		slurm_init_job_desc_msg(&job);
		job.name = "submit";
		job.script = "#!/bin/sh\ntrue\n";
		job.environment = environment;
		job.env_size = 1;
		job.user_id = getuid();
		job.group_id = getgid();
		job.work_dir = "/tmp";
		job.std_out = "/dev/null";
		job.begin_time = time(NULL) + 3600;
		job.time_limit = 5;
		for (int j = 2; j < argc; j++) {
			const char *value = strchr(argv[j], '=');
			char *text = extended(value ? value + 1 : "", argc > 3 ? argv[3] : "");

			if (!strcmp(argv[j], "deadline"))
				job.deadline = time(NULL) + 7200;
			if (!strncmp(argv[j], "name=", 5))
				job.name = strdup(value + 1);
			if (!strncmp(argv[j], "site_factor=", 12))
				job.site_factor = NICE_OFFSET + atoi(value + 1);
			if (!strncmp(argv[j], "admin_comment=", 14))
				job.admin_comment = text;
			if (!strncmp(argv[j], "reservation=", 12))
				job.reservation = text;
			if (!strncmp(argv[j], "extra=", 6))
				job.extra = text;
		}
		if (slurm_submit_batch_job(&job, &response)) {
			printf("refused: %s\n", slurm_strerror(errno));
			refused = 1;
			continue;
		}
		printf("job %u\n", JOB_ID(response));
	}
	return refused;
}
