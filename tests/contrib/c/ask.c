/* ask SOCKET TIMEOUT_MS OWNER_UID THREADS QUESTIONS TEXT_LENGTH: ask, and print one line per question:
 * outcome, milliseconds, and the answer's message. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rtsched_breaker.h"
#include "rtsched_client.h"

static char **arguments;
static struct rtsched_breaker breaker;

static void report(enum rtsched_outcome outcome, long long ms, struct rtsched_answer *answer)
{
	struct rtsched_cursor cursor = {answer->payload, answer->payload + answer->length};
	struct rtsched_field field;
	char text[256] = "";

	while (answer->payload && rtsched_next(&cursor, &field) == RTSCHED_FIELD)
		if (field.tag == RTSCHED_TAG_MESSAGE)
			snprintf(text, sizeof(text), "%.*s", (int)field.length, field.text);
	printf("%d %lld %s\n", outcome, ms, text);
	free(answer->payload);
}

static void *asking(void *unused)
{
	size_t length = (size_t)atol(arguments[6]);
	char *text = malloc(length + 1);

	(void)unused;
	memset(text, 'x', length);
	text[length] = 0;
	for (int i = 0; i < atoi(arguments[5]); i++) {
		struct rtsched_request request = {0};
		struct rtsched_answer answer = {0};
		enum rtsched_outcome outcome = RTSCHED_NOT_ASKED;
		int64_t begin = rtsched_now_ms();

		rtsched_request_begin(&request, RTSCHED_KIND_SUBMIT);
		rtsched_add_number(&request, RTSCHED_TAG_SUBMIT_UID, -5);
		rtsched_add_text(&request, RTSCHED_TAG_COMMENT, text);
		if (rtsched_breaker_lets(&breaker, begin, 300)) {
			outcome = rtsched_ask(arguments[1], atoi(arguments[2]),
					      (uid_t)atol(arguments[3]), &request, &answer);
			if (outcome == RTSCHED_ANSWERED)
				rtsched_breaker_succeeded(&breaker);
			else
				rtsched_breaker_failed(&breaker, rtsched_now_ms(), 1000000, 300);
		}
		report(outcome, (long long)(rtsched_now_ms() - begin), &answer);
		rtsched_request_free(&request);
	}
	free(text);
	return NULL;
}

int main(int count, char **values)
{
	pthread_t threads[64];
	int n;

	if (count != 7)
		return 2;
	arguments = values;
	n = atoi(values[4]);
	for (int i = 0; i < n; i++)
		pthread_create(&threads[i], NULL, asking, NULL);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
