/* The verdict on a job that is submitted. */
#ifndef RTSCHED_JUDGE_H
#define RTSCHED_JUDGE_H

#include <optional>

#include <classad/classad_distribution.h>

#include "answer.h"

namespace rtsched {

/* Return what becomes of a job; nothing: it is none of rtsched's concern.
 *
 * Asks the daemon at most once for a job that is judged several times in a row, and at most once for
 * a cluster that is judged as a whole. Only the schedd asks; elsewhere nothing is judged.
 */
std::optional<Ruling> judge(const classad::ClassAd &ad);

} // namespace rtsched

#endif
