/* Answers, tables and ads of any kind. fuzz answers|tables|ads COUNT SEED mutates what makes sense;
 * with libFuzzer, build with -DLIBFUZZER -fsanitize=fuzzer. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "answer.h"
#include "job_ad.h"
#include "slots.h"

/* A copy of its own, so that the sanitizer sees each byte read behind it. */
static std::unique_ptr<unsigned char[]> alone(const std::string &bytes)
{
	auto copy = std::make_unique<unsigned char[]>(bytes.size() ? bytes.size() : 1);

	memcpy(copy.get(), bytes.data(), bytes.size());
	return copy;
}

static bool well_formed(const struct rtsched_answer &answer)
{
	struct rtsched_cursor cursor = {answer.payload, answer.payload + answer.length};
	struct rtsched_field field;
	enum rtsched_step step;

	while ((step = rtsched_next(&cursor, &field)) == RTSCHED_FIELD)
		;
	return step == RTSCHED_END;
}

static void check(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "does not hold: %s\n", what);
	abort();
}

static void try_answer(const std::string &bytes)
{
	auto copy = alone(bytes);
	struct rtsched_answer answer = {RTSCHED_KIND_ANSWER, copy.get(), bytes.size()};
	std::string wrong;

	if (!well_formed(answer)) /* rtsched_ask hands over no other */
		return;
	auto reply = rtsched::read_answer(answer, wrong);
	check(reply || !wrong.empty(), "what is wrong is said");
	check(!reply || !reply->rejected || !reply->message.empty(), "a refusal has a text");
	check(!reply || reply->message.find('\n') == std::string::npos, "a text is one line");
}

static void try_table(const std::string &bytes)
{
	auto copy = alone(bytes);
	std::string_view text(reinterpret_cast<char *>(copy.get()), bytes.size());
	std::string wrong;
	auto table = rtsched::read_table(text, wrong);

	check(table || !wrong.empty(), "what is wrong is said");
	if (!table)
		return;
	for (const auto &[name, slot] : table->slots) {
		check(slot.delay - slot.delay == 0, "delays are finite");
		for (size_t i = 1; i < slot.kept.size(); i++) {
			const rtsched::Step &before = slot.kept[i - 1], &step = slot.kept[i];

			check(before.start <= step.start, "starts ascend");
			for (size_t at = 0; at < rtsched::RESOURCES; at++)
				check(before.amounts[at] <= step.amounts[at], "amounts never fall");
		}
	}
}

static void try_ad(const std::string &bytes)
{
	classad::ClassAdParser parser;
	std::unique_ptr<classad::ClassAd> ad(parser.ParseClassAd(bytes, false));

	if (!ad)
		return;
	rtsched::JobAd job = rtsched::describe(*ad);
	for (size_t at = 0; at < job.lines.size();) {
		size_t end = job.lines.find('\n', at), equals = job.lines.find(" = ", at);

		check(end != std::string::npos && equals < end, "each line is Name = literal");
		at = end + 1;
	}
}

#ifdef LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
	std::string input(reinterpret_cast<const char *>(bytes), length);

	try_answer(input);
	try_table(input);
	try_ad(input);
	return 0;
}
#else
static uint64_t state;

static uint64_t drawn(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

template <size_t N> static const char *one_of(const char *const (&words)[N])
{
	return words[drawn(N)];
}

static std::string an_answer()
{
	static const uint16_t tags[] = {RTSCHED_TAG_VERDICT, RTSCHED_TAG_MESSAGE,
					RTSCHED_TAG_ADMIN_COMMENT, RTSCHED_TAG_ENV, 999};
	static const char *const words[] = {"", "promised\nby 14:10\x1b[1m", "rtsched:", "rtsched:parked",
					    "rtsched:a b", "\xff\xfe"};
	struct rtsched_request request = {};

	rtsched_request_begin(&request, RTSCHED_KIND_SUBMIT);
	for (uint64_t fields = drawn(6); fields; fields--) {
		auto tag = static_cast<enum rtsched_tag>(tags[drawn(5)]);

		if (drawn(2))
			rtsched_add_number(&request, tag, static_cast<int64_t>(drawn(3)));
		else
			rtsched_add_text(&request, tag, one_of(words));
	}
	std::string made(reinterpret_cast<char *>(request.bytes) + RTSCHED_HEADER_SIZE,
			 request.length - RTSCHED_HEADER_SIZE);
	rtsched_request_free(&request);
	return made;
}

static std::string a_table()
{
	static const char *const titles[] = {"rtsched-slots 1 1700000000 300\n", "rtsched-slots 1 0 0\n",
					     "rtsched-slots 2 5 5\n", "\n"};
	static const char *const delays[] = {"1", "1.5", "0", "1e300", "1e999", "nan", "-1", "x", ""};
	static const char *const steps[] = {"-", "5:1", "5:1,6:2,6:3", "5:1:9:0,6:2:9:1", "5:1,6:1:0:0", "5:1:2",
					    "9:1,8:2", "5:2,6:1", "5:-1", "5",
					    ":", "99999999999999999999:1", "", "5:1,"};
	std::string made = one_of(titles);

	for (uint64_t lines = drawn(5); lines; lines--) {
		made += "slot" + std::to_string(drawn(9)) + "@host\t";
		made += one_of(delays);
		made += '\t';
		made += one_of(steps);
		made += '\n';
	}
	return made;
}

static std::string an_ad()
{
	static const char *const names[] = {"RtDeadline", "rtsigma", "RtX", "RtAdmission", "Owner",
					    "Cmd", "ClusterId", "JobFactoryId", "Requirements",
					    "RtVerdict", "'Rt odd'"};
	static const char *const values[] = {"5", "-1.5e300", "real(\"NaN\")", "\"a\\\"b\\nc\"", "true",
					     "undefined", "error", "{1,2}", "[a=1]", "RtX", "RtX + 1",
					     "time() + 5", "strcat(Cmd, Cmd)", "Owner", "absTime()",
					     "parent.RtX", "\"\\001\\377\""};
	std::string made = "[ ";

	for (uint64_t lines = drawn(9); lines; lines--) {
		made += one_of(names);
		made += " = ";
		made += one_of(values);
		made += "; ";
	}
	return made + "]";
}

int main(int count, char **words)
{
	const char *kind = count > 1 ? words[1] : "answers";
	long inputs = count > 2 ? atol(words[2]) : 1000000;
	std::string (*make)() = an_answer;
	void (*target)(const std::string &) = try_answer;

	if (!strcmp(kind, "tables")) {
		target = try_table;
		make = a_table;
	} else if (!strcmp(kind, "ads")) {
		target = try_ad;
		make = an_ad;
	}
	state = count > 3 ? strtoull(words[3], nullptr, 0) : 88172645463325252ull;
	for (long i = 0; i < inputs; i++) {
		std::string bytes = make();

		for (uint64_t flips = drawn(3); flips && !bytes.empty(); flips--)
			bytes[drawn(bytes.size())] = static_cast<char>(drawn(drawn(2) ? 256 : 4));
		if (!drawn(4))
			bytes.resize(drawn(bytes.size() + 1));
		target(bytes);
	}
	printf("%ld inputs\n", inputs);
	return 0;
}
#endif
