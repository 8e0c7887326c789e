/* fuzz TARGET COUNT SEED: give a part of the submit filter inputs that make sense, and what mutation
 * leaves of them; built with sanitizers. What must hold of each result is checked. A seed gives the
 * same inputs again. Without arguments: the names of the targets, one a line.
 *
 * The client is included as it is, to reach what only a socket would lead to. */
#include "../../../contrib/common/rtsched_client.c"

#include <stdio.h>
#include <sys/mman.h>

#include "fake_slurm.h"
#include "job_answer.h"
#include "job_request.h"
#include "promised_jobs.h"
#include "rtsched_breaker.h"
#include "rtsched_settings.h"

int init(void);
int job_submit(job_desc_msg_t *job, uint32_t uid, char **err_msg);
int job_modify(job_desc_msg_t *job, struct job_record *record, uint32_t uid, char **err_msg);

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define ROOM 4096

static void check(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "does not hold: %s\n", what);
	abort();
}

/* Drawing */

static uint64_t state;

static uint64_t drawn(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

#define ONE_OF(array) ((array)[drawn(LENGTH(array))])

/* A number near the edge of some type, or a small one, or any. */
static uint64_t number(void)
{
	static const uint64_t edges[] = {0, INT8_MAX, UINT8_MAX, INT16_MAX, UINT16_MAX, INT32_MAX,
					 UINT32_MAX, INT64_MAX, UINT64_MAX, RTSCHED_ANSWER_LIMIT,
					 RTSCHED_REQUEST_LIMIT, NICE_OFFSET};

	switch (drawn(4)) {
	case 0:
		return ONE_OF(edges) + drawn(5) - 2;
	case 1:
		return drawn(UINT64_MAX);
	default:
		return drawn(9);
	}
}

/* Bytes that grow; what is too much falls off. */
struct input {
	unsigned char bytes[ROOM];
	size_t length;
};

static void append(struct input *input, const void *bytes, size_t length)
{
	if (length > ROOM - input->length)
		length = ROOM - input->length;
	memcpy(input->bytes + input->length, bytes, length);
	input->length += length;
}

static void append_text(struct input *input, const char *text)
{
	append(input, text, strlen(text));
}

static void append_number(struct input *input, uint64_t value)
{
	char digits[32];

	snprintf(digits, sizeof(digits), drawn(8) ? "%llu" : "%lld", (unsigned long long)value);
	append_text(input, digits);
}

/* Change what was made: bytes, pieces out and in again, an end that is missing. */
static void mutate(struct input *input)
{
	for (uint64_t changes = drawn(4); changes && input->length; changes--) {
		size_t at = drawn(input->length), length = drawn(input->length - at) + 1;
		unsigned char piece[ROOM];

		switch (drawn(6)) {
		case 0:
			input->bytes[at] ^= (unsigned char)(1 << drawn(8));
			break;
		case 1:
			memcpy(piece, input->bytes + at, length);
			append(input, piece, length);
			break;
		case 2:
			memmove(input->bytes + at, input->bytes + at + length,
				input->length - at - length);
			input->length -= length;
			break;
		case 3:
			input->length = at;
			break;
		default:
			input->bytes[at] = (unsigned char)drawn(drawn(2) ? 256 : 4);
		}
	}
}

/* A copy of its own, so that the sanitizer sees each byte read behind it. */
static unsigned char *alone(const struct input *input)
{
	unsigned char *copy = malloc(input->length ? input->length : 1);

	memcpy(copy, input->bytes, input->length);
	return copy;
}

/* Answers, as rtsched_ask hands them over, carried out on a job */

static void make_answer(struct input *input)
{
	static const uint16_t numbers[] = {RTSCHED_TAG_VERDICT, RTSCHED_TAG_VERDICT,
					   RTSCHED_TAG_MIN_NODES, RTSCHED_TAG_MAX_NODES,
					   RTSCHED_TAG_TIME_LIMIT, RTSCHED_TAG_SITE_FACTOR,
					   RTSCHED_TAG_PRIORITY, RTSCHED_TAG_NICE,
					   RTSCHED_TAG_SHARED, RTSCHED_TAG_NTASKS_PER_NODE, 999};
	static const uint16_t texts[] = {RTSCHED_TAG_MESSAGE, RTSCHED_TAG_REQ_NODES,
					 RTSCHED_TAG_FEATURES, RTSCHED_TAG_ADMIN_COMMENT,
					 RTSCHED_TAG_COMMENT, RTSCHED_TAG_EXTRA,
					 RTSCHED_TAG_RESERVATION, RTSCHED_TAG_PARTITION,
					 RTSCHED_TAG_ENV};
	static const char *const words[] = {"", "fast[1-3]", "RTSCHED_A=1", "RTSCHED_A=", "PATH=x",
					    "a\nb\tc\x1b[1m", "\xff\xfe", "RTSCHED_=", "V1=2"};
	struct rtsched_request made = {0};

	rtsched_request_begin(&made, RTSCHED_KIND_ANSWER);
	for (uint64_t fields = drawn(8); fields; fields--) {
		if (drawn(2))
			rtsched_add_number(&made, ONE_OF(numbers), (int64_t)number());
		else
			rtsched_add_text(&made, ONE_OF(texts), ONE_OF(words));
	}
	append(input, made.bytes + RTSCHED_HEADER_SIZE, made.length - RTSCHED_HEADER_SIZE);
	rtsched_request_free(&made);
}

static void try_answer(const struct input *input)
{
	struct rtsched_answer answer = {RTSCHED_KIND_ANSWER, alone(input), input->length};
	enum rtsched_submit_reply reply = RTSCHED_UNUSABLE;
	char *message = NULL;
	job_desc_msg_t job;

	fake_job(&job);
	fake_environment(&job, (uint32_t)drawn(4));
	if (well_formed(&answer)) /* rtsched_ask hands over no other */
		reply = rtsched_carry_out(&answer, &job, &message);
	for (const char *at = message; at && *at; at++)
		check(*at == '\n' || !(*at >= 0 && *at < ' '), "a message holds no control character");
	for (uint32_t i = 0; i < job.env_size; i++)
		check(!strncmp(job.environment[i], "RTSCHED_", 8) || job.environment[i][0] == 'V',
		      "no variable but RTSCHED_* is set");
	if (reply != RTSCHED_ACCEPTED)
		check(job.min_nodes == NO_VAL && !job.features && !job.comment && !job.admin_comment,
		      "what is not accepted changes nothing");
	else
		check(job.min_nodes == NO_VAL || (job.min_nodes && job.min_nodes <= INT32_MAX),
		      "node counts are such");
	slurm_xfree((void **)&message);
	fake_job_free(&job);
	free(answer.payload);
}

/* Whole replies, header and all, as they come from the socket */

static void make_reply(struct input *input)
{
	static const char *const magics[] = {RTSCHED_MAGIC, RTSCHED_MAGIC, RTSCHED_MAGIC, "HTTP"};
	static const uint16_t kinds[] = {RTSCHED_KIND_ANSWER, RTSCHED_KIND_ANSWER, RTSCHED_KIND_ERROR,
					 RTSCHED_KIND_REPORT};
	struct input answer = {.length = 0};
	unsigned char header[RTSCHED_HEADER_SIZE];

	make_answer(&answer);
	memcpy(header, ONE_OF(magics), 4);
	put(header + 4, drawn(8) ? RTSCHED_VERSION : number(), 2);
	put(header + 6, ONE_OF(kinds), 2);
	put(header + 8, drawn(8) ? answer.length : number(), 4);
	append(input, header, sizeof(header));
	append(input, answer.bytes, answer.length);
}

static void try_reply(const struct input *input)
{
	static int pair[2];
	struct rtsched_answer answer = {0};
	enum rtsched_outcome outcome;

	check(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), "there are sockets");
	check(send(pair[1], input->bytes, input->length, 0) == (ssize_t)input->length, "it is sent");
	close(pair[1]);
	outcome = receive(pair[0], now_us() + 10000000, &answer);
	close(pair[0]);
	check(outcome == RTSCHED_ANSWERED || outcome == RTSCHED_CLOSED ||
		      outcome == RTSCHED_MALFORMED,
	      "whoever hangs up is not waited for");
	check((outcome == RTSCHED_ANSWERED) == (answer.payload != NULL), "a payload means an answer");
	if (outcome == RTSCHED_ANSWERED)
		check(answer.length + RTSCHED_HEADER_SIZE <= input->length && well_formed(&answer),
		      "an answer is whole");
	free(answer.payload);
}

