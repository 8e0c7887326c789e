#include "job_ad.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <string_view>
#include <strings.h>

namespace rtsched {

using classad::ClassAd;
using classad::Value;

namespace {

constexpr const char *sent[] = {
	"ClusterId", "ProcId", "GlobalJobId", "TotalSubmitProcs", "JobFactoryId",
	"JobMaterializeDigestFile", "Owner", "User", "AcctGroup", "AccountingGroup",
	"AcctGroupUser", "JobUniverse", "RequestCpus", "RequestMemory", "RequestDisk",
	"RequestGPUs", "MinHosts", "MaxHosts", "AllowedExecuteDuration", "AllowedJobDuration",
	"JobPrio", "QDate", "DAGManJobId", "DAGNodeName", "JobBatchName", "DeferralTime", "Cmd",
	"JobStatus", "HoldReasonCode", "GPUsMinCapability", "GPUsMaxCapability", "GPUsMinMemory",
	"GPUsMinRuntime", "JobMaxVacateTime", "CronMinute", "CronHour", "CronDayOfMonth", "CronMonth",
	"CronDayOfWeek",
};

/* Sent as `error` where they have no value before the job is matched: that is not the default. */
constexpr const char *requests[] = {"RequestCpus", "RequestMemory", "RequestDisk", "RequestGPUs"};

/* When a job may start: the expression, where there is more to it than numbers. */
constexpr const char *DEFERRAL = "DeferralTime";
constexpr const char *DEFERRAL_WRITTEN = "DeferralTimeWritten";

/* What becomes of a job when it ends: sent where it does not depend on how, with `Written` behind the
 * name. Before it ends, what depends on that would be as false as `false`. */
constexpr const char *at_exit[] = {"OnExitRemove", "OnExitHold"};
constexpr const char *literals[] = {"true", "false", "undefined", "error"};

/* Sent as they are written: only a slot and its GPUs give them a value. */
constexpr const char *REQUIREMENTS = "Requirements";
constexpr const char *REQUIRED_GPUS = "RequireGPUs";
constexpr const char *as_written[] = {REQUIREMENTS, REQUIRED_GPUS};

/* Requirements may refer to these, in which procs of a cluster differ by their files: rtsched plans
 * with what a job requests, and leaves the sizes out. */
constexpr const char *sizes[] = {
	"RequestDisk", "DiskUsage", "ImageSize", "ExecutableSize", "MemoryUsage",
	"ResidentSetSize", "TransferInputSizeMB",
};

/* Written by rtsched only: never sent, and no wish. */
constexpr const char *ours[] = {
	"RtToken", "RtAdmission", "RtVerdict", "RtMessage", "RtNodeSet", "RtRankSet", "RtPromise",
	"RtPlannedStart", "RtFraction", "RtNode", "RtWhy", "RtLimit", "RtHosts", "RtJobPrio",
	"RtPerSlot", "RtSlots",
};

/* Sent, but no wish: jobs that want no promise say these too. */
constexpr const char *describing[] = {"RtRunTime", "RtCheckpoint", "RtNotify", "RtElse"};

/* What a promise for a whole cluster stands on, besides the attributes Rt... */
constexpr const char *common[] = {
	"TotalSubmitProcs", "Owner", "AcctGroup", "AccountingGroup", "JobUniverse", "RequestCpus",
	"RequestMemory", "RequestGPUs", "AllowedExecuteDuration", "AllowedJobDuration",
	"DeferralTime", "GPUsMinCapability", "GPUsMaxCapability", "GPUsMinMemory", "GPUsMinRuntime",
};

constexpr int SCHEDULER = 7, PARALLEL = 11, LOCAL = 12; /* JobUniverse */

template <size_t N> bool is_one_of(const std::string &name, const char *const (&names)[N])
{
	for (const char *other : names)
		if (!strcasecmp(name.c_str(), other))
			return true;
	return false;
}

struct IgnoringCase {
	bool operator()(const std::string &one, const std::string &other) const
	{
		return strcasecmp(one.c_str(), other.c_str()) < 0;
	}
};

/* Whether a name of this form can stand in a line; ads can hold others. */
bool is_plain(const std::string &name)
{
	for (unsigned char letter : name)
		if (!isalnum(letter) && letter != '_')
			return false;
	return true;
}

bool begins_with_rt(const std::string &name)
{
	return name.size() > 2 && !strncasecmp(name.c_str(), "Rt", 2);
}

void collect(const ClassAd &ad, std::set<std::string, IgnoringCase> &names)
{
	for (const auto &attribute : ad)
		if (begins_with_rt(attribute.first) && is_plain(attribute.first) &&
		    !is_one_of(attribute.first, ours))
			names.insert(attribute.first);
}

void add_string(std::string &to, const char *text)
{
	to += '"';
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			to += '\\';
		to += iscntrl(static_cast<unsigned char>(*text)) ? ' ' : *text;
	}
	to += '"';
}

template <typename Number> void add_number(std::string &to, Number number)
{
	char digits[32];
	auto end = std::to_chars(digits, digits + sizeof(digits), number).ptr;

	to.append(digits, end);
}

void add_literal(std::string &to, const Value &value)
{
	const char *text;
	long long integer;
	double real;
	bool truth;

	if (value.IsStringValue(text))
		add_string(to, text);
	else if (value.IsBooleanValue(truth))
		to += truth ? "true" : "false";
	else if (value.IsIntegerValue(integer))
		add_number(to, integer);
	else if (value.IsRealValue(real) && std::isfinite(real))
		add_number(to, real);
	else
		to += "error";
}

/* Return an expression as it is written; empty: there is none. */
std::string written(const ClassAd &ad, const std::string &name)
{
	classad::ClassAdUnParser unparser;
	std::string text;

	if (const classad::ExprTree *expression = ad.Lookup(name))
		unparser.Unparse(text, expression);
	return text;
}

/* Whether an attribute is an expression that has no value yet. */
bool is_open(const ClassAd &ad, const std::string &name)
{
	std::string text = written(ad, name);

	return !text.empty() && strcasecmp(text.c_str(), "undefined");
}

/* Add a line, unless the attribute is undefined; return whether there is one. */
bool add_line(const ClassAd &ad, const std::string &name, std::string &lines)
{
	Value value;

	if (!ad.EvaluateAttr(name, value))
		value.SetErrorValue();
	if (value.IsUndefinedValue() && is_one_of(name, requests) && is_open(ad, name))
		value.SetErrorValue();
	if (value.IsUndefinedValue())
		return false;
	lines += name;
	lines += " = ";
	add_literal(lines, value);
	lines += '\n';
	return true;
}

bool is_defined(const ClassAd &ad, const char *name)
{
	Value value;

	return ad.EvaluateAttr(name, value) && !value.IsUndefinedValue();
}

long long integer_of(const ClassAd &ad, const char *name)
{
	long long integer;
	Value value;

	return ad.EvaluateAttr(name, value) && value.IsIntegerValue(integer) ? integer : -1;
}

/* Whether all procs of an array must have an attribute in common. Disk only where a number is stated:
 * the default follows from each proc's files. */
bool is_common(const ClassAd &ad, const char *name)
{
	double number;

	if (strcasecmp(name, "RequestDisk"))
		return is_one_of(name, common);
	std::string text = written(ad, name);
	const char *end = text.data() + text.size();
	return !text.empty() && std::from_chars(text.data(), end, number).ptr == end;
}

/* Add a line, and keep its literal if the procs of an array have it in common. */
bool add(const ClassAd &ad, const std::string &name, bool is_common, JobAd &job)
{
	size_t before = job.lines.size();

	if (!add_line(ad, name, job.lines))
		return false;
	if (is_common)
		job.needs[name] = job.lines.substr(before + name.size() + 3);
	return true;
}

/* Add an expression as a string; the procs of an array have it in common. */
void add_text(const std::string &name, const std::string &text, JobAd &job)
{
	std::string literal;

	if (text.empty())
		return;
	add_string(literal, text.c_str());
	job.lines += name + " = " + literal + '\n';
	job.needs[name] = literal;
}

void add_written(const ClassAd &ad, const std::string &name, JobAd &job)
{
	add_text(name, written(ad, name), job);
}

/* Add what a job's start follows from, unless that is a number. */
void add_deferral(const ClassAd &ad, JobAd &job)
{
	std::string text = written(ad, DEFERRAL);

	if (std::any_of(text.begin(), text.end(), [](unsigned char letter) { return isalpha(letter); }))
		add_text(DEFERRAL_WRITTEN, text, job);
}

/* Return the place behind a word, or behind a text in quotes, that begins at a place. */
size_t behind(const std::string &text, size_t at)
{
	const char quote = text[at];
	size_t end = at + 1;

	if (quote != '"' && quote != '\'') {
		while (end < text.size() && (isalnum(static_cast<unsigned char>(text[end])) ||
					     text[end] == '_' || text[end] == '.'))
			end++;
		return end;
	}
	while (end < text.size() && text[end] != quote)
		end += text[end] == '\\' ? 2 : 1;
	return end + 1;
}

/* Return the attributes to which an expression may refer that are the job's own: those with the
 * scope MY, or with none. (HTCondor knows the scope only while it matches two ads.) */
std::set<std::string, IgnoringCase> referred(const std::string &text)
{
	std::set<std::string, IgnoringCase> names;

	for (size_t at = 0, end; at < text.size(); at = end) {
		unsigned char letter = text[at];
		bool is_word = isalnum(letter) || letter == '_' || letter == '.';
		end = is_word || letter == '"' || letter == '\'' ? behind(text, at) : at + 1;
		if (!isalpha(letter) && letter != '_')
			continue;
		std::string name = text.substr(at, end - at);
		if (!strncasecmp(name.c_str(), "MY.", 3))
			name.erase(0, 3);
		names.insert(name.substr(0, name.find('.')));
	}
	return names;
}

/* Whether a condition is literals alone; the daemon evaluates these (`_constant` in requirements.py). */
bool is_constant(const std::string &text)
{
	constexpr size_t LONGEST = 100;

	for (const std::string &name : referred(text))
		if (!is_one_of(name, literals))
			return false;
	return !text.empty() && text.size() <= LONGEST &&
	       text.find_first_of("+-*/%^~<>,;[]{}\"'") == std::string::npos;
}

/* Add what becomes of a job however it ends. */
void add_at_exit(const ClassAd &ad, JobAd &job)
{
	for (const char *name : at_exit)
		if (std::string text = written(ad, name); is_constant(text))
			add_text(std::string(name) + "Written", text, job);
}

/* Add what the Requirements refer to of the job itself; the procs of an array have it in common. */
void add_referred(const ClassAd &ad, JobAd &job)
{
	for (const std::string &name : referred(written(ad, REQUIREMENTS))) {
		if (begins_with_rt(name) || is_one_of(name, as_written))
			continue;
		size_t before = job.lines.size();
		add(ad, name, !is_one_of(name, sizes), job);
		if (is_one_of(name, sent))
			job.lines.resize(before); /* it is there already */
	}
}

} // namespace

