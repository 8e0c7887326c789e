/* harness [LIBRARY]: evaluates expressions in a job ad, as the schedd would.
 *
 * Without LIBRARY, the functions that it is linked with are used. Reads commands, one a line:
 *
 *   cluster AD           the ad that the job's is chained to: [ Name = value; ... ]
 *   job AD               the job's own
 *   slot AD              the slot that the job is matched with; what follows stands in its ad
 *   eval EXPRESSION      print its value
 *   repeat COUNT EXPRESSION
 *   threads COUNT TIMES EXPRESSION
 *   sleep MS
 */
#include <cstdarg>
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <thread>
#include <unistd.h>

#include <classad/classad_distribution.h>

#ifndef SHARED
extern "C" classad::ClassAdFunctionMapping *Init(void);
#endif

/* Where HTCondor's programs log. */
void condor_dprintf(int category, const char *format, ...) __asm__("_Z7dprintfiPKcz");

void condor_dprintf(int category, const char *format, ...)
{
	va_list values;

	fprintf(stderr, "%s: ", category ? "error" : "log");
	va_start(values, format);
	vfprintf(stderr, format, values);
	va_end(values);
}

static std::string cluster_text = "[]", job_text = "[]", slot_text;

static void fail(const std::string &what)
{
	fprintf(stderr, "harness: %s\n", what.c_str());
	exit(2);
}

/* An expression in a job's ad, which is chained to another, or in that of a slot. */
class Question {
      public:
	explicit Question(const std::string &text)
	{
		classad::ClassAdParser parser;

		cluster.reset(parser.ParseClassAd(cluster_text, true));
		job.reset(parser.ParseClassAd(job_text, true));
		if (!slot_text.empty())
			slot.reset(parser.ParseClassAd(slot_text, true));
		expression.reset(parser.ParseExpression(text, true));
		if (!cluster || !job || !expression || (!slot && !slot_text.empty()))
			fail("no ad, or no expression: " + cluster_text + job_text + slot_text + text);
		job->ChainToAd(cluster.get());
		if (slot)
			match = std::make_unique<classad::MatchClassAd>(slot.get(), job.get());
		expression->SetParentScope(ad());
	}
	~Question()
	{
		if (match) {
			match->RemoveLeftAd();
			match->RemoveRightAd();
		}
		job->Unchain();
	}

	std::string answer(int times) const
	{
		classad::ClassAdUnParser unparser;
		classad::Value value;
		std::string printed;

		for (int i = 0; i < times; i++)
			if (!ad()->EvaluateExpr(expression.get(), value))
				value.SetErrorValue();
		unparser.Unparse(printed, value);
		return printed;
	}

      private:
	classad::ClassAd *ad() const { return slot ? slot.get() : job.get(); }

	std::unique_ptr<classad::ClassAd> cluster, job, slot;
	std::unique_ptr<classad::MatchClassAd> match;
	std::unique_ptr<classad::ExprTree> expression;
};

/* The parser itself is not made for threads. */
static void in_threads(int count, int times, const std::string &text)
{
	std::vector<std::string> values(static_cast<size_t>(count));
	std::vector<std::unique_ptr<Question>> questions;
	std::vector<std::thread> threads;

	for (int i = 0; i < count; i++)
		questions.push_back(std::make_unique<Question>(text));
	for (size_t i = 0; i < values.size(); i++)
		threads.emplace_back([&, i] { values[i] = questions[i]->answer(times); });
	for (std::thread &thread : threads)
		thread.join();
	for (const std::string &value : values)
		std::cout << value << std::endl;
}

static void obey(const std::string &line)
{
	std::istringstream words(line);
	std::string command, rest;
	int count = 0, times = 1;

	words >> command;
	if (command == "repeat")
		words >> times;
	else if (command == "threads")
		words >> count >> times;
	std::getline(words >> std::ws, rest);
	if (command == "cluster")
		cluster_text = rest;
	else if (command == "job")
		job_text = rest;
	else if (command == "slot")
		slot_text = rest;
	else if (command == "sleep")
		usleep(1000 * static_cast<useconds_t>(std::stoi(rest)));
	else if (command == "threads")
		in_threads(count, times, rest);
	else
		std::cout << Question(rest).answer(times) << std::endl;
}

int main(int count, char **words)
{
	std::string line;

	(void)words;
#ifdef SHARED
	if (count != 2 || !classad::FunctionCall::RegisterSharedLibraryFunctions(words[1])) {
		fprintf(stderr, "the library cannot be loaded: %s\n",
			classad::CondorErrMsg.c_str());
		return 2;
	}
#else
	(void)count;
	classad::FunctionCall::RegisterFunctions(Init());
#endif
	while (std::getline(std::cin, line))
		obey(line);
	return 0;
}
