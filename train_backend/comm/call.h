/* What a rank says of a call that it comes to, for comparison and for error texts. Any thread. */
#ifndef RC_COMM_CALL_H
#define RC_COMM_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "train_backend/comm/comm.h"

typedef enum rc__kind {
	RC__CONNECT,
	RC__WINDOW,
	RC__ALL_GATHER,
	RC__GATHER_PIECES,
	RC__REDUCE_SCATTER,
	RC__ALL_REDUCE,
	RC__ALL_TO_ALL,
	RC__BROADCAST,
	RC__BARRIER,
	RC__GRAPH,
} rc__kind;

typedef struct rc__call {
	uint64_t number;  /* of this communicator's calls, from 1 */
	rc__kind kind;
	rc_dtype dtype;   /* RC_U8 where nothing is summed */
	rc_redop op;
	int32_t root;
	uint64_t bytes;   /* of one rank's share */
	char unit[96], phase[32]; /* empty: none */
} rc__call;

enum { RC__CALL_TEXT = 200 };

void rc__call_set_tag(rc__call *call, rc_tag tag);
/* "reduce-scatter of layers.3 (reduce)", into text, which is returned. */
const char *rc__call_describe(const rc__call *call, char text[RC__CALL_TEXT]);
bool rc__call_same(const rc__call *x, const rc__call *y);
/* RC_E_INVALID, how rank a's call x and rank b's call y differ, which are not the same. Returns -1. */
int rc__call_differ(int a, const rc__call *x, int b, const rc__call *y, rc_error *error);

#endif
