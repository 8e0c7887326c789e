/* What becomes of a job, and how the daemon says so. */
#ifndef RTSCHED_ANSWER_H
#define RTSCHED_ANSWER_H

#include <optional>
#include <string>

#include "../common/rtsched_client.h"

namespace rtsched {

struct SubmitReply {
	bool rejected = false;
	std::string admission; /* for RtAdmission; empty: none */
	std::string message;   /* what the user reads; empty: nothing */
	int64_t per_slot = 0;  /* above 0: it is on the whole cluster, an array, of which so many
				* procs run on a slot at a time */
	double deadline = 0;   /* of an array: its first proc's */
};

inline constexpr const char *PARKED = "parked";
inline constexpr const char *UNJUDGED = "unjudged";

/* Read an answer; nothing if it makes no sense, and `wrong` says why. */
std::optional<SubmitReply> read_answer(const struct rtsched_answer &answer, std::string &wrong);

} // namespace rtsched

#endif