/* Settings */

static void make_settings(struct input *input)
{
	static const char *const keys[] = {"socket", "timeout_ms", "on_failure", "breaker_failures",
					   "breaker_ms", "judge", "daemon_user", "promised_jobs",
					   "table", "#", "", "soket"};
	static const char *const values[] = {"/run/x", "open", "hold", "closed", "all", "deadline",
					     "rtsched", "", "x y", "#", "\t7 ", "=", "\x1b\xff"};
	static const char *const ends[] = {"\n", "\n", "\n", "\r\n", "", "\n\n", "=\n"};

	for (uint64_t lines = drawn(6); lines; lines--) {
		append_text(input, ONE_OF(keys));
		append_text(input, drawn(8) ? " = " : " ");
		if (drawn(2))
			append_number(input, number());
		else
			append_text(input, ONE_OF(values));
		for (uint64_t more = drawn(32) ? 0 : drawn(600); more; more--)
			append_text(input, "x");
		append_text(input, ONE_OF(ends));
	}
}

static bool ends_within(const char *text, size_t size)
{
	return memchr(text, 0, size) != NULL;
}

static void try_settings(const struct input *input)
{
	static int fd = -1;
	static char path[64];
	struct rtsched_settings before, read;
	char problem[512] = "";

	if (fd < 0) {
		fd = memfd_create("settings", 0);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	}
	check(!ftruncate(fd, 0) &&
		      pwrite(fd, input->bytes, input->length, 0) == (ssize_t)input->length,
	      "the file is written");
	rtsched_settings_default(&before);
	before.timeout_ms = 77;
	read = before;
	if (!rtsched_settings_read(path, &read, problem, sizeof(problem))) {
		check(problem[0] && !memcmp(&before, &read, sizeof(read)),
		      "what is wrong is said, and nothing is taken");
		return;
	}
	check(read.timeout_ms >= 1 && read.timeout_ms <= 600000 && read.breaker_ms >= 1 &&
		      read.breaker_ms <= 600000 && read.breaker_failures >= 1,
	      "numbers are within their bounds");
	check(read.socket[0] == '/' && read.promised_jobs[0] == '/' && read.table[0] == '/' &&
		      ends_within(read.socket, sizeof(read.socket)) &&
		      ends_within(read.promised_jobs, sizeof(read.promised_jobs)) &&
		      ends_within(read.daemon_user, sizeof(read.daemon_user)),
	      "paths are such, and end");
}

