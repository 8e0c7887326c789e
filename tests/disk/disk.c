/* A disk that tells in which order it was written to, and fails when it is asked to.
 *
 * Preloaded (ld.so(8)) into a process. Of the files below DISK_DIRECTORY each creation, write,
 * truncation, sync and removal goes to the file DISK_TRACE, in the order in which they were done:
 * a line `KIND NAME OFFSET LENGTH`, for a write its bytes behind it. KIND: C creation, W write,
 * T truncation, S sync (`.`: of the directory), U removal, M a mark.
 *
 * What is written to the file `mark` there is not written but is a mark. One that reads
 * `fail ERRNO SKIP COUNT` lets the next SKIP writes, truncations and syncs pass, and COUNT fail.
 *
 * `-shm` files are left out of the trace: SQLite makes them anew after a power cut.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static char directory[512];
static int trace = -1;
static int fails_with, skipped, failing;

__attribute__((constructor)) static void begin(void)
{
	const char *where = getenv("DISK_DIRECTORY"), *path = getenv("DISK_TRACE");

	if (where)
		snprintf(directory, sizeof(directory), "%s", where);
	if (path)
		trace = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
				0600);
}

/* Return the name of a file below the directory, `.` for itself, NULL for others. */
static const char *name_in(const char *path)
{
	size_t length = strlen(directory);

	if (!length || strncmp(path, directory, length))
		return NULL;
	if (!path[length])
		return ".";
	return path[length] == '/' ? path + length + 1 : NULL;
}

static const char *name_of(int fd, char *path, size_t size)
{
	char link[64];
	ssize_t length;

	if (!directory[0])
		return NULL;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, size - 1);
	if (length < 0)
		return NULL;
	path[length] = 0;
	return name_in(path);
}

static void put(const void *data, size_t length)
{
	const char *at = data;

	while (length > 0) {
		ssize_t done = syscall(SYS_write, trace, at, length);

		if (done <= 0)
			abort();
		at += done;
		length -= done;
	}
}

static void tell(char kind, const char *name, long offset, size_t length, const void *data)
{
	char line[600];
	int size;

	if (trace < 0 || strstr(name, "-shm") || strstr(name, ".lock"))
		return;
	size = snprintf(line, sizeof(line), "%c %s %ld %zu\n", kind, name, offset, length);
	put(line, size);
	if (data)
		put(data, length);
}

/* Return whether this call fails; errno says how. */
static int fails(const char *name)
{
	if (!name || !failing)
		return 0;
	if (skipped > 0) {
		skipped--;
		return 0;
	}
	failing--;
	errno = fails_with;
	return 1;
}

static ssize_t marked(const void *data, size_t length)
{
	char text[200];

	snprintf(text, sizeof(text), "%.*s", (int)length, (const char *)data);
	if (sscanf(text, "fail %d %d %d", &fails_with, &skipped, &failing) != 3)
		tell('M', "mark", 0, length, data);
	return length;
}

static ssize_t written(int fd, const void *data, size_t length, off_t offset, int at_offset)
{
	char path[512];
	const char *name = name_of(fd, path, sizeof(path));
	ssize_t done;

	if (!name)
		return at_offset ? syscall(SYS_pwrite64, fd, data, length, offset)
				 : syscall(SYS_write, fd, data, length);
	pthread_mutex_lock(&turn);
	if (!strcmp(name, "mark")) {
		done = marked(data, length);
	} else if (fails(name)) {
		done = -1;
	} else {
		if (!at_offset)
			offset = syscall(SYS_lseek, fd, 0, SEEK_CUR);
		done = at_offset ? syscall(SYS_pwrite64, fd, data, length, offset)
				 : syscall(SYS_write, fd, data, length);
		if (done > 0)
			tell('W', name, offset, done, data);
	}
	pthread_mutex_unlock(&turn);
	return done;
}

ssize_t write(int fd, const void *data, size_t length)
{
	return written(fd, data, length, 0, 0);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset)
{
	return written(fd, data, length, offset, 1);
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset)
{
	return written(fd, data, length, offset, 1);
}

static int done_to(char kind, int fd, off_t size, long number)
{
	char path[512];
	const char *name = name_of(fd, path, sizeof(path));
	int done;

	pthread_mutex_lock(&turn);
	done = fails(name) ? -1 : syscall(number, fd, size);
	if (name && !done)
		tell(kind, name, size, 0, NULL);
	pthread_mutex_unlock(&turn);
	return done;
}

int ftruncate(int fd, off_t size)
{
	return done_to('T', fd, size, SYS_ftruncate);
}

int ftruncate64(int fd, off64_t size)
{
	return done_to('T', fd, size, SYS_ftruncate);
}

int fsync(int fd)
{
	return done_to('S', fd, 0, SYS_fsync);
}

int fdatasync(int fd)
{
	return done_to('S', fd, 0, SYS_fdatasync);
}

int unlink(const char *path)
{
	const char *name = name_in(path);
	int done;

	pthread_mutex_lock(&turn);
	done = syscall(SYS_unlinkat, AT_FDCWD, path, 0);
	if (name && !done)
		tell('U', name, 0, 0, NULL);
	pthread_mutex_unlock(&turn);
	return done;
}

static int opened(const char *path, int flags, mode_t mode)
{
	const char *name = name_in(path);
	int made = name && (flags & O_CREAT) && syscall(SYS_faccessat, AT_FDCWD, path, F_OK);
	int fd;

	pthread_mutex_lock(&turn);
	fd = syscall(SYS_openat, AT_FDCWD, path, flags, mode);
	if (made && fd >= 0)
		tell('C', name, 0, 0, NULL);
	pthread_mutex_unlock(&turn);
	return fd;
}

int open(const char *path, int flags, ...)
{
	va_list more;
	mode_t mode;

	va_start(more, flags);
	mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(more, mode_t) : 0;
	va_end(more);
	return opened(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	va_list more;
	mode_t mode;

	va_start(more, flags);
	mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(more, mode_t) : 0;
	va_end(more);
	return opened(path, flags | O_LARGEFILE, mode);
}
