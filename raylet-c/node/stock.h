/* The way back to Ray's own node daemon, for a binary that was put in its place inside a ray package.
 *
 * `raylet-c enable` keeps the original beside ours as "raylet.stock". The first thing that main() does is to call
 * rc_exec_stock_if_asked: with --head among the arguments (`ray start --head` and ray.init() pass it), or with RAYLET_C=0
 * in the environment, it executes the original with the same arguments and environment, argv[0] included: Ray finds a
 * raylet by the words of its command line. Before any thread or file descriptor exists; main thread. */
#ifndef RC_NODE_STOCK_H
#define RC_NODE_STOCK_H

#include <stdbool.h>

/* Pure: whether these arguments and this value of RAYLET_C (NULL: unset) ask for the stock daemon, and why ("--head",
 * "RAYLET_C=0"; NULL: no). "--head", "-head", "--head=true", "--head=1" count; "--nohead" and "--head=false" do not. */
const char *rc_stock_asked(int argc, char *const argv[], const char *raylet_c);

/* Returns when stock was not asked for. Does not return otherwise: it executes <folder of /proc/self/exe>/raylet.stock, or,
 * when that cannot be executed, prints the path and the reason to stderr and exits with 127. */
void rc_exec_stock_if_asked(int argc, char *argv[]);

#endif
