/* The ranks of a communicator over libfabric: who they are, how they meet, how their data moves, how it ends when something is wrong.
 *
 * Each rank has one endpoint. A call starts with a meeting: every rank tells every other one which call it is at, and compares what they
 * tell; only then it sends data. Data goes directly from the rank that has it to the one that needs it, in pieces, several under way
 * at once; receives for the first pieces are posted before the rank tells that it has come, so that they meet no full queue.
 *
 * Who finds that something is wrong tells all ranks why and closes its endpoint, after which nothing touches the memory of its call; so do
 * the ranks that are told. The first text that a rank has stays.
 *
 * No thread: the endpoint is moved on inside of calls. Thread rule: one thread at a time; rc__mesh_abort from any. */
#ifndef RC_COMM_FABRIC_MESH_H
#define RC_COMM_FABRIC_MESH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "raylet-c/fabric/endpoint.h"
#include "train_backend/comm/call.h"
#include "train_backend/comm/comm_ops.h"
#include "train_backend/comm/shm/segment.h"

enum { RC__MESH_SENDS = 32, RC__MESH_RECEIVES = 64, RC__MESH_CONTROLS = 16, RC__MESH_DEPTH = 8, RC__MESH_ID = 16 };

/* What ranks tell each other besides data; sent as long as its text is. */
typedef struct rc__mesh_message {
	unsigned char id[RC__MESH_ID]; /* of the communicator: from the keys of all its ranks */
	int32_t kind, rank;
	rc__call call;
	int32_t code; /* RC_OK, or why this rank could not do its part; of the end: why */
	char text[sizeof ((rc_error *)0)->text];
} rc__mesh_message;

typedef struct rc__mesh_peer {
	rc__process process;
	char host[64];
	bool near; /* a process that can be looked at from here */
	int fd;    /* a pidfd, or -1 */
	uint64_t address;
	rc__mesh_message come[2]; /* by call.number % 2 */
	uint64_t number;          /* of the last call that it came to */
	bool left;                /* it has closed its communicator */
	double gone;              /* when it was seen dead, to have left or out of reach; 0: it is there */
	rc_error why;             /* out of reach */
	size_t receives, sends;   /* of the present move, not done */
} rc__mesh_peer;

typedef struct rc__mesh rc__mesh;

typedef struct rc__mesh_op {
	rc_op op;
	rc__mesh *mesh;
	int peer; /* -1: control messages, of any rank */
	size_t piece, bytes;
} rc__mesh_op;

/* One exchange: up to send_bytes[q] go to rank q and recv_bytes[q] come from it, piece by piece; the own rank's are ignored. Both sides
 * know the sizes, and have the same piece. */
typedef struct rc__move {
	const char **send;
	char **recv;
	size_t *send_bytes, *recv_bytes; /* [size] each */
	size_t piece; /* bytes */
	size_t depth; /* 0: piece k of rank q comes to recv[q] + k * piece; else to recv[q] + k % depth * piece, at most RC__MESH_DEPTH */
	void (*come)(void *arg, size_t k, size_t bytes); /* depth: piece k of all ranks is there, in the order of k; bytes of the longest */
	void *arg;
	/* The mesh's own. */
	size_t next_send, next_recv, all_sends, all_recvs, folded, base;
	size_t waiting[RC__MESH_DEPTH];
	rc_region **regions; /* of send, then of recv; NULL where the provider needs none */
} rc__move;

struct rc__mesh {
	rc_comm *comm;
	rc_endpoint *endpoint; /* NULL: closed */
	rc__mesh_peer *peers;  /* [size] */
	unsigned char id[RC__MESH_ID];
	uint64_t number;       /* of the last call */
	uint32_t pieces;       /* of its moves before the present one */
	rc__move *move;        /* the present one, or NULL */
	rc__mesh_message said; /* of the present call */
	rc__mesh_message in[RC__MESH_CONTROLS], out;
	rc_region *region;     /* of said, in and out, or NULL */
	rc__mesh_op controls[RC__MESH_CONTROLS], sends[RC__MESH_SENDS], receives[RC__MESH_RECEIVES];
	rc__mesh_op *says, *tells; /* [size]: of said, and of the end */
	size_t spins;
	rc__mesh_message told;     /* why another rank has ended it; kind 0: not */
	rc_error failed;           /* a receive that ended with an error; RC_OK: none */
	int stranger;              /* a rank that is of another communicator; -1: none */
	pthread_mutex_t lock;      /* of a call */
	atomic_bool broken, aborting;
	rc_error reason;           /* once broken */
	rc_error aborted;          /* once aborting */
};

/* mesh: zeroed, with comm, endpoint, id and peers' process, host and address filled in; peers is the mesh's from here on. */
int rc__mesh_open(rc__mesh *mesh, rc_error *error);
/* Tells the others that this rank has left. Accepts one that is all zero. */
void rc__mesh_close(rc__mesh *mesh);

/* Comes to a call and meets; then rc__mesh_come(q) is what rank q said. move: the first exchange of the call, or NULL: its receives are
 * posted before, and it is done afterwards. On success and on failure rc__mesh_leave ends the call. */
int rc__mesh_enter(rc__mesh *mesh, rc_tag tag, const rc__call *call, const rc_error *failed, rc__move *move, rc_error *error);
int rc__mesh_move(rc__mesh *mesh, rc__move *move, rc_error *error);
int rc__mesh_leave(rc__mesh *mesh, int result);
const rc__mesh_message *rc__mesh_come(const rc__mesh *mesh, int rank);

int rc__mesh_check(rc__mesh *mesh, rc_error *error);
void rc__mesh_abort(rc__mesh *mesh, const char *reason);

#endif
