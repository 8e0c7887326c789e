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
};

inline constexpr const char *PARKED = "parked";
inline constexpr const char *UNJUDGED = "unjudged";

/* Read an answer; nothing if it makes no sense, and `wrong` says why. */
std::optional<SubmitReply> read_answer(const struct rtsched_answer &answer, std::string &wrong);

} // namespace rtsched

#endif
