/* The parser of HTTP/1.1 answers behind http.c, by itself so that it can be fed by a fuzzer. Pure: any thread.
 *
 * Append what came to `in`, call rc__http_parse, repeat. The answer ends by Content-Length, by the last chunk, or by end of
 * stream; 1xx answers are skipped, trailers and what follows are ignored. */
#ifndef RC_BASE_HTTP_ANSWER_H
#define RC_BASE_HTTP_ANSWER_H

#include "raylet-c/base/buf.h"

enum { RC__HTTP_MAX_HEAD = 64 * 1024, RC__HTTP_MAX_BODY = 64 << 20 };

typedef struct rc__http_answer { /* zeroed at first */
	rc_buf in;
	int status;     /* once parsed */
	rc_view result; /* the body, once parsed; lies in this struct's buffers */
	/* private */
	bool have_head, chunked, have_length;
	size_t body_start;
	uint64_t length;
	rc_buf body; /* of a chunked answer */
} rc__http_answer;

/* 1: complete. 0: more is needed. -1: malformed, or cut off when at_end says that nothing comes any more; *ret_why says how. */
int rc__http_parse(rc__http_answer *a, bool at_end, const char **ret_why);
void rc__http_answer_free(rc__http_answer *a);

#endif
