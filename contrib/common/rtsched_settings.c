#define _GNU_SOURCE
#include "rtsched_settings.h"

#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void rtsched_settings_default(struct rtsched_settings *settings)
{
	*settings = (struct rtsched_settings){
	    .socket = "/run/rtsched/submit.sock",
	    .timeout_ms = 50,
	    .on_failure = RTSCHED_FAIL_OPEN,
	    .breaker_failures = 2,
	    .breaker_ms = 5000,
	    .daemon_user = "rtsched",
	    .daemon_uid = RTSCHED_NOBODY,
	    .promised_jobs = "/run/rtsched/promised_jobs",
	    .table = "/run/rtsched/slots",
	};
}

/* Return the text without the white space around it; it is changed. */
static char *trimmed(char *text)
{
	char *end;

	while (isspace((unsigned char)*text))
		text++;
	end = text + strlen(text);
	while (end > text && isspace((unsigned char)end[-1]))
		end--;
	*end = 0;
	return text;
}

/* Each of these returns what is wrong with a value, or NULL and keeps it. */

static const char *take_number(const char *value, int most, int *number)
{
	char *end;
	long parsed;

	errno = 0;
	parsed = strtol(value, &end, 10);
	if (errno || end == value || *end || parsed < 1 || parsed > most)
		return "must be a whole number from 1 to 600000";
	*number = (int)parsed;
	return NULL;
}

static const char *take_text(const char *value, char *text, size_t size)
{
	if (!*value || strlen(value) >= size)
		return "must not be empty or too long";
	memset(text, 0, size);
	memcpy(text, value, strlen(value));
	return NULL;
}

static const char *take_path(const char *value, char *text, size_t size)
{
	return *value == '/' ? take_text(value, text, size) : "must be a path that begins with /";
}

static const char *take_policy(const char *value, enum rtsched_policy *policy)
{
	if (!strcmp(value, "open"))
		*policy = RTSCHED_FAIL_OPEN;
	else if (!strcmp(value, "hold"))
		*policy = RTSCHED_FAIL_HOLD;
	else if (!strcmp(value, "closed"))
		*policy = RTSCHED_FAIL_CLOSED;
	else
		return "must be open, hold or closed";
	return NULL;
}

static const char *take_choice(const char *value, bool *chosen)
{
	*chosen = !strcmp(value, "true");
	return *chosen || !strcmp(value, "false") ? NULL : "must be true or false";
}

static const char *take(const char *key, const char *value, struct rtsched_settings *to)
{
	const int most = 600000;

	if (!strcmp(key, "socket"))
		return take_path(value, to->socket, sizeof(to->socket));
	if (!strcmp(key, "promised_jobs"))
		return take_path(value, to->promised_jobs, sizeof(to->promised_jobs));
	if (!strcmp(key, "table"))
		return take_path(value, to->table, sizeof(to->table));
	if (!strcmp(key, "timeout_ms"))
		return take_number(value, most, &to->timeout_ms);
	if (!strcmp(key, "breaker_failures"))
		return take_number(value, most, &to->breaker_failures);
	if (!strcmp(key, "breaker_ms"))
		return take_number(value, most, &to->breaker_ms);
	if (!strcmp(key, "on_failure"))
		return take_policy(value, &to->on_failure);
	if (!strcmp(key, "daemon_user"))
		return take_text(value, to->daemon_user, sizeof(to->daemon_user));
	if (!strcmp(key, "share_nodes"))
		return take_choice(value, &to->share_nodes);
	if (strcmp(key, "judge"))
		return "is unknown; the settings are socket, timeout_ms, on_failure, "
		       "breaker_failures, breaker_ms, judge, share_nodes, daemon_user, promised_jobs, "
		       "table";
	to->judge_all = !strcmp(value, "all");
	return to->judge_all || !strcmp(value, "deadline") ? NULL : "must be deadline or all";
}

/* Read one line; what is wrong goes to `problem`. */
static bool read_line(const char *path, int number, char *line, struct rtsched_settings *to,
		      char *problem, size_t size)
{
	char *key = trimmed(line), *equals;
	const char *wrong;

	if (!*key || *key == '#')
		return true;
	if (!(equals = strchr(key, '='))) {
		snprintf(problem, size, "%s:%d: a line must be key = value", path, number);
		return false;
	}
	*equals = 0;
	key = trimmed(key);
	if (!(wrong = take(key, trimmed(equals + 1), to)))
		return true;
	snprintf(problem, size, "%s:%d: %.64s %s", path, number, key, wrong);
	return false;
}

bool rtsched_settings_find_user(struct rtsched_settings *settings)
{
	char space[16384], *end;
	struct passwd entry, *found = NULL;
	long number;

	settings->daemon_uid = RTSCHED_NOBODY;
	if (!getpwnam_r(settings->daemon_user, &entry, space, sizeof(space), &found) && found) {
		settings->daemon_uid = found->pw_uid;
		return true;
	}
	errno = 0;
	number = strtol(settings->daemon_user, &end, 10);
	if (errno || *end || number < 0 || number > INT32_MAX)
		return false;
	settings->daemon_uid = (uid_t)number;
	return true;
}

bool rtsched_settings_read(const char *path, struct rtsched_settings *settings, char *problem,
			   size_t size)
{
	struct rtsched_settings read;
	char line[512];
	bool good = true;
	FILE *file = fopen(path, "re");

	if (!file && errno != ENOENT) {
		snprintf(problem, size, "%s: cannot be read: %s", path, strerror(errno));
		return false;
	}
	rtsched_settings_default(&read);
	for (int number = 1; file && good && fgets(line, sizeof(line), file); number++) {
		if (!strchr(line, '\n') && !feof(file)) {
			snprintf(problem, size, "%s:%d: the line is too long", path, number);
			good = false;
		} else {
			good = read_line(path, number, line, &read, problem, size);
		}
	}
	if (file)
		fclose(file);
	if (good)
		*settings = read;
	return good;
}
