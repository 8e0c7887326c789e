#include "matching.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <string_view>
#include <strings.h>

#include "slots.h"

namespace rtsched {

using classad::EvalState;
using classad::ExprTree;
using classad::Value;

namespace {

using Number = std::optional<double>;
using Truth = std::optional<bool>;

/* Where the arguments of `may_start` stand; then the requests, as `Resource` has them. */
constexpr size_t RUN_TIME = 0, DEFERRAL_TIME = 1, REQUESTS = 2;

/* And those of `rank`. */
constexpr size_t NODE_SET = 0, RANK_SET = 1;

constexpr double LONG = 1e12;	     /* s: a run time that nobody states */
constexpr double DEFERRED_MOST = 600; /* s: how long a job may wait in its slot */
constexpr double MEMORY_STEP = 128;  /* MiB, to which the startd rounds memory up */
constexpr double DISK_STEP = 1024;   /* KiB */

/* Attributes of the slot, and arguments, in one evaluation. */
class Evaluation {
      public:
	Evaluation(const classad::ArgumentList &given, EvalState &in) : arguments(given), state(in) {}

	Value attribute(const char *name) { return value_of(state.curAd->Lookup(name)); }
	Value argument(size_t at) { return value_of(arguments[at]); }

	Value request(Resource resource) { return argument(REQUESTS + resource); }
	bool is_true(const char *name)
	{
		bool truth;

		return attribute(name).IsBooleanValue(truth) && truth;
	}

      private:
	Value value_of(const ExprTree *expression)
	{
		Value value;

		if (expression && !expression->Evaluate(state, value))
			value.SetErrorValue();
		return value;
	}

	const classad::ArgumentList &arguments;
	EvalState &state;
};

Number number(const Value &value)
{
	double found;

	return value.IsNumber(found) ? Number(found) : Number();
}

/* Return a number, or `otherwise` where there is no value; nothing: the value is no number. */
Number number(const Value &value, double otherwise)
{
	return value.IsUndefinedValue() ? otherwise : number(value);
}

/* When a job ends that starts now, which may wait in its slot for its deferral time. */
double end_of(Evaluation &evaluation)
{
	double now = static_cast<double>(time(nullptr));
	Number begin = number(evaluation.argument(DEFERRAL_TIME), 0);
	Number run_time = number(evaluation.argument(RUN_TIME), LONG);

	if (!begin || !run_time)
		return std::numeric_limits<double>::infinity();
	return std::max(now, std::min(*begin, now + DEFERRED_MOST)) + *run_time;
}

/* Whether a dynamic slot is made now, or has its first job: its parent has been asked. */
bool is_new(Evaluation &slot)
{
	const char *state;
	Value value = slot.attribute("State");

	if (value.IsStringValue(state) && !strcasecmp(state, "Owner"))
		return true;
	return !slot.attribute("PublicClaimId").IsUndefinedValue() &&
	       slot.attribute("TotalJobRunTime").IsUndefinedValue();
}

Truth both(Truth one, Truth other)
{
	if ((one && !*one) || (other && !*other))
		return false;
	return one && other ? Truth(true) : Truth();
}

/* Return a request as the startd rounds it up. */
Number rounded(Number request, double step)
{
	return request ? Number(std::ceil(*request / step) * step) : request;
}

/* Whether `kept` is left of what is free. */
Truth leaves(Number free, Number taken, int64_t kept)
{
	return free && taken ? Truth(*free - *taken >= static_cast<double>(kept)) : Truth();
}

/* Where the table does not name memory, each processor that is kept has its part of it. */
Truth leaves_memory(Evaluation &slot, const Amounts &kept)
{
	Number free = number(slot.attribute("Memory")), taken = number(slot.request(MEMORY), 0);

	if (kept[MEMORY] != UNSAID)
		return leaves(free, rounded(taken, MEMORY_STEP), kept[MEMORY]);
	Number cpus = number(slot.attribute("TotalSlotCpus"));
	Number memory = number(slot.attribute("TotalSlotMemory"));
	if (!free || !taken || !cpus || !memory)
		return {};
	return (*free - *taken) * *cpus / *memory >= static_cast<double>(kept[CPUS]);
}

/* Whether a list of names, as the daemon writes it with commas, has a name. */
bool has(const Value &list, std::string_view name)
{
	const char *text;

	if (!list.IsStringValue(text))
		return false;
	for (std::string_view rest = text; !rest.empty();) {
		size_t end = std::min(rest.find(','), rest.size());
		if (end && rest.substr(0, end) == name)
			return true;
		rest.remove_prefix(std::min(end + 1, rest.size()));
	}
	return false;
}

} // namespace

Truth may_start(const classad::ArgumentList &arguments, EvalState &state)
{
	Evaluation slot(arguments, state);
	bool is_dynamic = slot.is_true("DynamicSlot");
	const char *name;
	Amounts kept = {};

	if (is_dynamic && is_new(slot))
		return true;
	/* RtSlot is the name, but of a dynamic slot; and takes longer. */
	Value value = slot.attribute(is_dynamic ? "RtSlot" : "Name");
	if (value.IsStringValue(name))
		kept = is_dynamic ? lacks_before(name, end_of(slot)) : kept_before(name, end_of(slot));
	Number cpus = number(slot.request(CPUS));
	if (!cpus)
		return {};
	if (!slot.is_true("PartitionableSlot"))
		return kept[CPUS] <= 0; /* nothing is left of it */
	Truth may = both(leaves(number(slot.attribute("Cpus")), std::max(*cpus, 1.0), kept[CPUS]),
			 leaves_memory(slot, kept));
	if (kept[GPUS] != UNSAID)
		may = both(may, leaves(number(slot.attribute("GPUs"), 0),
				       number(slot.request(GPUS), 0), kept[GPUS]));
	if (kept[DISK] != UNSAID)
		may = both(may, leaves(number(slot.attribute("Disk")),
				       rounded(number(slot.request(DISK), 0), DISK_STEP),
				       kept[DISK]));
	return may;
}

double rank(const classad::ArgumentList &arguments, EvalState &state)
{
	Evaluation slot(arguments, state);
	Value value = slot.attribute("Name");
	const char *name = "";

	value.IsStringValue(name);
	return 1e15 * has(slot.argument(NODE_SET), name) +
	       1e14 * slot.attribute("RemoteOwner").IsUndefinedValue() +
	       1e13 * has(slot.argument(RANK_SET), name) - 1e9 * delay_of(name, 1);
}

} // namespace rtsched
