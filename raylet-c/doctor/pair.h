/* `raylet-c doctor --pair`: latency and bandwidth between two ends, by the transport that objects take (fabric/), every byte
 * checked. One end serves memory with known content, the other reads it: words for the latency, pieces with several under way for
 * the bandwidth. Without a provider that both have, over a TCP connection, as a measure for what gRPC can reach at most.
 *
 * From a process with one thread; blocks. What the serving end shows is that known content only, to whoever connects first. */
#ifndef RC_DOCTOR_PAIR_H
#define RC_DOCTOR_PAIR_H

#include "raylet-c/base/buf.h"
#include "raylet-c/base/status.h"

typedef struct rc_pair_options {
	const char *ip;        /* this end's own address; NULL: 127.0.0.1 */
	const char *providers; /* RAYLET_C_FABRIC; "off": TCP */
	unsigned seconds;      /* for each size; 0: 2 */
} rc_pair_options;

typedef struct rc_pair_size {
	uint64_t bytes;        /* of a piece */
	double gib_per_s, gbit_per_s;
} rc_pair_size;

enum { RC_PAIR_SIZES = 3 };
typedef struct rc_pair_result {
	char transport[64];    /* "shm", "efa", "net", "tcp (no libfabric)" */
	uint64_t link_bits;    /* a second, as the provider tells it; 0: unknown */
	double latency_us, latency_99_us; /* of a read of eight bytes: median, 99 % */
	unsigned reads;
	rc_pair_size sizes[RC_PAIR_SIZES];
	uint64_t checked;      /* bytes, all right */
} rc_pair_result;

enum { RC_PAIR_PORT = 6390 };

/* Serves one measurement at ip:port (port 0: a free one, told by ready, which may be NULL), then returns. */
int rc_pair_serve(const rc_pair_options *o, int port, void (*ready)(void *arg, int port), void *arg, rc_error *error) RC_WARN_UNUSED;
/* Measures towards host, where somebody serves. */
int rc_pair_measure(const rc_pair_options *o, const char *host, int port, rc_pair_result *ret, rc_error *error) RC_WARN_UNUSED;
/* Both ends here, the serving one in a child. */
int rc_pair_local(const rc_pair_options *o, rc_pair_result *ret, rc_error *error) RC_WARN_UNUSED;

/* "10.0.0.1:7" or "10.0.0.1" (RC_PAIR_PORT); [::1]:7; for listening also "7". */
int rc_pair_parse(const char *text, char host[256], int *port, rc_error *error) RC_WARN_UNUSED;

/* link_bits: of the interface, 0: not known. */
void rc_pair_print(const rc_pair_result *r, uint64_t link_bits, rc_buf *out);
void rc_pair_json(const rc_pair_result *r, uint64_t link_bits, rc_buf *out);

#endif
