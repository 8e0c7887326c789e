#define _GNU_SOURCE
#include "promised_jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../common/rtsched_client.h"
#include "../common/rtsched_file.h"

/* What stands in it */

static const char title[] = "rtsched-promised-jobs 1 ";
static const char mark[] = "user ";
static const char end[] = "end\n";

struct text {
	const char *at;
	const char *end;
};

/* Take a word off the text, if it begins so. */
static bool take(struct text *text, const char *word)
{
	size_t length = strlen(word);

	if ((size_t)(text->end - text->at) < length || memcmp(text->at, word, length))
		return false;
	text->at += length;
	return true;
}

/* Take a line off the text that is one number. */
static bool take_number(struct text *text, uint32_t *number)
{
	const char *first = text->at;
	uint64_t value = 0;

	while (text->at < text->end && *text->at >= '0' && *text->at <= '9' && value <= UINT32_MAX)
		value = value * 10 + (uint64_t)(*text->at++ - '0');
	*number = (uint32_t)value;
	return text->at > first && value <= UINT32_MAX && take(text, "\n");
}

static int by_size(const void *one, const void *other)
{
	uint32_t first = *(const uint32_t *)one, second = *(const uint32_t *)other;

	return (first > second) - (first < second);
}

/* Take the lines that begin with `word` and a number; NULL: memory is short, or they do not ascend. */
static uint32_t *take_numbers(struct text *text, const char *word, size_t *count)
{
	size_t capacity = 64;
	uint32_t *numbers = malloc(capacity * sizeof(*numbers)), number;

	for (*count = 0; numbers;) {
		struct text rest = *text;

		if (!take(&rest, word) || !take_number(&rest, &number))
			return numbers;
		if (*count == RTSCHED_MOST_PROMISED_JOBS ||
		    (*count && number <= numbers[*count - 1]))
			break;
		if (*count == capacity) {
			uint32_t *more = realloc(numbers, 2 * capacity * sizeof(*numbers));

			if (!more)
				break;
			numbers = more;
			capacity *= 2;
		}
		numbers[(*count)++] = number;
		*text = rest;
	}
	free(numbers);
	*count = 0;
	return NULL;
}

bool rtsched_promised_jobs_read(const char *bytes, size_t length, struct rtsched_promised_jobs *list,
				char *wrong, size_t size)
{
	struct text text = {bytes, bytes + length};
	struct rtsched_promised_jobs read = {0};

	if (!take(&text, title) || !take_number(&text, &read.newest))
		snprintf(wrong, size, "its first line is not `%sNUMBER`", title);
	else if (!(read.jobs = take_numbers(&text, "", &read.n_jobs)))
		snprintf(wrong, size, "its jobs are not in ascending order, or too many");
	else if (!(read.users = take_numbers(&text, mark, &read.n_users)))
		snprintf(wrong, size, "its users are not in ascending order, or too many");
	else if (!take(&text, end) || text.at != text.end)
		snprintf(wrong, size, "it is incomplete, or malformed after %zu jobs and %zu users",
			 read.n_jobs, read.n_users);
	else {
		*list = read;
		return true;
	}
	rtsched_promised_jobs_free(&read);
	return false;
}

void rtsched_promised_jobs_free(struct rtsched_promised_jobs *list)
{
	free(list->jobs);
	free(list->users);
	memset(list, 0, sizeof(*list));
}

static bool holds(const uint32_t *numbers, size_t count, uint32_t number)
{
	return count && bsearch(&number, numbers, count, sizeof(number), by_size);
}

enum rtsched_promised rtsched_promised_jobs_find(const struct rtsched_promised_jobs *list,
						 uint32_t job, const uint32_t users[2])
{
	if (holds(list->jobs, list->n_jobs, job))
		return RTSCHED_PROMISED;
	if (job > list->newest && (holds(list->users, list->n_users, users[0]) ||
				   holds(list->users, list->n_users, users[1])))
		return RTSCHED_PERHAPS_PROMISED;
	return RTSCHED_NOT_PROMISED;
}

/* The file */

static struct {
	pthread_mutex_t lock;
	int64_t look_at; /* ms */
	struct stat seen;
	uid_t owner;
	char path[256], wrong[160]; /* wrong is empty: the list can be used */
	struct rtsched_promised_jobs list;
} file = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Return so many bytes of an open file; NULL: there are fewer, or memory is short. */
static char *whole(int fd, size_t length)
{
	char *text = malloc(length + 1);
	size_t at = 0;
	ssize_t got;

	while (text && at < length && (got = read(fd, text + at, length - at)) > 0)
		at += (size_t)got;
	if (text && at == length)
		return text;
	free(text);
	return NULL;
}

static void read_open(int fd, uid_t owner)
{
	struct stat found;
	char *text;

	if (fstat(fd, &found) || !S_ISREG(found.st_mode) ||
	    found.st_size > RTSCHED_LONGEST_PROMISED_JOBS)
		snprintf(file.wrong, sizeof(file.wrong), "it is not a regular file, or larger than 4 MiB");
	else if (found.st_uid != 0 && found.st_uid != owner)
		snprintf(file.wrong, sizeof(file.wrong),
			 "it belongs neither to daemon_user nor to root");
	else if (found.st_mode & (S_IWGRP | S_IWOTH))
		snprintf(file.wrong, sizeof(file.wrong), "it is writable by others than its owner");
	else if (!(text = whole(fd, (size_t)found.st_size)))
		snprintf(file.wrong, sizeof(file.wrong), "it cannot be read");
	else {
		file.wrong[0] = 0;
		rtsched_promised_jobs_read(text, (size_t)found.st_size, &file.list, file.wrong,
					   sizeof(file.wrong));
		free(text);
	}
}

/* Read the file if it is another one than was read last, or could not be used; the lock is held. */
static void refresh(const char *path, uid_t owner)
{
	struct stat found = {0};
	int fd;

	if (stat(path, &found))
		memset(&found, 0, sizeof(found));
	if (!file.wrong[0] && owner == file.owner && found.st_ino &&
	    rtsched_is_unchanged(&file.seen, &found) && !strcmp(path, file.path))
		return;
	file.seen = found;
	file.owner = owner;
	snprintf(file.path, sizeof(file.path), "%s", path);
	rtsched_promised_jobs_free(&file.list);
	/* A pipe must not be waited for, and a link may lead anywhere. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	if (fd < 0) {
		snprintf(file.wrong, sizeof(file.wrong), "%s", strerror(errno));
		return;
	}
	read_open(fd, owner);
	close(fd);
}

enum rtsched_promised rtsched_promised_jobs_look(const char *path, uid_t owner, uint32_t job,
						 const uint32_t users[2], char *why, size_t size)
{
	enum rtsched_promised found = RTSCHED_PROMISES_UNKNOWN;
	int64_t now = rtsched_now_ms();

	pthread_mutex_lock(&file.lock);
	if (now >= file.look_at || strcmp(path, file.path)) {
		file.look_at = now + 1000;
		refresh(path, owner);
	}
	if (file.wrong[0])
		snprintf(why, size, "%s", file.wrong);
	else
		found = rtsched_promised_jobs_find(&file.list, job, users);
	pthread_mutex_unlock(&file.lock);
	return found;
}