JobAd describe(const ClassAd &ad)
{
	std::set<std::string, IgnoringCase> names;
	std::string verdict;
	bool is_load = false;
	JobAd job;

	collect(ad, names);
	if (const ClassAd *cluster = ad.GetChainedParentAd())
		collect(*cluster, names);
	for (const char *name : sent)
		add(ad, name, is_common(ad, name), job);
	add_written(ad, REQUIRED_GPUS, job);
	if (is_defined(ad, "RtDeadline")) {
		add_written(ad, REQUIREMENTS, job);
		add_referred(ad, job);
		add_deferral(ad, job);
		add_at_exit(ad, job);
	}
	for (const std::string &name : names) {
		bool is_deadline = !strcasecmp(name.c_str(), "RtDeadline");
		if (!add(ad, name, !is_deadline, job))
			continue;
		if (is_deadline && !ad.EvaluateAttrNumber(name, job.deadline))
			job.deadline = 0;
		job.wishes = job.wishes || !is_one_of(name, describing);
		is_load = is_load || !strcasecmp(name.c_str(), "RtSigma");
	}
	bool is_factory = is_defined(ad, "JobFactoryId");
	job.cluster = integer_of(ad, "ClusterId");
	job.materialized = !is_factory && is_defined(ad, "JobMaterializeDigestFile");
	const long long universe = integer_of(ad, "JobUniverse");
	bool is_wide = is_load || universe == PARALLEL;
	job.takes_slot = universe != SCHEDULER && universe != LOCAL;
	if (double seconds = 0; ad.EvaluateAttrNumber("RtRunTime", seconds) && seconds >= 0)
		job.minutes = seconds < 6e8 ? static_cast<long long>(std::ceil(seconds / 60)) : -1;
	job.whole = is_factory || job.materialized || is_wide;
	job.apart = job.materialized && !is_wide && integer_of(ad, "ProcId") > 0;
	ad.EvaluateAttrString("RtVerdict", verdict);
	job.open = verdict == "open";
	return job;
}

} // namespace rtsched
