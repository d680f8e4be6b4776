/* The project's version: what `raylet-c version` prints, what the wheel is called by (python/build_wheel.py reads this line),
 * and the words by which an installed daemon is known from Ray's own. */
#ifndef RC_BASE_VERSION_H
#define RC_BASE_VERSION_H

#define RC_VERSION "0.1.0"

/* In the daemon's binary and in no other: `raylet-c` searches a file named raylet for it. */
#define RC_DAEMON_MARK "raylet-c node daemon " RC_VERSION
/* The part that is the same in every version of ours. */
#define RC_DAEMON_MARK_ANY "raylet-c node " "daemon "

#endif
