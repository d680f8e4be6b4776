/* Collectives of ranks on several nodes in two levels, for networks that are slower than what joins the ranks of a node: every byte
 * enters a node once, over the connections of all its ranks in parallel. rc_comm_taken of the two communicators tells the bytes.
 *
 * Rank = node * local ranks + local rank: `within` joins the ranks of a node (as many on every node), `between` those of the same local
 * rank on all nodes (its rank is the node). An all-gather is a copy, bit for bit. A reduce-scatter adds as often as in one level, first
 * the ranks of a node, then the nodes, and rounds to the data type between the two.
 *
 * Thread rule and errors as in comm.h. The communicators may be of different transports for one kind of memory. */
#ifndef RC_COMM_TWO_LEVEL_H
#define RC_COMM_TWO_LEVEL_H

#include "train_backend/comm/comm.h"

/* recv is [ranks][bytes]; staging: [nodes][bytes] of memory like recv. First every rank fetches the parts of its like on the other nodes,
 * then each node hands them round inside. */
int rc_two_level_all_gather(rc_comm *within, rc_comm *between, rc_tag tag, const void *send, void *recv, size_t bytes, void *staging,
                            rc_stream stream, rc_error *error) RC_WARN_UNUSED;
/* send is [ranks][count], recv [count]; staging: [nodes][count]. First each node sums inside, then the sums cross. */
int rc_two_level_reduce_scatter(rc_comm *within, rc_comm *between, rc_tag tag, const void *send, void *recv, size_t count, rc_dtype dtype,
                                rc_redop op, void *staging, rc_stream stream, rc_error *error) RC_WARN_UNUSED;

/* The half of each that stays within a node: rows [nodes][bytes] or [nodes][count] on one side, recv or send as above on the other. */
int rc_two_level_spread(rc_comm *within, size_t nodes, rc_tag tag, const void *rows, void *recv, size_t bytes, rc_stream stream,
                        rc_error *error) RC_WARN_UNUSED;
int rc_two_level_collect(rc_comm *within, size_t nodes, rc_tag tag, const void *send, void *rows, size_t count, rc_dtype dtype, rc_redop op,
                         rc_stream stream, rc_error *error) RC_WARN_UNUSED;

#endif
