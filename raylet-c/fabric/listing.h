/* The providers that a libfabric has on this machine, for who wants to tell them; what may be used is in offer.h. Any thread; may
 * take some tens of milliseconds. */
#ifndef RC_FABRIC_LISTING_H
#define RC_FABRIC_LISTING_H

#include <stdbool.h>

#include "raylet-c/fabric/library.h"

/* Calls fn with each provider once, without the utility layers behind ';'. gpu_memory false: all that there are; true: those that
 * take memory of GPUs in messages (FI_HMEM), asked for anew. */
void rc_fabric_list(const rc_fabric_library *l, bool gpu_memory, void (*fn)(void *arg, const char *provider), void *arg);

#endif
