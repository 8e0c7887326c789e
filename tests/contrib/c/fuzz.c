/* Answers of any kind: read, and carried out on a job. With libFuzzer, build with
 * -DLIBFUZZER -fsanitize=fuzzer; else main mutates answers that make sense: fuzz COUNT SEED. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_slurm.h"
#include "job_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct rtsched_answer answer = {RTSCHED_KIND_ANSWER, NULL, length};
	struct rtsched_cursor cursor;
	struct rtsched_field field;
	enum rtsched_step step;
	char *message = NULL;
	job_desc_msg_t job;

	/* A copy of its own, so that the sanitizer sees each byte read behind it. */
	answer.payload = malloc(length ? length : 1);
	if (length)
		memcpy(answer.payload, bytes, length);
	cursor = (struct rtsched_cursor){answer.payload, answer.payload + length};
	while ((step = rtsched_next(&cursor, &field)) == RTSCHED_FIELD)
		;
	fake_job(&job);
	fake_environment(&job, 3);
	if (step == RTSCHED_END) /* rtsched_ask hands over no other */
		rtsched_carry_out(&answer, &job, &message);
	slurm_xfree((void **)&message);
	fake_job_free(&job);
	free(answer.payload);
	return 0;
}

#ifndef LIBFUZZER
static uint64_t state;

static uint64_t drawn(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

static void sensible_field(struct rtsched_request *request)
{
	static const uint16_t numbers[] = {RTSCHED_TAG_VERDICT, RTSCHED_TAG_MIN_NODES,
					   RTSCHED_TAG_MAX_NODES, RTSCHED_TAG_TIME_LIMIT,
					   RTSCHED_TAG_SITE_FACTOR, RTSCHED_TAG_PRIORITY,
					   RTSCHED_TAG_NICE, RTSCHED_TAG_SHARED, 999};
	static const uint16_t texts[] = {RTSCHED_TAG_MESSAGE, RTSCHED_TAG_REQ_NODES,
					 RTSCHED_TAG_FEATURES, RTSCHED_TAG_ADMIN_COMMENT,
					 RTSCHED_TAG_COMMENT, RTSCHED_TAG_EXTRA,
					 RTSCHED_TAG_RESERVATION, RTSCHED_TAG_ENV};
	static const char *words[] = {"", "fast[1-3]", "RTSCHED_A=1", "RTSCHED_A=", "PATH=x",
				      "a\nb\tc\x1b[1m", "\xff\xfe"};

	if (drawn(2))
		rtsched_add_number(request, numbers[drawn(9)],
				   (int64_t)(drawn(4) ? drawn(3) : drawn(UINT64_MAX)));
	else
		rtsched_add_text(request, texts[drawn(8)], words[drawn(7)]);
}

int main(int count, char **values)
{
	long inputs = count > 1 ? atol(values[1]) : 1000000;
	struct rtsched_request request = {0};

	state = count > 2 ? strtoull(values[2], NULL, 0) : 88172645463325252ull;
	for (long i = 0; i < inputs; i++) {
		unsigned char *bytes;
		size_t length;

		rtsched_request_begin(&request, RTSCHED_KIND_SUBMIT);
		for (uint64_t fields = drawn(6); fields; fields--)
			sensible_field(&request);
		bytes = request.bytes + RTSCHED_HEADER_SIZE;
		length = request.length - RTSCHED_HEADER_SIZE;
		for (uint64_t flips = drawn(3); flips && length; flips--)
			bytes[drawn(length)] = (unsigned char)drawn(drawn(2) ? 256 : 4);
		if (length && !drawn(4))
			length = drawn(length);
		LLVMFuzzerTestOneInput(bytes, length);
	}
	rtsched_request_free(&request);
	printf("%ld inputs\n", inputs);
	return 0;
}
#endif
