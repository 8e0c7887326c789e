#include "judge.h"

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <functional>
#include <mutex>
#include <unordered_map>

#include "../common/rtsched_passed.h"
#include "filter.h"
#include "job_ad.h"

namespace rtsched {

using classad::ClassAd;

namespace {

/* Memory: what was ruled lately */

constexpr int64_t JOB_MS = 2000;
constexpr int64_t CLUSTER_MS = 24 * 3600 * 1000;
constexpr size_t CLUSTERS = 1024;

/* Why nobody judged a job, as the user reads it; what follows is at the end. */
struct Cause {
	std::string what;
	std::string end;
};

struct Remembered {
	SubmitReply reply;
	int64_t until;	 /* ms */
	Lines needs = {}; /* of an array's first proc */
	const Cause *cause = nullptr; /* why nobody judged it */
};

/* Name what a proc says differently from the first one of its array; empty: nothing. */
std::string difference(const Remembered &first, const JobAd &job)
{
	if (job.deadline < first.reply.deadline)
		return "RtDeadline";
	for (const auto &[name, literal] : first.needs)
		if (auto found = job.needs.find(name);
		    found == job.needs.end() || found->second != literal)
			return name;
	for (const auto &[name, literal] : job.needs)
		if (!first.needs.contains(name))
			return name;
	return "";
}

/* Answer a proc of an array as its first one. */
SubmitReply as_first(const Remembered &first, const JobAd &job)
{
	std::string what = difference(first, job);

	if (what.empty())
		return first.reply;
	return {true, "", "rtsched: rejected: procs of a cluster with a deadline must be alike, and "
			  "they differ in " + what + "; submit those that differ as a cluster of their own"};
}

class Memory {
      public:
	std::optional<SubmitReply> recall(const JobAd &job)
	{
		std::lock_guard<std::mutex> held(lock);
		int64_t now = rtsched_now_ms();
		auto cluster = clusters.find(job.cluster);

		if (cluster != clusters.end() && now < cluster->second.until) {
			if (job.whole)
				return cluster->second.reply;
			if (cluster->second.reply.per_slot > 0)
				return as_first(cluster->second, job);
		}
		if (now < last.until && job.lines == lines)
			return last.reply;
		return {};
	}

	/* Return why nobody judged the first procs of a job's cluster; null: somebody did, or the job
	 * came in later than these. Procs of one transaction share what becomes of them. */
	const Cause *unanswered(const JobAd &job)
	{
		std::lock_guard<std::mutex> held(lock);
		auto cluster = clusters.find(job.cluster);

		if (cluster == clusters.end() || job.materialized)
			return nullptr;
		return cluster->second.cause;
	}

	/* Keep a reply; what nobody judged, for which there is a cause, is asked about again soon,
	 * where it comes in bit by bit. */
	void keep(const JobAd &job, const SubmitReply &reply, const Cause *cause)
	{
		std::lock_guard<std::mutex> held(lock);
		int64_t now = rtsched_now_ms();

		lines = job.lines;
		last = {reply, now + JOB_MS};
		if (!(job.whole || reply.per_slot > 0 || cause) || job.cluster < 0)
			return;
		if (!clusters.contains(job.cluster))
			order.push_back(job.cluster);
		clusters[job.cluster] = {reply, now + (cause ? JOB_MS : CLUSTER_MS), job.needs, cause};
		if (order.size() > CLUSTERS) {
			clusters.erase(order.front());
			order.pop_front();
		}
	}

      private:
	std::mutex lock;
	std::string lines; /* of the job that was judged last */
	Remembered last = {{}, 0};
	std::unordered_map<long long, Remembered> clusters;
	std::deque<long long> order; /* the oldest first */
};

Memory memory;

/* How long the schedd has waited for verdicts on the jobs of one cluster. It brings them all in
 * within one transaction, and answers nobody meanwhile. */
class Patience {
      public:
	bool is_over(long long cluster)
	{
		std::lock_guard<std::mutex> held(lock);

		return cluster >= 0 && cluster == of && waited >= CLUSTER_WAIT_MS;
	}

	void spend(long long cluster, int64_t ms)
	{
		std::lock_guard<std::mutex> held(lock);

		waited = cluster == of ? waited + ms : ms;
		of = cluster;
	}

      private:
	static constexpr int64_t CLUSTER_WAIT_MS = 1000;