/* The breaker, step by step beside a plain one */

static void make_steps(struct input *input)
{
	unsigned char step;

	for (uint64_t steps = drawn(64); steps; steps--) {
		step = (unsigned char)drawn(256);
		append(input, &step, 1);
	}
}

static void try_steps(const struct input *input)
{
	struct rtsched_breaker breaker = {0};
	int failures = 0, most = 1 + (int)(input->length % 4), pause = 1 + (int)(input->length % 7);
	int64_t now = 1000, until = 0;

	for (size_t i = 0; i < input->length; i++) {
		bool lets = rtsched_breaker_lets(&breaker, now, pause), open = until && now < until;

		check(lets == !open, "it lets through unless it is open");
		if (lets && until)
			until = now + pause;
		if (until)
			check(!rtsched_breaker_lets(&breaker, now, pause), "one probe, no more");
		if (lets && input->bytes[i] & 1) {
			bool opens = ++failures >= most && !until;

			check(rtsched_breaker_failed(&breaker, now, most, pause) == opens,
			      "it says when it opens");
			if (failures >= most)
				until = now + pause;
		} else if (lets) {
			rtsched_breaker_succeeded(&breaker);
			failures = 0;
			until = 0;
		}
		now += input->bytes[i] >> 4;
	}
}

/* Job descriptions, as requests; and the whole filter with nobody at its socket */

