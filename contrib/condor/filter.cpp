#include "filter.h"

/* HTCondor's own log: `dprintf` of its daemons and tools, which no public header declares. Where a
 * program has none, the address is null. The C library has another function of that name. */
extern void condor_dprintf(int category, const char *format, ...) __asm__("_Z7dprintfiPKcz")
	__attribute__((weak, format(printf, 2, 3)));

namespace rtsched {

static void log_line(bool is_error, const char *line)
{
	enum { ALWAYS = 0, ERROR = 1 }; /* D_ALWAYS, D_ERROR */

	if (condor_dprintf)
		condor_dprintf(is_error ? ERROR : ALWAYS, "%s\n", line);
}

struct rtsched_filter filter = RTSCHED_FILTER(log_line);

} // namespace rtsched
