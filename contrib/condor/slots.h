/* The table of slots that the daemon writes: delay factors, and what is kept for promised starts. */
#ifndef RTSCHED_SLOTS_H
#define RTSCHED_SLOTS_H

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rtsched {

/* What of a slot is kept: processors, memory in MiB, GPUs, disk in KiB. */
enum Resource { CPUS, MEMORY, GPUS, DISK };
constexpr size_t RESOURCES = 4;

constexpr int64_t UNSAID = -1; /* what a step does not name */

/* So much of each resource; or `UNSAID`. */
using Amounts = std::array<int64_t, RESOURCES>;

/* From `start` (s since the epoch) on, so much must be free. */
struct Step {
	int64_t start;
	Amounts amounts;
};

struct Slot {
	double delay;
	std::vector<Step> kept; /* by start; amounts never fall */
};

struct Hash {
	using is_transparent = void;
	size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

struct Table {
	int64_t written; /* s since the epoch */
	int64_t valid;	 /* s from then on */
	std::unordered_map<std::string, Slot, Hash, std::equal_to<>> slots;
};

/* Read a table; nothing if it is malformed, and `wrong` names the line. */
std::optional<Table> read_table(std::string_view text, std::string &wrong);

/* Return a slot's delay factor; `otherwise` where none is known. */
double delay_of(std::string_view slot, double otherwise);

/* Return how much of a slot must be free for starts before `end` (s since the epoch). */
Amounts kept_before(std::string_view slot, double end);

/* Return the same of a partitionable slot of which no more is taken: one of its dynamic slots is used
 * again. Nothing where it has enough left for what is kept. */
Amounts lacks_before(std::string_view slot, double end);

} // namespace rtsched

#endif
