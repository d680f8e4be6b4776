/* Hostile lease requests, bundles and resource views. The input: a byte for the release, one for the message, then the
 * message as that release sends it. */
#include <stdlib.h>

#include "raylet-c/base/log.h"
#include "raylet-c/sched/cluster.h"
#include "raylet-c/sched/lease.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void lease(const rc_dialect *d, const Rw__LeaseSpec *m)
{
	rc_lease_spec s = { 0 };
	rc_error e;
	if (rc_lease_spec_from(d, m, &s, &e) == 0)
		rc_lease_spec_free(&s);
}

static void bundles(const Rw__PrepareBundleResourcesRequest *m)
{
	rc_amounts total = { 0 };
	rc_error e;
	rc_amounts_set(&total, "CPU", 8 * RC_Q_ONE);
	rc_amounts_set(&total, "GPU", 8 * RC_Q_ONE);
	rc_resources *r = rc_resources_create(&total, NULL, &e);
	rc_bundles *b = rc_bundles_create(r);
	if (rc_bundles_prepare(b, m->bundle_specs, m->n_bundle_specs, &e) == 0)
		rc_bundles_commit(b, m->bundle_specs, m->n_bundle_specs);
	rc_bundles_keep_only(b, m->bundle_specs, m->n_bundle_specs / 2);
	rc_bundles_remove(b, m->bundle_specs, m->n_bundle_specs);
	if (rc_bundles_count(b) != 0 || !rc_resources_idle(r))
		abort();
	rc_bundles_destroy(b);
	rc_resources_destroy(r);
	rc_amounts_free(&total);
}

static void view(const Rw__SyncerResourceViewSyncMessage *m)
{
	rc_id self = rc_id_nil(RC_NODE_ID), other = rc_id_from_hex("11223344556677889900aabbccddeeff11223344556677889900aabb");
	rc_cluster *c = rc_cluster_create(&self);
	rc_error e;
	if (rc_cluster_view(c, &other, m, &e) == 0) {
		rc_node *n = rc_cluster_find(c, &other);
		for (int i = 0; i < 20; i++)
			rc_cluster_take(c, n, &n->total);
		(void)rc_node_utilization(n);
	}
	rc_cluster_destroy(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const releases[] = { "2.35.0", "2.60.0" };
	static const ProtobufCMessageDescriptor *const messages[] = {
		&rw__lease_spec__descriptor,
		&rw__prepare_bundle_resources_request__descriptor,
		&rw__syncer__resource_view_sync_message__descriptor,
	};
	if (size < 2)
		return 0;
	rc_log_level(RC_ERROR);
	const rc_dialect *d = rc_dialect_find(releases[data[0] % 2], NULL);
	void *m = rc_unpack(d, messages[data[1] % 3], rc_view_of(data + 2, size - 2));
	if (!m)
		return 0;
	if (data[1] % 3 == 0)
		lease(d, m);
	else if (data[1] % 3 == 1)
		bundles(m);
	else
		view(m);
	rc_free_message(m);
	return 0;
}
