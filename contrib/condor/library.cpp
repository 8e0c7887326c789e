/* The ClassAd functions, as HTCondor's daemons load them (CLASSAD_USER_LIBS). */
#include <limits>
#include <strings.h>

#include <classad/classad_distribution.h>

#include "judge.h"
#include "slots.h"

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

/* rtschedJudge("admission" | "verdict" | "message"), on the job in whose ad it stands */
void judge(const ArgumentList &arguments, EvalState &state, Value &result)
{
	const char *what;
	Value word;

	if (arguments.size() != 1 || !arguments[0]->Evaluate(state, word) ||
	    !word.IsStringValue(what) || judging)
		return result.SetErrorValue();
	if (strcasecmp(what, "admission") && strcasecmp(what, "verdict") &&
	    strcasecmp(what, "message"))
		return result.SetErrorValue();
	result.SetUndefinedValue();
	if (!state.rootAd)
		return;
	Judging now;
	std::optional<rtsched::Ruling> ruling = rtsched::judge(*state.rootAd);
	if (!ruling)
		return;
	if (!strcasecmp(what, "verdict"))
		result.SetStringValue(ruling->rejected ? "reject" : "accept");
	else
		say(!strcasecmp(what, "message") ? ruling->message : ruling->admission, result);
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

/* rtschedKept(slot, end); an end that is not known is none */
void kept(const ArgumentList &arguments, EvalState &state, Value &result)
{
	double end = std::numeric_limits<double>::infinity();
	Value slot, given;
	const char *name;

	if (arguments.size() != 2)
		return result.SetErrorValue();
	if (arguments[1]->Evaluate(state, given))
		given.IsNumber(end);
	result.SetIntegerValue(0);
	if (arguments[0]->Evaluate(state, slot) && slot.IsStringValue(name))
		result.SetIntegerValue(rtsched::kept_before(name, end));
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

} // namespace

extern "C" __attribute__((visibility("default"))) classad::ClassAdFunctionMapping *Init(void)
{
	static classad::ClassAdFunctionMapping functions[] = {
		{"rtschedJudge", guarded<judge>, 0},
		{"rtschedDelay", guarded<delay>, 0},
		{"rtschedKept", guarded<kept>, 0},
		{"", nullptr, 0},
	};

	return functions;
}
