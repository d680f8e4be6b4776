/* References to objects as they come in: owners in protobuf messages, objects of the raylet socket. An owner that is nil, or
 * whose address no process can have, reads as no owner: such an object can only be had here. */
#include "raylet-c/objects/internal.h"

#include <stdio.h>
#include <string.h>

rc_owner rc__om_owner_from_proto(const Rw__Address *a)
{
	rc_owner owner = { 0 };
	const char *ip;

	if (!a)
		return owner;
	ip = RC_GET_STR(a, ip_address);
	if (!a->has_worker_id || a->worker_id.len != RC_WORKER_ID || strlen(ip) >= sizeof owner.ip || RC_GET(a, port) <= 0 ||
	    RC_GET(a, port) > 65535)
		return owner;
	owner.worker_id = RC_GET_ID(a, worker_id);
	if (rc_id_is_nil(&owner.worker_id))
		return (rc_owner){ 0 };
	owner.node_id = RC_GET_ID(a, node_id);
	owner.port = a->port;
	snprintf(owner.ip, sizeof owner.ip, "%s", ip);
	return owner;
}

void rc_owner_from_local(const rc_local_address *a, rc_owner *ret)
{
	*ret = (rc_owner){ 0 };
	if (a->worker_id.n != RC_WORKER_ID || a->ip.n >= sizeof ret->ip || a->port <= 0 || a->port > 65535)
		return;
	ret->worker_id = rc_id_from(a->worker_id.p, a->worker_id.n);
	if (rc_id_is_nil(&ret->worker_id)) {
		*ret = (rc_owner){ 0 };
		return;
	}
	ret->node_id = rc_id_from(a->node_id.p, a->node_id.n);
	memcpy(ret->ip, a->ip.p, a->ip.n);
	ret->port = a->port;
}

bool rc_object_ref_from_local(const rc_local_objects *o, size_t i, rc_object_ref *ret, rc_error *e)
{
	rc_view id = rc_local_object(o, i);
	rc_local_address address;

	if (id.n != RC_OBJECT_ID) {
		rc_fail(e, RC_E_INVALID, "object %zu of %zu: its id has %zu bytes, not %d", i, o->n, id.n, RC_OBJECT_ID);
		return false;
	}
	ret->id = rc_id_from(id.p, id.n);
	ret->owner = (rc_owner){ 0 };
	if (rc_local_owner(o, i, &address) == 0)
		rc_owner_from_local(&address, &ret->owner);
	return true;
}