/* A text of the job; the bytes are the input's. */
static char *text_of(const struct input *input)
{
	size_t length = drawn(input->length + 1), times = 1;
	char *text, *kept;

	if (drawn(3) == 0)
		return NULL;
	if (drawn(20000) == 0)
		times = RTSCHED_REQUEST_LIMIT / (length + 1) + drawn(3);
	text = malloc(length * times + 1);
	for (size_t i = 0; i < times; i++)
		memcpy(text + i * length, input->bytes + drawn(input->length - length + 1), length);
	text[length * times] = 0;
	kept = slurm_xstrdup(text);
	free(text);
	return kept;
}

static void make_words(struct input *input)
{
	static const char *const words[] = {"rtsched:", "rtsched_", "1", ",", " ", "+", "=", "12_", "[1-3]",
					    "x", "\n", "\x1b[2J", "\xff\xfe", "%s%n", "RTSCHED_7", "-"};

	for (uint64_t count = drawn(12); count; count--) {
		if (drawn(6))
			append_text(input, ONE_OF(words));
		else
			append_number(input, number());
	}
}

static void fill(job_desc_msg_t *job, const struct input *input)
{
	char **texts[] = {&job->name, &job->comment, &job->extra, &job->admin_comment,
			  &job->reservation, &job->features, &job->req_nodes, &job->exc_nodes,
			  &job->dependency, &job->script, &job->job_id_str, &job->prefer};
	uint32_t *numbers[] = {&job->time_limit, &job->time_min, &job->min_nodes, &job->max_nodes,
			       &job->min_cpus, &job->max_cpus, &job->num_tasks, &job->priority,
			       &job->nice, &job->site_factor, &job->pn_min_tmp_disk, &job->delay_boot,
			       &job->req_switch, &job->het_job_offset, &job->user_id,
			       &RTSCHED_JOB_ID(job)};
	uint16_t *shorts[] = {&job->shared, &job->requeue, &job->contiguous, &job->core_spec,
			      &job->cpus_per_task, &job->ntasks_per_node, &job->pn_min_cpus,
			      &job->sockets_per_node, &job->cores_per_socket};

	fake_job(job);
	fake_environment(job, (uint32_t)drawn(3));
	for (size_t i = 0; i < LENGTH(texts); i++)
		*texts[i] = text_of(input);
	for (size_t i = 0; i < LENGTH(numbers); i++)
		if (drawn(3) == 0)
			*numbers[i] = (uint32_t)number();
	for (size_t i = 0; i < LENGTH(shorts); i++)
		if (drawn(4) == 0)
			*shorts[i] = (uint16_t)number();
	if (drawn(2))
		job->deadline = (time_t)number();
	if (drawn(2))
		job->pn_min_memory = number();
	job->bitflags = drawn(8) ? 0 : number();
}

static void try_request(const struct input *input)
{
	struct rtsched_request request = {0};
	job_desc_msg_t job;
	uint32_t id;

	fill(&job, input);
	if (drawn(2))
		rtsched_describe_submit(&job, (uint32_t)number(), &request);
	else
		rtsched_describe_modify(&job, (uint32_t)number(), &request);
	if (!request.too_long) {
		struct rtsched_answer whole = {RTSCHED_KIND_ANSWER,
					       request.bytes + RTSCHED_HEADER_SIZE,
					       request.length - RTSCHED_HEADER_SIZE};

		check(whole.length <= RTSCHED_REQUEST_LIMIT, "a request is no longer than it may be");
		check(well_formed(&whole), "a request is well formed");
	}
	id = rtsched_job_number(&job);
	if (!job.job_id_str)
		check(id == RTSCHED_JOB_ID(&job), "a number counts where there is no text");
	else if (id != NO_VAL)
		check((uint32_t)strtol(job.job_id_str, NULL, 10) == id,
		      "it is read as slurmctld does");
	rtsched_request_free(&request);
	fake_job_free(&job);
}

static void begin_calls(void)
{
	char path[64];
	int fd = memfd_create("settings", 0);
	const char *said = "socket = /nowhere\nbreaker_ms = 600000\njudge = all\non_failure = hold\n"
			   "promised_jobs = /nowhere\ndaemon_user = 4711\n";

	check(write(fd, said, strlen(said)) == (ssize_t)strlen(said), "the file is written");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	setenv("RTSCHED_SUBMIT_CONF", path, 1);
	init();
}

