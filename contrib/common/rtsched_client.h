/* The socket client that submit filters link: builds a request, asks the daemon within a hard
 * deadline, and reads the answer field by field. C11 and POSIX; thread safe, since it keeps nothing
 * between calls.
 */
#ifndef RTSCHED_CLIENT_H
#define RTSCHED_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rtsched_wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A request that grows while fields are added; zeros are an empty one. */
struct rtsched_request {
	unsigned char *bytes; /* header and payload */
	size_t length;
	size_t capacity;
	bool too_long; /* longer than RTSCHED_REQUEST_LIMIT, or no memory: it cannot be sent */
};

void rtsched_request_begin(struct rtsched_request *request, enum rtsched_kind kind);
void rtsched_add_number(struct rtsched_request *request, enum rtsched_tag tag, int64_t value);
void rtsched_add_text(struct rtsched_request *request, enum rtsched_tag tag, const char *value);
void rtsched_request_free(struct rtsched_request *request);

/* What became of a question. */
enum rtsched_outcome {
	RTSCHED_ANSWERED = 0,
	RTSCHED_NO_DAEMON,    /* nobody listens, or this process may not connect */
	RTSCHED_BUSY,	      /* its queue of connections is full */
	RTSCHED_WRONG_OWNER,  /* somebody else listens */
	RTSCHED_TIMED_OUT,
	RTSCHED_CLOSED,	      /* it closed the connection before the whole answer was there */
	RTSCHED_MALFORMED,    /* what came is no answer of this version */
	RTSCHED_NOT_SENT,     /* the request is too long, or there is no memory for the answer */
	RTSCHED_NOT_ASKED,    /* the breaker is open */
};

const char *rtsched_outcome_text(enum rtsched_outcome outcome);

struct rtsched_answer {
	enum rtsched_kind kind; /* RTSCHED_KIND_ANSWER or RTSCHED_KIND_ERROR */
	unsigned char *payload; /* from malloc */
	size_t length;
};

#define RTSCHED_ANY_OWNER ((uid_t)-1)

/* Ask whoever listens at `path`.
 *
 * Waits at most `timeout_ms` in all. The listener must run as `owner` or as root, unless `owner` is
 * RTSCHED_ANY_OWNER. Only after RTSCHED_ANSWERED there is a payload to free; its fields have been
 * checked by then.
 */
enum rtsched_outcome rtsched_ask(const char *path, int timeout_ms, uid_t owner,
				 struct rtsched_request *request, struct rtsched_answer *answer);

/* Send a question of nothing, and do not wait; return the socket, or -1 if it could not be sent now.
 * Whoever answers it answers other questions too. */
int rtsched_probe(const char *path, uid_t owner);

enum rtsched_probe_state { RTSCHED_PROBE_WAITS, RTSCHED_PROBE_ANSWERED, RTSCHED_PROBE_LOST };

/* Return what became of it by now; the socket stays open. */
enum rtsched_probe_state rtsched_probe_state(int probe);

/* Milliseconds of a clock that never jumps. */
int64_t rtsched_now_ms(void);

/* The fields of a payload, one by one. */
struct rtsched_cursor {
	const unsigned char *at;
	const unsigned char *end;
};

struct rtsched_field {
	uint16_t tag;
	enum rtsched_type type;
	int64_t number;	      /* of a number */
	const char *text;     /* of a text; not ended by a NUL */
	size_t length;
};

enum rtsched_step { RTSCHED_FIELD, RTSCHED_END, RTSCHED_BROKEN };

/* Move to the next field. After RTSCHED_BROKEN the cursor must not be used. */
enum rtsched_step rtsched_next(struct rtsched_cursor *cursor, struct rtsched_field *field);

#ifdef __cplusplus
}
#endif
#endif
