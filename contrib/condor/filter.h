/* The one filter of this process: settings, breaker, log. */
#ifndef RTSCHED_CONDOR_FILTER_H
#define RTSCHED_CONDOR_FILTER_H

#include "../common/rtsched_filter.h"

namespace rtsched {

extern struct rtsched_filter filter;

} // namespace rtsched

#endif
