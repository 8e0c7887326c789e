/* bench_library [SLOTS]: what the library's functions cost; prints one line of JSON.
 *
 *   judge_us    all four questions of the transform about one job, beyond a bare question by the socket
 *               client; the median of 5,000 jobs
 *   asked_us    the bare question: a process that answers at once, and the way there and back
 *   pass_us     the first question about a job without a wish
 *   open_us     the four questions while the breaker is open
 *   delay_ns    rtschedDelay, table of SLOTS slots (2,000)
 *   kept_ns     rtschedKept, likewise
 *   bare_ns     the expression 1.0: what evaluation itself costs
 *   load_ms     reading that table
 *
 *   make bench
 */
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <classad/classad_distribution.h>

#include "../common/rtsched_client.h"
#include "slots.h"

extern "C" classad::ClassAdFunctionMapping *Init(void);

namespace {

constexpr int JOBS = 5000;
constexpr const char *words[] = {"wanted", "admission", "message", "verdict"};

std::string place; /* a directory of our own */

double now()
{
	using namespace std::chrono;

	return duration<double>(steady_clock::now().time_since_epoch()).count();
}

[[noreturn]] void fail(const char *what)
{
	perror(what);
	exit(2);
}

/* A process that accepts every job at once. */
pid_t start_server(const std::string &path)
{
	struct sockaddr_un address = {};
	int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct rtsched_request answer = {};
	pid_t child;

	address.sun_family = AF_UNIX;
	path.copy(address.sun_path, sizeof(address.sun_path) - 1);
	if (bind(listening, reinterpret_cast<struct sockaddr *>(&address), sizeof(address)) ||
	    listen(listening, 100))
		fail("bench_library: socket");
	if ((child = fork())) {
		close(listening);
		return child;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	rtsched_request_begin(&answer, RTSCHED_KIND_ANSWER);
	rtsched_add_number(&answer, RTSCHED_TAG_VERDICT, RTSCHED_ACCEPT);
	rtsched_add_text(&answer, RTSCHED_TAG_MESSAGE, "rtsched: promised");
	rtsched_add_text(&answer, RTSCHED_TAG_ADMIN_COMMENT, "rtsched:0123456789abcdef");
	answer.bytes[8] = static_cast<unsigned char>(answer.length - RTSCHED_HEADER_SIZE);
	for (;;) {
		char space[8192];
		int fd = accept(listening, nullptr, nullptr);

		if (recv(fd, space, sizeof(space), 0) > 0)
			(void)!send(fd, answer.bytes, answer.length, MSG_NOSIGNAL);
		close(fd);
	}
}

void write_file(const std::string &path, const std::string &text)
{
	FILE *file = fopen(path.c_str(), "w");

	if (!file || fputs(text.c_str(), file) < 0 || fclose(file))
		fail(path.c_str());
}

std::string table_of(int slots)
{
	std::string text = "rtsched-slots 1 " + std::to_string(time(nullptr)) + " 3600\n";

	for (int i = 0; i < slots; i++)
		text += "slot1@node" + std::to_string(i) +
			".cluster.example\t1.5\t1700000000:1,1800000000:2,1900000000:4\n";
	return text;
}

using Expression = std::unique_ptr<classad::ExprTree>;

Expression parsed(const std::string &text)
{
	classad::ClassAdParser parser;

	return Expression(parser.ParseExpression(text, true));
}

/* A job ad as condor_submit makes it. */
struct Job {
	classad::ClassAd cluster, own;

	explicit Job(bool wishes)
	{
		classad::ClassAdParser parser;

		parser.ParseClassAd(
			"[ ClusterId = 12; Owner = \"alice\"; User = \"alice@example\"; QDate = 1700000000; "
			"JobUniverse = 5; RequestCpus = 1; RequestMemory = ifThenElse(MemoryUsage isnt "
			"undefined, MemoryUsage, (ImageSize + 1023) / 1024); ImageSize = 5000; "
			"RequestDisk = DiskUsage; DiskUsage = 75; MinHosts = 1; MaxHosts = 1; JobPrio = 0; "
			"TotalSubmitProcs = 1000; RtVerdict = \"open\"; Cmd = \"/home/alice/simulate\"; Requirements = true ]",
			cluster);
		for (int i = 0; i < 100; i++)
			cluster.InsertAttr("Attribute" + std::to_string(i), i);
		if (wishes)
			cluster.Insert("RtDeadline", parsed("QDate + 3600").release());
		own.ChainToAd(&cluster);
	}
	~Job() { own.Unchain(); }
};

void evaluate(const Job &job, const Expression &expression)
{
	classad::Value value;

	job.own.EvaluateExpr(expression.get(), value);
}

double median(std::vector<double> &values)
{
	std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
	return values[values.size() / 2];
}

/* Return the median microseconds of `questions` of the transform about one job after another. */
double judged(bool wishes, size_t questions)
{
	std::vector<Expression> asked;
	std::vector<double> took;
	Job job(wishes);

	for (size_t i = 0; i < questions; i++) {
		asked.push_back(parsed(std::string("rtschedJudge(\"") + words[i] + "\")"));
		asked.back()->SetParentScope(&job.own);
	}
	for (int i = 0; i < JOBS; i++) {
		job.own.InsertAttr("ProcId", i);
		double begun = now();
		for (const Expression &expression : asked)
			evaluate(job, expression);
		took.push_back((now() - begun) * 1e6);
	}
	return median(took);
}

double asked(const std::string &path)
{
	struct rtsched_request request = {};
	std::string lines(600, 'x');
	std::vector<double> took;

	for (int i = 0; i < JOBS; i++) {
		struct rtsched_answer answer;
		double begun = now();

		rtsched_request_begin(&request, RTSCHED_KIND_SUBMIT);
		rtsched_add_text(&request, RTSCHED_TAG_AD, lines.c_str());
		if (rtsched_ask(path.c_str(), 1000, RTSCHED_ANY_OWNER, &request, &answer) !=
		    RTSCHED_ANSWERED)
			fail("bench_library: no answer");
		free(answer.payload);
		took.push_back((now() - begun) * 1e6);
	}
	rtsched_request_free(&request);
	return median(took);
}

/* Return the nanoseconds of one evaluation. */
double looked_up(const std::string &text)
{
	constexpr int TIMES = 1000000;
	Job job(false);
	Expression expression = parsed(text);

	job.own.InsertAttr("Name", "slot1@node7.cluster.example");
	expression->SetParentScope(&job.own);
	evaluate(job, expression);
	double begun = now();
	for (int i = 0; i < TIMES; i++)
		evaluate(job, expression);
	return (now() - begun) / TIMES * 1e9;
}

double load_ms(const std::string &text)
{
	std::string wrong;
	double begun = now();

	if (!rtsched::read_table(text, wrong))
		fail(wrong.c_str());
	return (now() - begun) * 1e3;
}

} // namespace

int main(int count, char **arguments)
{
	int slots = count > 1 ? atoi(arguments[1]) : 2000;
	char name[] = "/tmp/rtsched-bench-XXXXXX";
	std::string table = table_of(slots);

	if (slots < 8 || !mkdtemp(name))
		fail("bench_library: at least 8 slots, and a place for files");
	place = name;
	write_file(place + "/slots", table);
	write_file(place + "/submit.conf", "socket = " + place + "/s\ntable = " + place +
						   "/slots\ntimeout_ms = 1000\ndaemon_user = " +
						   std::to_string(geteuid()) + "\n");
	setenv("RTSCHED_SUBMIT_CONF", (place + "/submit.conf").c_str(), 1);
	classad::FunctionCall::RegisterFunctions(Init());
	pid_t server = start_server(place + "/s");
	double asked_us = asked(place + "/s"), judge_us = judged(true, 4);
	kill(server, SIGKILL);
	waitpid(server, nullptr, 0);
	printf("{\"slots\": %d, \"asked_us\": %.1f, \"judge_us\": %.1f, \"pass_us\": %.2f, "
	       "\"open_us\": %.1f, ",
	       slots, asked_us, judge_us - asked_us, judged(false, 1), judged(true, 4));
	printf("\"delay_ns\": %.0f, \"kept_ns\": %.0f, \"bare_ns\": %.0f, \"load_ms\": %.1f}\n",
	       looked_up("rtschedDelay(Name)"), looked_up("rtschedKept(Name, 1850000000)"),
	       looked_up("1.0"), load_ms(table));
	for (const char *file : {"/s", "/slots", "/submit.conf"})
		unlink((place + file).c_str());
	rmdir(name);
	return 0;
}