static void try_call(const struct input *input)
{
	static const uint32_t uids[] = {0, 4711, 1000, 1000, UINT32_MAX};
	static bool begun;
	uint32_t uid = ONE_OF(uids);
	char *message = NULL;
	job_desc_msg_t job;
	int returned;

	if (!begun)
		begin_calls();
	begun = true;
	fill(&job, input);
	if (drawn(2))
		returned = job_submit(&job, uid, &message);
	else
		returned = job_modify(&job, NULL, uid, &message);
	check(returned == SLURM_SUCCESS || returned == ESLURM_ACCESS_DENIED, "it is let in or refused");
	check(returned == SLURM_SUCCESS || message, "who is refused is told why");
	check(uid || returned == SLURM_SUCCESS || strlen(message) > 0, "root too");
	slurm_xfree((void **)&message);
	fake_job_free(&job);
}

/* The list of promised jobs */

static void make_list(struct input *input)
{
	uint64_t at = 0;

	append_text(input, drawn(16) ? "rtsched-promised-jobs 1 " : "rtsched-promised-jobs 2 ");
	append_number(input, number());
	append_text(input, "\n");
	for (uint64_t jobs = drawn(9); jobs; jobs--) {
		append_number(input, at += drawn(32) ? 1 + drawn(9) : number());
		append_text(input, "\n");
	}
	at = 0;
	for (uint64_t users = drawn(4); users; users--) {
		append_text(input, "user ");
		append_number(input, at += drawn(32) ? 1 + drawn(9) : number());
		append_text(input, "\n");
	}
	append_text(input, "end\n");
}

static bool stands_in(const uint32_t *numbers, size_t count, uint32_t one)
{
	for (size_t i = 0; i < count; i++)
		if (numbers[i] == one)
			return true;
	return false;
}

static void try_list(const struct input *input)
{
	unsigned char *bytes = alone(input);
	struct rtsched_promised_jobs list = {0};
	char wrong[160] = "";

	if (rtsched_promised_jobs_read((char *)bytes, input->length, &list, wrong, sizeof(wrong))) {
		uint32_t job = (uint32_t)drawn(60), users[2] = {(uint32_t)drawn(20), (uint32_t)drawn(20)};
		bool known = stands_in(list.jobs, list.n_jobs, job);
		bool perhaps = job > list.newest && (stands_in(list.users, list.n_users, users[0]) ||
						     stands_in(list.users, list.n_users, users[1]));
		enum rtsched_promised found = rtsched_promised_jobs_find(&list, job, users);

		check(input->length >= 4 && !memcmp(bytes + input->length - 4, "end\n", 4),
		      "a list is whole");
		check(found == (known     ? RTSCHED_PROMISED
				: perhaps ? RTSCHED_PERHAPS_PROMISED
					  : RTSCHED_NOT_PROMISED),
		      "a search finds what stands there");
	} else {
		check(wrong[0] && !list.jobs && !list.users, "what is wrong is said, and nothing kept");
	}
	rtsched_promised_jobs_free(&list);
	free(bytes);
}

static const struct {
	const char *name;
	void (*make)(struct input *);
	void (*try)(const struct input *);
} targets[] = {
    {"answers", make_answer, try_answer},	{"replies", make_reply, try_reply},
    {"settings", make_settings, try_settings},	{"breaker", make_steps, try_steps},
    {"requests", make_words, try_request},	{"calls", make_words, try_call},
    {"promised-jobs", make_list, try_list},
};

int main(int count, char **words)
{
	long inputs = count > 2 ? atol(words[2]) : 0;
	struct input input;

	state = count > 3 ? strtoull(words[3], NULL, 0) : 0;
	state = state ? state : 88172645463325252ull;
	for (size_t at = 0; at < LENGTH(targets); at++) {
		if (count < 2)
			puts(targets[at].name);
		if (count < 2 || strcmp(words[1], targets[at].name))
			continue;
		for (long i = 0; i < inputs; i++) {
			input.length = 0;
			targets[at].make(&input);
			mutate(&input);
			targets[at].try(&input);
		}
		printf("%ld inputs\n", inputs);
		return 0;
	}
	return count < 2 ? 0 : 2;
}
