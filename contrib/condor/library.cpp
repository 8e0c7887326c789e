/* The ClassAd functions, as HTCondor's daemons load them (CLASSAD_USER_LIBS). */
#include <cmath>
#include <dlfcn.h>
#include <limits>
#include <strings.h>

#include <classad/classad_distribution.h>

#include "filter.h"
#include "judge.h"
#include "matching.h"
#include "slots.h"

/* classad::ClassAdLibraryVersion(int &, int &, int &), which may be missing. */
constexpr const char *VERSION = "_ZN7classad21ClassAdLibraryVersionERiS0_S0_";

namespace {

using classad::ArgumentList;
using classad::EvalState;
using classad::Value;

/* An attribute that calls rtschedJudge while its job is described would begin all over again. */
thread_local bool judging;

struct Judging {
	Judging() { judging = true; }
	~Judging() { judging = false; }
};

void say(const std::string &text, Value &result)
{
	if (text.empty())
		result.SetUndefinedValue();
	else
		result.SetStringValue(text);
}

void say(double number, Value &result)
{
	if (number == std::floor(number) && std::fabs(number) < 1e15)
		result.SetIntegerValue(static_cast<long long>(number));
	else
		result.SetRealValue(number);
}

/* Put one part of the verdict on a job into `result`; false: there is no such part. */
bool judge_part(const char *part, const classad::ClassAd &job, Value &result)
{
	std::optional<rtsched::SubmitReply> reply;

	result.SetUndefinedValue();
	if (!strcasecmp(part, "wanted")) {
		result.SetBooleanValue(rtsched::concerns_us(job));
	} else if (!strcasecmp(part, "admission")) {
		if ((reply = rtsched::judge(job)))
			say(reply->admission, result);
	} else if (!strcasecmp(part, "perslot")) {
		rtsched::keeps_arrays();
		if ((reply = rtsched::judge(job)) && reply->per_slot > 0)
			result.SetIntegerValue(reply->per_slot);
	} else if (!strcasecmp(part, "deadline")) {
		if ((reply = rtsched::judge(job)) && reply->per_slot > 0)
			say(reply->deadline, result);
	} else if (!strcasecmp(part, "message")) {
		if ((reply = rtsched::judge(job)))
			say(reply->message, result);
	} else if (!strcasecmp(part, "verdict")) {
		if ((reply = rtsched::judge(job)))
			say(reply->rejected ? "reject" : "accept", result);
	} else {
		return false;
	}
	return true;
}

/* rtschedJudge("wanted" | "perslot" | "deadline" | "admission" | "message" | "verdict"), on the job in whose ad it stands */
void judge(const ArgumentList &arguments, EvalState &state, Value &result)
{
	const char *part;
	Value word;

	if (arguments.size() != 1 || !arguments[0]->Evaluate(state, word) ||
	    !word.IsStringValue(part) || judging || !state.rootAd)
		return result.SetErrorValue();
	Judging now;
	if (!judge_part(part, *state.rootAd, result))
		result.SetErrorValue();
}

/* rtschedDelay(slot [, otherwise]) */
void delay(const ArgumentList &arguments, EvalState &state, Value &result)
{
	Value slot, given;
	double otherwise = 1;
	const char *name;

	if (arguments.empty() || arguments.size() > 2)
		return result.SetErrorValue();
	if (arguments.size() == 2 && (!arguments[1]->Evaluate(state, given) ||
				      !given.IsNumber(otherwise)))
		return result.SetErrorValue();
	if (arguments[0]->Evaluate(state, slot) && slot.IsStringValue(name))
		result.SetRealValue(rtsched::delay_of(name, otherwise));
	else
		result.SetRealValue(otherwise);
}

/* Find the resource of that name; false: there is none. */
bool find_resource(const char *name, rtsched::Resource &resource)
{
	static constexpr const char *names[] = {"cpus", "memory", "gpus", "disk"};

	for (size_t at = 0; at < rtsched::RESOURCES; at++)
		if (!strcasecmp(name, names[at])) {
			resource = static_cast<rtsched::Resource>(at);
			return true;
		}
	return false;
}

/* rtschedKept(slot, end [, "cpus" | "memory" | "gpus" | "disk"]); an end that is not known is none */
void kept(const ArgumentList &arguments, EvalState &state, Value &result)
{
	double end = std::numeric_limits<double>::infinity();
	rtsched::Resource resource = rtsched::CPUS;
	Value slot, given, word;
	const char *name;
	int64_t amount = 0;

	if (arguments.size() < 2 || arguments.size() > 3)
		return result.SetErrorValue();
	if (arguments.size() == 3 &&
	    (!arguments[2]->Evaluate(state, word) || !word.IsStringValue(name) ||
	     !find_resource(name, resource)))
		return result.SetErrorValue();
	if (arguments[1]->Evaluate(state, given))
		given.IsNumber(end);
	if (arguments[0]->Evaluate(state, slot) && slot.IsStringValue(name))
		amount = rtsched::kept_before(name, end)[resource];
	if (amount == rtsched::UNSAID)
		result.SetUndefinedValue();
	else
		result.SetIntegerValue(amount);
}

/* rtschedMayStart(run time, deferral time, CPUs, memory, GPUs, disk) of a job, on the slot in whose ad it
 * stands */
void may_start(const ArgumentList &arguments, EvalState &state, Value &result)
{
	if (arguments.size() != 6 || !state.curAd)
		return result.SetErrorValue();
	if (std::optional<bool> may = rtsched::may_start(arguments, state))
		result.SetBooleanValue(*may);
	else
		result.SetUndefinedValue();
}

/* rtschedRank(node set, rank set) of a job, likewise */
void rank(const ArgumentList &arguments, EvalState &state, Value &result)
{
	if (arguments.size() != 2 || !state.curAd)
		return result.SetErrorValue();
	result.SetRealValue(rtsched::rank(arguments, state));
}

/* What HTCondor calls: no exception leaves it. */
template <void (*body)(const ArgumentList &, EvalState &, Value &)>
bool guarded(const char *, const ArgumentList &arguments, EvalState &state, Value &result)
{
	try {
		body(arguments, state, result);
	} catch (...) {
		result.SetErrorValue();
	}
	return true;
}

/* Whether this program's classes are laid out as those that the library was built with. Programs that
 * show none of them, such as Python with HTCondor's bindings, cannot have these functions. */
bool fits()
{
	auto version = reinterpret_cast<void (*)(int &, int &, int &)>(dlsym(RTLD_DEFAULT, VERSION));
	int major = 0, minor = 0, patch = 0;
	std::string found;

	if (!version)
		return false;
	version(major, minor, patch);
	found = std::to_string(major) + "." + std::to_string(minor) + ".";
	if (std::string(BUILT_FOR ".").starts_with(found))
		return true;
	std::string line = "rtsched: the ClassAd library was built for HTCondor " BUILT_FOR
			   ", this is " +
			   found + std::to_string(patch) + ": rebuild it; nothing is evaluated";
	rtsched::filter.log(true, line.c_str());
	return false;
}

} // namespace

extern "C" __attribute__((visibility("default"))) classad::ClassAdFunctionMapping *Init(void)
{
	static classad::ClassAdFunctionMapping none[] = {{"", nullptr, 0}};
	static classad::ClassAdFunctionMapping functions[] = {
		{"rtschedJudge", guarded<judge>, 0},
		{"rtschedDelay", guarded<delay>, 0},
		{"rtschedKept", guarded<kept>, 0},
		{"rtschedMayStart", guarded<may_start>, 0},
		{"rtschedRank", guarded<rank>, 0},
		{"", nullptr, 0},
	};

	return fits() ? functions : none;
}
