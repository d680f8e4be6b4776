/* The cluster view and which node a lease goes to. */
#include "raylet-c/sched/policy.h"
#include "raylet-c/sched/test/sched_test.h"

static const rc_dialect *d;
static rc_id self;
static rc_labels own_labels;
static rc_resources *res;
static rc_cluster *cluster;
static rc_leases_config config;
static rc_policy policy;

static void begin(const char *list)
{
	rc_amounts a = amounts_of(list);
	d = rc_dialect_find("2.60.0", NULL);
	self = id_of_byte(RC_NODE_ID, 0x50);
	res = rc_resources_create(&a, NULL, NULL);
	cluster = rc_cluster_create(&self);
	rc_leases_config_defaults(&config);
	config.dialect = d;
	config.self = self;
	config.labels = &own_labels;
	config.resources = res;
	config.cluster = cluster;
	policy = (rc_policy){ .config = &config, .random = 1 };
	rc_amounts_free(&a);
}

static void end(void)
{
	rc_labels_free(&own_labels);
	rc_cluster_destroy(cluster);
	rc_resources_destroy(res);
}

static int view(uint8_t node, const char *total, const char *available, bool draining)
{
	rc_id id = id_of_byte(RC_NODE_ID, node);
	rc_amounts t = amounts_of(total), a = amounts_of(available);
	rc_amount_map tm = rc_amount_map_make(&t), am = rc_amount_map_make(&a);
	Rw__SyncerResourceViewSyncMessage m = RW__SYNCER__RESOURCE_VIEW_SYNC_MESSAGE__INIT;
	m.resources_total = tm.v;
	m.n_resources_total = tm.n;
	m.resources_available = am.v;
	m.n_resources_available = am.n;
	RC_SET(m, is_draining, draining);
	int bad = rc_cluster_view(cluster, &id, &m, NULL);
	rc_amount_map_free(&tm);
	rc_amount_map_free(&am);
	rc_amounts_free(&t);
	rc_amounts_free(&a);
	return bad;
}

static void alive(uint8_t node, const char *zone)
{
	rc_id id = id_of_byte(RC_NODE_ID, node);
	rc_labels l = { 0 };
	if (zone)
		rc_labels_set(&l, "zone", zone);
	rc_labels_set(&l, "ray.io/node-id", rc_id_to_hex(&id).s);
	rc_cluster_alive(cluster, &id, &l);
	rc_labels_free(&l);
}

static void join(uint8_t node, const char *total, const char *available)
{
	alive(node, NULL);
	CHECK_EQ_INT(0, view(node, total, available, false));
}

static rc_lease_spec demand(const char *list)
{
	rc_lease_spec s = { 0 };
	s.required = amounts_of(list);
	s.placement = amounts_of(list);
	return s;
}

/* 0: here, -1: infeasible, -2: failure, else the node's byte. Frees the spec. */
static int place(rc_lease_spec s, bool prefer_local)
{
	rc_place p = rc_policy_place(&policy, &s, prefer_local);
	rc_lease_spec_free(&s);
	switch (p.kind) {
	case RC_PLACE_LOCAL:
		return 0;
	case RC_PLACE_REMOTE:
		return p.node->id.b[0];
	case RC_PLACE_INFEASIBLE:
		return -1;
	default:
		return -2;
	}
}

static void hybrid(void)
{
	begin("CPU,4");
	join(1, "CPU,4", "CPU,4");
	CHECK_EQ_INT(0, place(demand("CPU,1"), false));
	rc_amounts two = amounts_of("CPU,2");
	rc_allocation *a = rc_resources_allocate(res, &two);
	CHECK_EQ_INT(1, place(demand("CPU,1"), false)); /* half used: the emptier node */
	CHECK_EQ_INT(0, place(demand("CPU,1"), true));
	CHECK_EQ_INT(1, place(demand("CPU,3"), true));
	view(1, "CPU,4", "CPU,0", false);
	CHECK_EQ_INT(0, place(demand("CPU,3"), false)); /* nobody has it now: wait here */
	CHECK_EQ_INT(-1, place(demand("CPU,5"), false));
	view(1, "CPU,8", "CPU,0", false);
	CHECK_EQ_INT(1, place(demand("CPU,5"), false)); /* only there, some time */
	view(1, "CPU,8", "CPU,8", true);
	CHECK_EQ_INT(-1, place(demand("CPU,5"), false)); /* but not when it drains */
	CHECK_EQ_INT(0, place(demand("CPU,1"), false));
	policy.draining = true;
	view(1, "CPU,8", "CPU,8", false);
	CHECK_EQ_INT(1, place(demand("CPU,1"), true));
	policy.draining = false;
	rc_resources_free(res, a);
	rc_amounts_free(&two);
	end();
}

static void gpu_nodes(void)
{
	begin("CPU,4,GPU,2");
	join(1, "CPU,4", "CPU,4");
	CHECK_EQ_INT(1, place(demand("CPU,1"), false));
	CHECK_EQ_INT(0, place(demand("CPU,1,GPU,1"), false));
	view(1, "CPU,4", "CPU,0", false);
	CHECK_EQ_INT(0, place(demand("CPU,1"), false));
	end();
}

