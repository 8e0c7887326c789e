/* A slot and a job, as the negotiator weighs them: what START and its rank say, in one call each.
 *
 * The slot is the one in whose ad the expression stands. What is needed of the job are arguments, since
 * HTCondor finds in an expression's text which attributes of jobs count. */
#ifndef RTSCHED_MATCHING_H
#define RTSCHED_MATCHING_H

#include <optional>

#include <classad/classad_distribution.h>

namespace rtsched {

/* Return whether what is kept of the slot for promised starts stays free if a best-effort job starts in
 * it now; nothing: that is not known, as without a job.
 *
 * The arguments are the job's run time, deferral time, CPUs, memory, GPUs and disk.
 * `51-rtsched-execute.conf` has the same rule as an expression. */
std::optional<bool> may_start(const classad::ArgumentList &arguments, classad::EvalState &state);

/* Return how well the slot suits a job: one of its node set comes first, then those that are free, then
 * one of its rank set, then the faster. The arguments are these two sets.
 *
 * `50-rtsched.conf` has the same sum as an expression. */
double rank(const classad::ArgumentList &arguments, classad::EvalState &state);

} // namespace rtsched

#endif
