/* Files that are read again when they have changed. C11 and C++. */
#ifndef RTSCHED_FILE_H
#define RTSCHED_FILE_H

#include <stdbool.h>
#include <sys/stat.h>

/* Return whether a file is the one that was read before, as far as its stat tells.
 *
 * The time alone does not: it is the kernel's tick, and a file may be written twice within one.
 */
static inline bool rtsched_is_unchanged(const struct stat *read, const struct stat *now)
{
	return read->st_dev == now->st_dev && read->st_ino == now->st_ino &&
	       read->st_size == now->st_size && read->st_uid == now->st_uid &&
	       read->st_mode == now->st_mode && read->st_mtim.tv_sec == now->st_mtim.tv_sec &&
	       read->st_mtim.tv_nsec == now->st_mtim.tv_nsec;
}

#endif