static void bursts(void)
{
	begin("CPU,0");
	join(1, "CPU,2", "CPU,2");
	join(2, "CPU,2", "CPU,2");
	rc_amounts one = amounts_of("CPU,1");
	int count[3] = { 0 };
	config.top_k_fraction = 0;
	for (int i = 0; i < 4; i++) {
		int node = place(demand("CPU,1"), false);
		CHECK(node == 1 || node == 2);
		count[node]++;
		rc_id id = id_of_byte(RC_NODE_ID, (uint8_t)node);
		rc_cluster_take(cluster, rc_cluster_find(cluster, &id), &one);
	}
	CHECK_EQ_INT(2, count[1]);
	CHECK_EQ_INT(2, count[2]);
	rc_amounts_free(&one);
	end();
}

static void spread(void)
{
	begin("CPU,4");
	join(1, "CPU,4", "CPU,4");
	join(0x70, "CPU,4", "CPU,4");
	int count[3] = { 0 };
	for (int i = 0; i < 9; i++) {
		rc_lease_spec s = demand("CPU,1");
		s.strategy.kind = RC_STRATEGY_SPREAD;
		int node = place(s, false);
		count[node == 0 ? 0 : node == 1 ? 1 : 2]++;
	}
	CHECK(count[0] == 3 && count[1] == 3 && count[2] == 3);
	view(1, "CPU,4", "CPU,0", false);
	for (int i = 0; i < 6; i++) {
		rc_lease_spec s = demand("CPU,1");
		s.strategy.kind = RC_STRATEGY_SPREAD;
		CHECK(place(s, false) != 1);
	}
	rc_lease_spec s = demand("CPU,1");
	s.strategy.kind = RC_STRATEGY_SPREAD;
	CHECK_EQ_INT(0, place(s, true)); /* sent here by the one who spreads */
	end();
}

static int affine(uint8_t node, bool soft, bool spill, bool fail, const char *list)
{
	rc_lease_spec s = demand(list);
	s.strategy = (rc_strategy){ .kind = RC_STRATEGY_AFFINITY, .node_id = id_of_byte(RC_NODE_ID, node), .soft = soft,
	                            .spill_on_unavailable = spill, .fail_on_unavailable = fail };
	return place(s, false);
}

static void affinity(void)
{
	begin("CPU,4");
	join(1, "CPU,4", "CPU,0");
	CHECK_EQ_INT(0, affine(0x50, false, false, false, "CPU,1"));
	CHECK_EQ_INT(1, affine(1, false, false, false, "CPU,1")); /* busy: waits there */
	CHECK_EQ_INT(-2, affine(1, false, false, true, "CPU,1"));
	CHECK_EQ_INT(0, affine(1, true, true, false, "CPU,1"));
	CHECK_EQ_INT(1, affine(1, true, false, false, "CPU,1"));
	CHECK_EQ_INT(-2, affine(1, false, false, false, "CPU,5"));
	CHECK_EQ_INT(-2, affine(9, false, false, false, "CPU,1"));
	CHECK_EQ_INT(0, affine(9, true, false, false, "CPU,1"));
	CHECK_EQ_INT(-2, affine(0x50, false, false, false, "CPU,5"));
	alive(9, NULL);
	CHECK_EQ_INT(-1, affine(9, false, false, false, "CPU,1")); /* alive, its view is on the way */
	rc_id nine = id_of_byte(RC_NODE_ID, 9);
	rc_cluster_dead(cluster, &nine);
	CHECK_EQ_INT(-2, affine(9, false, false, false, "CPU,1"));
	policy.draining = true;
	CHECK_EQ_INT(-2, affine(0x50, false, false, false, "CPU,1"));
	policy.draining = false;
	end();
}

static rc_selector selector_of(const char *key, rc_label_op op, const char *value)
{
	rc_selector s = { rc_alloc(sizeof(*s.v)), 1 };
	s.v[0] = (rc_constraint){ rc_strdup(key), op, rc_alloc(sizeof(char *)), 1 };
	s.v[0].values[0] = rc_strdup(value);
	return s;
}