	std::mutex lock;
	long long of = -1;
	int64_t waited = 0;
};

Patience patience;

/* Without a verdict */

const Cause SILENT = {"the scheduler daemon does not answer", ""};
const Cause FAILED = {"the scheduler daemon could not evaluate it",
		      ". If this persists, tell your administrators: its log says why"};

/* What cannot be asked about now, and must not be refused, is parked. */
SubmitReply in_the_queue()
{
	return {false, PARKED, "rtsched: the job is evaluated in the queue and does not start "
			       "before; RtWhy then shows the result"};
}

SubmitReply unjudged(const struct rtsched_settings &settings, const JobAd &job, const Cause &cause)
{
	/* A refusal would stop the factory, and nobody would be told. */
	if (settings.on_failure == RTSCHED_FAIL_CLOSED && job.materialized)
		return in_the_queue();
	if (settings.on_failure == RTSCHED_FAIL_CLOSED && !job.wishes)
		return {false, "", ""};
	if (settings.on_failure == RTSCHED_FAIL_CLOSED)
		return {true, "", "rtsched: " + cause.what + ", so no deadline can be promised now: "
				  "submit again later, or without Rt attributes" + cause.end};
	if (settings.on_failure == RTSCHED_FAIL_HOLD)
		return {false, PARKED, "rtsched: " + cause.what + "; the job does not start until "
				       "it has been evaluated" + cause.end};
	if (!job.wishes)
		return {false, UNJUDGED, ""};
	return {false, UNJUDGED, "rtsched: accepted without a promise: " + cause.what + cause.end};
}

SubmitReply too_long(const JobAd &job)
{
	return {!job.materialized, job.materialized ? PARKED : "",
		"rtsched: the job's description is longer than 256 KiB: shorten its Rt attributes "
		"and its command"};
}

/* Best-effort jobs that were submitted lately: they may start before the daemon's next poll. */
struct rtsched_passed passed = RTSCHED_NOTHING_PASSED;

/* With it */

std::atomic<bool> arrays;

/* A number for the owner of a job, by which the breaker tells users apart. */
uint32_t user_in(const std::string &lines)
{
	static const std::string mark = "Owner = ";
	size_t at = lines.rfind(mark, 0) == 0 ? 0 : lines.find("\n" + mark);

	if (at == std::string::npos)
		return 0;
	at = lines.find(mark, at);
	return static_cast<uint32_t>(
	    std::hash<std::string>{}(lines.substr(at, lines.find('\n', at) - at)));
}

struct Request : rtsched_request {
	uint32_t user;

	explicit Request(const JobAd &job) : rtsched_request{}, user(user_in(job.lines))
	{
		std::string lines = job.lines + (arrays ? "WholeCluster = true\n" : "");

		rtsched_request_begin(this, RTSCHED_KIND_SUBMIT);
		rtsched_add_text(this, RTSCHED_TAG_AD, lines.c_str());
		char text[RTSCHED_PASSED_SIZE];
		rtsched_passed_text(&passed, time(nullptr), text);
		rtsched_add_text(this, RTSCHED_TAG_PASSED, text);
	}
	~Request() { rtsched_request_free(this); }
	Request(const Request &) = delete;
	Request &operator=(const Request &) = delete;
};

/* Ask; nothing if nobody judged the job, and `cause` says why. */
std::optional<SubmitReply> asked(const struct rtsched_settings &settings, Request &request,
			    const Cause *&cause)
{
	struct rtsched_answer answer;
	std::optional<SubmitReply> reply;
	std::string wrong;

	cause = &SILENT;
	if (rtsched_filter_ask(&filter, request.user, &settings, &request, &answer) != RTSCHED_ANSWERED)
		return {};
	cause = &FAILED;
	try {
		reply = read_answer(answer, wrong);
	} catch (...) {
		free(answer.payload);
		throw;
	}
	free(answer.payload);
	if (!reply)
		rtsched_filter_complain(&filter, wrong.c_str());
	return reply;
}

SubmitReply ruled(const struct rtsched_settings &settings, const JobAd &job)
{
	Request request(job);
	const Cause *cause;

	if (request.too_long) {
		SubmitReply reply = too_long(job);
		memory.keep(job, reply, nullptr);
		return reply;
	}
	int64_t began = rtsched_now_ms();
	std::optional<SubmitReply> reply = asked(settings, request, cause);
	patience.spend(job.cluster, rtsched_now_ms() - began);
	if (reply)
		cause = nullptr;
	else
		reply = unjudged(settings, job, *cause);
	if (!cause && reply->rejected && job.materialized)
		reply = {false, PARKED, reply->message};
	if (reply->per_slot > 0)
		reply->deadline = job.deadline;
	memory.keep(job, *reply, cause);
	return *reply;
}

bool concerns_us(const struct rtsched_settings &settings, const JobAd &job)
{
	return job.wishes || settings.judge_all;
}

} // namespace

void keeps_arrays()
{
	arrays = true;
}

bool concerns_us(const ClassAd &ad)
{
	const JobAd job = describe(ad);
	const bool concerns = concerns_us(rtsched_filter_settings(&filter), job);

	if (!concerns && job.takes_slot)
		rtsched_passed_note(&passed, time(nullptr), job.minutes);
	return concerns;
}

std::optional<SubmitReply> judge(const ClassAd &ad)
{
	const struct rtsched_settings settings = rtsched_filter_settings(&filter);
	const JobAd job = describe(ad);

	if (!job.open || !concerns_us(settings, job))
		return {};
	/* One promise per job: the first proc has its cluster's, the daemon judges each other one. */
	if (job.apart && job.wishes)
		return in_the_queue();
	if (const Cause *cause = memory.unanswered(job))
		return unjudged(settings, job, *cause);
	if (std::optional<SubmitReply> known = memory.recall(job))
		return known;
	if (job.wishes && patience.is_over(job.cluster))
		return in_the_queue();
	return ruled(settings, job);
}

} // namespace rtsched
