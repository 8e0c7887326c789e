#define _GNU_SOURCE
#include "rtsched_client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_END (RTSCHED_HEADER_SIZE + (size_t)RTSCHED_REQUEST_LIMIT)

/* Little endian, whatever the machine is. */

static void put(unsigned char *to, uint64_t value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		to[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get(const unsigned char *from, int bytes)
{
	uint64_t value = 0;

	for (int i = 0; i < bytes; i++)
		value |= (uint64_t)from[i] << (8 * i);
	return value;
}

/* Requests */

/* Return where `more` bytes can be written, or NULL and give the request up. */
static unsigned char *room(struct rtsched_request *request, size_t more)
{
	size_t needed, capacity = request->capacity ? request->capacity : 1024;
	unsigned char *bytes;

	if (request->too_long || more > REQUEST_END - request->length)
		goto too_long;
	needed = request->length + more;
	while (capacity < needed)
		capacity *= 2;
	if (capacity != request->capacity) {
		if (!(bytes = realloc(request->bytes, capacity)))
			goto too_long;
		request->bytes = bytes;
		request->capacity = capacity;
	}
	bytes = request->bytes + request->length;
	request->length = needed;
	return bytes;
too_long:
	request->too_long = true;
	return NULL;
}

void rtsched_request_begin(struct rtsched_request *request, enum rtsched_kind kind)
{
	unsigned char *at;

	request->length = 0;
	request->too_long = false;
	if (!(at = room(request, RTSCHED_HEADER_SIZE)))
		return;
	memcpy(at, RTSCHED_MAGIC, 4);
	put(at + 4, RTSCHED_VERSION, 2);
	put(at + 6, kind, 2);
	put(at + 8, 0, 4);
}

static void add(struct rtsched_request *request, enum rtsched_tag tag, enum rtsched_type type,
		const void *value, size_t length)
{
	unsigned char *at;

	if (length > RTSCHED_REQUEST_LIMIT) {
		request->too_long = true;
		return;
	}
	if (!(at = room(request, RTSCHED_FIELD_SIZE + length)))
		return;
	put(at, tag, 2);
	put(at + 2, type, 1);
	put(at + 3, 0, 1);
	put(at + 4, length, 4);
	if (length)
		memcpy(at + RTSCHED_FIELD_SIZE, value, length);
}

void rtsched_add_number(struct rtsched_request *request, enum rtsched_tag tag, int64_t value)
{
	unsigned char bytes[8];

	put(bytes, (uint64_t)value, sizeof(bytes));
	add(request, tag, RTSCHED_NUMBER, bytes, sizeof(bytes));
}

void rtsched_add_text(struct rtsched_request *request, enum rtsched_tag tag, const char *value)
{
	/* A text longer than any request may be is not read to its end. */
	add(request, tag, RTSCHED_TEXT, value, strnlen(value, RTSCHED_REQUEST_LIMIT + 1));
}

void rtsched_request_free(struct rtsched_request *request)
{
	free(request->bytes);
	memset(request, 0, sizeof(*request));
}

/* Asking */

static int64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t rtsched_now_ms(void)
{
	return now_us() / 1000;
}

static struct timespec span(int64_t us)
{
	return (struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
}

/* Wait until the socket is ready; false: the deadline has passed. */
static bool ready(int fd, short events, int64_t deadline)
{
	for (;;) {
		struct pollfd wanted = {.fd = fd, .events = events};
		int64_t left = deadline - now_us();
		struct timespec wait = span(left);
		int found;

		if (left <= 0)
			return false;
		found = ppoll(&wanted, 1, &wait, NULL);
		if (found > 0)
			return true;
		if (found < 0 && errno != EINTR)
			return false;
	}
}

static enum rtsched_outcome connected(int fd, const char *path, int64_t deadline)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length = strlen(path);

	if (!length || length >= sizeof(address.sun_path))
		return RTSCHED_NO_DAEMON;
	memcpy(address.sun_path, path, length);
	while (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		int64_t left = deadline - now_us();
		struct timespec pause = span(left < 500 ? left : 500);

		/* A full queue shows as EAGAIN at once, and nothing tells when there is room. */
		if (errno != EAGAIN && errno != EINTR)
			return RTSCHED_NO_DAEMON;
		if (left <= 0)
			return RTSCHED_BUSY;
		nanosleep(&pause, NULL);
	}
	return RTSCHED_ANSWERED;
}

/* Whether the process that made the socket runs as `owner` or root. */
static bool owned_by(int fd, uid_t owner)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (owner == RTSCHED_ANY_OWNER)
		return true;
	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) &&
	       (peer.uid == owner || peer.uid == 0);
}

static enum rtsched_outcome send_all(int fd, const unsigned char *bytes, size_t length,
				     int64_t deadline)
{
	while (length) {
		ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);

		if (sent > 0) {
			bytes += sent;
			length -= (size_t)sent;
		} else if (sent < 0 && errno != EAGAIN && errno != EINTR) {
			return RTSCHED_CLOSED;
		}
		if (length && !ready(fd, POLLOUT, deadline))
			return RTSCHED_TIMED_OUT;
	}
	return RTSCHED_ANSWERED;
}

static enum rtsched_outcome receive_all(int fd, unsigned char *bytes, size_t length,
					int64_t deadline)
{
	while (length) {
		ssize_t got;

		if (!ready(fd, POLLIN, deadline))
			return RTSCHED_TIMED_OUT;
		got = recv(fd, bytes, length, 0);
		if (got > 0) {
			bytes += got;
			length -= (size_t)got;
		} else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
			return RTSCHED_CLOSED;
		}
	}
	return RTSCHED_ANSWERED;
}