static void selectors(void)
{
	begin("CPU,4");
	rc_labels_set(&own_labels, "zone", "east");
	alive(1, "west");
	view(1, "CPU,4", "CPU,4", false);
	rc_lease_spec s = demand("CPU,1");
	s.selector = selector_of("zone", RC_LABEL_OP_IN, "west");
	CHECK(!rc_policy_may_stay(&policy, &s));
	CHECK_EQ_INT(1, place(s, true));
	s = demand("CPU,1");
	s.selector = selector_of("zone", RC_LABEL_OP_NOT_IN, "west");
	CHECK(rc_policy_may_stay(&policy, &s));
	CHECK_EQ_INT(0, place(s, false));
	s = demand("CPU,1");
	s.selector = selector_of("zone", RC_LABEL_OP_IN, "north");
	CHECK_EQ_INT(-1, place(s, false));
	s = demand("CPU,1");
	s.selector = selector_of("zone", RC_LABEL_OP_IN, "north");
	s.fallbacks = rc_alloc(2 * sizeof(*s.fallbacks));
	s.n_fallbacks = 2;
	s.fallbacks[0] = selector_of("zone", RC_LABEL_OP_IN, "south");
	s.fallbacks[1] = selector_of("zone", RC_LABEL_OP_IN, "west");
	CHECK(!rc_policy_may_stay(&policy, &s));
	CHECK_EQ_INT(1, place(s, false));
	/* Hard affinity, said by a label. */
	rc_id one = id_of_byte(RC_NODE_ID, 1), nine = id_of_byte(RC_NODE_ID, 9);
	s = demand("CPU,1");
	s.selector = selector_of("ray.io/node-id", RC_LABEL_OP_IN, rc_id_to_hex(&one).s);
	CHECK_EQ_INT(1, place(s, false));
	s = demand("CPU,1");
	s.selector = selector_of("ray.io/node-id", RC_LABEL_OP_IN, rc_id_to_hex(&nine).s);
	CHECK_EQ_INT(-2, place(s, false));
	end();
}

static void label_strategy(void)
{
	begin("CPU,4");
	rc_labels_set(&own_labels, "zone", "east");
	alive(1, "west");
	view(1, "CPU,4", "CPU,4", false);
	rc_lease_spec s = demand("CPU,1");
	s.strategy.kind = RC_STRATEGY_LABEL;
	s.strategy.hard = selector_of("zone", RC_LABEL_OP_EXISTS, "");
	s.strategy.prefer = selector_of("zone", RC_LABEL_OP_IN, "west");
	CHECK_EQ_INT(1, place(s, false));
	s = demand("CPU,1");
	s.strategy.kind = RC_STRATEGY_LABEL;
	s.strategy.hard = selector_of("zone", RC_LABEL_OP_EXISTS, "");
	s.strategy.prefer = selector_of("zone", RC_LABEL_OP_IN, "moon");
	CHECK_EQ_INT(0, place(s, false));
	s = demand("CPU,1");
	s.strategy.kind = RC_STRATEGY_LABEL;
	s.strategy.hard = selector_of("rack", RC_LABEL_OP_EXISTS, "");
	CHECK_EQ_INT(-1, place(s, false));
	end();
}

static void views(void)
{
	begin("CPU,1");
	rc_id one = id_of_byte(RC_NODE_ID, 1);
	uint64_t version = rc_cluster_version(cluster);
	size_t i = 0;
	CHECK_EQ_INT(0, view(1, "CPU,4", "CPU,4", false)); /* before ALIVE */
	CHECK(rc_cluster_next(cluster, &i) == NULL);
	alive(1, "west");
	i = 0;
	CHECK(rc_cluster_next(cluster, &i) != NULL);
	CHECK(rc_cluster_version(cluster) > version);
	CHECK_EQ_INT(0, view(0x50, "CPU,9", "CPU,9", false)); /* our own, sent back */
	CHECK(rc_cluster_find(cluster, &self) == NULL);
	/* A bad view leaves the last one. */
	Rw__SyncerResourceViewSyncMessage m = RW__SYNCER__RESOURCE_VIEW_SYNC_MESSAGE__INIT;
	Rw__MapStringDouble entry = RW__MAP_STRING_DOUBLE__INIT, *list[] = { &entry };
	entry.key = (char *)"CPU";
	RC_SET(entry, value, -1);
	m.resources_total = list;
	m.n_resources_total = 1;
	rc_error e = { 0 };
	CHECK(rc_cluster_view(cluster, &one, &m, &e) < 0);
	CHECK_STR("resource view: resources_total: CPU has the amount -1, which is not between 0 and 1e14", e.text);
	CHECK_EQ_INT(40000, rc_amounts_get(&rc_cluster_find(cluster, &one)->total, "CPU"));
	/* A view without labels keeps those of the node table. */
	CHECK_STR("west", rc_labels_get(&rc_cluster_find(cluster, &one)->labels, "zone"));
	rc_cluster_dead(cluster, &one);
	rc_cluster_dead(cluster, &one);
	CHECK(rc_cluster_find(cluster, &one) == NULL);
	end();
}

int main(void)
{
	RUN(hybrid, "by default a lease goes to the emptier node, stays when nobody has room, and waits when nobody can");
	RUN(gpu_nodes, "what needs no GPU avoids nodes that have some");
	RUN(bursts, "what was sent to a node counts until its next view");
	RUN(spread, "SPREAD goes round over the nodes where it fits");
	RUN(affinity, "affinity goes to its node or fails, and soft affinity goes on");
	RUN(selectors, "label selectors choose nodes, fallbacks come next, and a gone node's own label fails");
	RUN(label_strategy, "the node label strategy prefers its soft matches");
	RUN(views, "views and node table may come in any order, and bad views change nothing");
	return test_end();
}
