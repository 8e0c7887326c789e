/* The verdict on a job that is submitted. */
#ifndef RTSCHED_JUDGE_H
#define RTSCHED_JUDGE_H

#include <optional>

#include <classad/classad_distribution.h>

#include "answer.h"

namespace rtsched {

/* Return whether a job is to be judged at all; nobody is asked. */
bool concerns_us(const classad::ClassAd &ad);

/* The transform keeps RtPerSlot: the daemon may answer on a whole cluster at its first proc. */
void keeps_arrays();

/* Return what becomes of a job; nothing: it is not to be judged, or not now.
 *
 * Asks the daemon at most once for a job that is judged several times in a row, and at most once for
 * a cluster that is judged as a whole, which an answer may say. A job is judged while its RtVerdict is "open", as the
 * transform sets it: whatever calls later, in whatever program, asks nobody.
 */
std::optional<SubmitReply> judge(const classad::ClassAd &ad);

} // namespace rtsched

#endif