static bool well_formed(const struct rtsched_answer *answer)
{
	struct rtsched_cursor cursor = {answer->payload, answer->payload + answer->length};
	struct rtsched_field field;
	enum rtsched_step step;

	while ((step = rtsched_next(&cursor, &field)) == RTSCHED_FIELD)
		;
	return step == RTSCHED_END;
}

static enum rtsched_outcome receive(int fd, int64_t deadline, struct rtsched_answer *answer)
{
	unsigned char header[RTSCHED_HEADER_SIZE];
	enum rtsched_outcome outcome = receive_all(fd, header, sizeof(header), deadline);
	uint64_t kind = get(header + 6, 2);

	if (outcome != RTSCHED_ANSWERED)
		return outcome;
	answer->length = get(header + 8, 4);
	if (memcmp(header, RTSCHED_MAGIC, 4) || get(header + 4, 2) != RTSCHED_VERSION ||
	    (kind != RTSCHED_KIND_ANSWER && kind != RTSCHED_KIND_ERROR) ||
	    answer->length > RTSCHED_ANSWER_LIMIT)
		return RTSCHED_MALFORMED;
	answer->kind = (enum rtsched_kind)kind;
	if (!(answer->payload = malloc(answer->length + 1)))
		return RTSCHED_NOT_SENT;
	outcome = receive_all(fd, answer->payload, answer->length, deadline);
	if (outcome == RTSCHED_ANSWERED && !well_formed(answer))
		outcome = RTSCHED_MALFORMED;
	if (outcome != RTSCHED_ANSWERED) {
		free(answer->payload);
		answer->payload = NULL;
	}
	return outcome;
}

enum rtsched_outcome rtsched_ask(const char *path, int timeout_ms, uid_t owner,
				 struct rtsched_request *request, struct rtsched_answer *answer)
{
	int64_t deadline = now_us() + (int64_t)timeout_ms * 1000;
	enum rtsched_outcome outcome;
	int fd;

	memset(answer, 0, sizeof(*answer));
	if (request->too_long || request->length < RTSCHED_HEADER_SIZE)
		return RTSCHED_NOT_SENT;
	put(request->bytes + 8, request->length - RTSCHED_HEADER_SIZE, 4);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return RTSCHED_NO_DAEMON;
	outcome = connected(fd, path, deadline);
	if (outcome == RTSCHED_ANSWERED && !owned_by(fd, owner))
		outcome = RTSCHED_WRONG_OWNER;
	if (outcome == RTSCHED_ANSWERED)
		outcome = send_all(fd, request->bytes, request->length, deadline);
	if (outcome == RTSCHED_ANSWERED)
		outcome = receive(fd, deadline, answer);
	close(fd);
	return outcome;
}

int rtsched_probe(const char *path, uid_t owner)
{
	struct rtsched_request request = {0};
	bool sent = false;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	rtsched_request_begin(&request, RTSCHED_KIND_MODIFY); /* of no job */
	if (!request.too_long && connected(fd, path, 0) == RTSCHED_ANSWERED && owned_by(fd, owner))
		sent = send(fd, request.bytes, request.length, MSG_NOSIGNAL) ==
		       (ssize_t)request.length;
	rtsched_request_free(&request);
	if (sent)
		return fd;
	close(fd);
	return -1;
}

enum rtsched_probe_state rtsched_probe_state(int probe)
{
	unsigned char header[RTSCHED_HEADER_SIZE];
	ssize_t got = recv(probe, header, sizeof(header), MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return RTSCHED_PROBE_WAITS;
	return got == (ssize_t)sizeof(header) && !memcmp(header, RTSCHED_MAGIC, 4)
		       ? RTSCHED_PROBE_ANSWERED
		       : RTSCHED_PROBE_LOST;
}

const char *rtsched_outcome_text(enum rtsched_outcome outcome)
{
	switch (outcome) {
	case RTSCHED_ANSWERED:
		return "answered";
	case RTSCHED_NO_DAEMON:
		return "no daemon listens on the socket, or access is denied";
	case RTSCHED_BUSY:
		return "its queue of connections is full";
	case RTSCHED_WRONG_OWNER:
		return "the process that listens on the socket runs as neither daemon_user nor root";
	case RTSCHED_TIMED_OUT:
		return "it did not answer in time";
	case RTSCHED_CLOSED:
		return "it closed the connection";
	case RTSCHED_MALFORMED:
		return "its answer is malformed, or of another version";
	case RTSCHED_NOT_SENT:
		return "the request is too long, or memory is exhausted";
	case RTSCHED_NOT_ASKED:
		return "it did not answer recently and is not contacted for some seconds";
	}
	return "unknown";
}

/* Answers */

enum rtsched_step rtsched_next(struct rtsched_cursor *cursor, struct rtsched_field *field)
{
	const unsigned char *at = cursor->at;
	size_t left = (size_t)(cursor->end - at);

	if (!left)
		return RTSCHED_END;
	if (left < RTSCHED_FIELD_SIZE || at[3])
		return RTSCHED_BROKEN;
	memset(field, 0, sizeof(*field));
	field->tag = (uint16_t)get(at, 2);
	field->type = (enum rtsched_type)at[2];
	field->length = get(at + 4, 4);
	at += RTSCHED_FIELD_SIZE;
	left -= RTSCHED_FIELD_SIZE;
	if (field->length > left)
		return RTSCHED_BROKEN;
	cursor->at = at + field->length;
	if (field->type == RTSCHED_TEXT) {
		field->text = (const char *)at;
		return memchr(at, 0, field->length) ? RTSCHED_BROKEN : RTSCHED_FIELD;
	}
	if (field->type != RTSCHED_NUMBER || field->length != 8)
		return RTSCHED_BROKEN;
	field->number = (int64_t)get(at, 8);
	return RTSCHED_FIELD;
}
