/* The parser of HTTP/1.1 requests behind http_server.c, by itself so that it can be fed by a fuzzer. Pure: any thread.
 *
 * Append what came to `in`, call rc__http_request_parse, repeat. A body comes by Content-Length only: a request with
 * Transfer-Encoding is refused (501), as are two lengths that differ, header lines that are continued, and a path with a NUL. */
#ifndef RC_BASE_HTTP_REQUEST_H
#define RC_BASE_HTTP_REQUEST_H

#include "raylet-c/base/buf.h"

enum { RC__HTTP_MAX_REQUEST_HEAD = 16 * 1024, RC__HTTP_MAX_HEADERS = 64 };

typedef struct rc__http_request { /* zeroed at first */
	rc_buf in;
	/* once parsed; the strings lie in `head` */
	const char *method, *path, *query; /* path: percent-decoded, begins with '/'; query: as it came, "" without one */
	bool keep_alive, expect_continue;
	rc_view body;    /* lies in `in` */
	size_t consumed; /* bytes of `in` that this request takes */
	/* private */
	char *head;      /* the head's text, cut into strings */
	struct {
		const char *name, *value;
	} headers[RC__HTTP_MAX_HEADERS];
	size_t n_headers;
	size_t body_start, body_length;
} rc__http_request;

/* 1: complete. 0: more is needed. Otherwise the status of the refusal (400, 413, 431, 501, 505). After the head has come
 * (head != NULL) the fields before `body` are good. */
int rc__http_request_parse(rc__http_request *r, size_t max_body);
/* The value of a header (name in lower case), or NULL. After the head has come. */
const char *rc__http_request_header(const rc__http_request *r, const char *name);
/* Forgets the parsed request and its bytes; what came after them stays. */
void rc__http_request_next(rc__http_request *r);
void rc__http_request_free(rc__http_request *r);

#endif
