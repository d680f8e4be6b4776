/* A round of `raylet-c top`; see top_model.h. The nodes are asked at once and the slowest is waited for. */
#define _GNU_SOURCE
#include "raylet-c/cli/top_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "raylet-c/agent/gpus.h"
#include "raylet-c/agent/processes.h"
#include "raylet-c/base/map.h"
#include "raylet-c/cli/head.h"
#include "raylet-c/cli/look.h"
#include "raylet-c/cli/nodes_here.h"
#include "raylet-c/rpc/security.h"

enum { ANSWER_MS = 1000, HEAD_MS = 2000, HEAD_AGAIN_MS = 10000, STILL_MS = 10000, MOST_TITLE = 400, MB = 1 << 20 };

typedef struct known { /* a node, from round to round */
	int port;          /* of its node manager; 0: not known */
	char release[32];
	char error[440];   /* why it is not known */
	uint64_t asked_head_ms, bytes_in, bytes_out, bytes_ms;
	bool here;         /* in this round */
} known;

typedef struct pace { /* of a train worker */
	int64_t steps;
	uint64_t at_ms; /* when they were seen to have grown */
	double per_s;
	bool here;
} pace;

typedef struct asked { /* one call of a round */
	rc_top_model *model;
	json_t *node; /* owned */
	known *known;
} asked;

struct rc_top_model {
	rc_rpc *rpc;
	rc_security security;
	rc_map *nodes; /* node id, hex -> known */
	rc_map *paces; /* pid -> pace */
	rc_process_table *processes;
	rc_nvml *nvml;
	json_t *all; /* of the round */
	size_t open; /* calls that are not answered */
	bool busy, ending;
	rc_top_model_fn fn;
	void *arg;
};

rc_top_model *rc_top_model_create(rc_loop *loop, rc_error *error)
{
	rc_top_model *m = rc_alloc(sizeof *m);
	rc_rpc_options options = { 0 };

	if (rc_security_from_env(&m->security, error) == 0) {
		rc_security_apply(&m->security, &options);
		m->rpc = rc_rpc_create(loop, &options, error);
	}
	if (!m->rpc) {
		rc_security_free(&m->security);
		free(m);
		return NULL;
	}
	m->nodes = rc_map_create();
	m->paces = rc_map_create();
	m->processes = rc_process_table_create();
	m->nvml = rc_nvml_open();
	return m;
}

void rc_top_model_destroy(rc_top_model *m)
{
	size_t i = 0;
	void *value;

	if (!m)
		return;
	m->ending = true;
	rc_rpc_destroy(m->rpc); /* ends its calls */
	json_decref(m->all);
	while (rc_map_next(m->nodes, &i, NULL, &value))
		free(value);
	rc_map_destroy(m->nodes);
	for (i = 0; rc_map_next(m->paces, &i, NULL, &value);)
		free(value);
	rc_map_destroy(m->paces);
	rc_process_table_destroy(m->processes);
	rc_nvml_close(m->nvml);
	rc_security_free(&m->security);
	free(m);
}

/* ---- processes ---- */

static void set_text(json_t *o, const char *key, const char *value)
{
	json_t *text = json_string(value);

	json_object_set_new(o, key, text ? text : json_string(""));
}

/* Words with spaces between; what is not ASCII becomes '?', so that no half of a character is left at the cut. */
static void set_title(json_t *o, const rc_buf *cmdline)
{
	char title[MOST_TITLE + 1];
	size_t n = cmdline->n < MOST_TITLE ? cmdline->n : MOST_TITLE;

	for (size_t i = 0; i < n; i++)
		title[i] = cmdline->p[i] == '\0' ? ' ' : cmdline->p[i] < 32 || cmdline->p[i] > 126 ? '?' : (char)cmdline->p[i];
	while (n > 0 && title[n - 1] == ' ')
		n--;
	title[n] = '\0';
	set_text(o, "title", title);
}

static void add_process(rc_top_model *m, json_t *o, bool daemon)
{
	rc_process_info p;

	if (!rc_process_look(m->processes, (pid_t)json_integer_value(json_object_get(o, "pid")), daemon, &p))
		return;
	json_object_set_new(o, "cpu_percent", json_real(p.cpu_percent));
	json_object_set_new(o, "rss", json_integer((json_int_t)p.rss));
	if (daemon)
		json_object_set_new(o, "pss", json_integer((json_int_t)p.pss));
	else
		set_title(o, &p.cmdline);
	rc_process_info_free(&p);
}

/* Steps may take longer than a round: the pace is taken from growth to growth, half of it from the one before, and ends when nothing has
 * grown for five steps' time and 10 s. */
static void add_pace(rc_top_model *m, json_t *worker)
{
	int64_t steps = json_integer_value(json_object_get(worker, "steps"));
	pid_t pid = (pid_t)json_integer_value(json_object_get(worker, "pid"));
	rc_view key = rc_view_of(&pid, sizeof pid);
	uint64_t now = rc_now_ms();
	pace *p = rc_map_get(m->paces, key);

	if (steps <= 0)
		return;
	if (!p || steps < p->steps) {
		free(p);
		p = rc_alloc(sizeof *p);
		*p = (pace){ .steps = steps, .at_ms = now };
		rc_map_put(m->paces, key, p);
	} else if (steps > p->steps && now > p->at_ms) {
		double measured = (double)(steps - p->steps) * 1000 / (double)(now - p->at_ms);

		p->per_s = p->per_s > 0 ? (p->per_s + measured) / 2 : measured;
		p->steps = steps;
		p->at_ms = now;
	} else if (p->per_s > 0 && (double)(now - p->at_ms) > STILL_MS + 5000 / p->per_s) {
		p->per_s = 0;
	}
	p->here = true;
	json_object_set_new(worker, "steps_per_s", json_real(p->per_s));
}

static void forget_paces(rc_top_model *m)
{
	rc_view key;
	void *value;

	for (size_t i = 0; rc_map_next(m->paces, &i, &key, &value);) {
		pace *p = value;

		if (!p->here) {
			rc_map_del(m->paces, key);
			free(p);
			continue;
		}
		p->here = false;
	}
}

static void add_gpus(rc_top_model *m)
{
	rc_gpu *gpus;
	json_t *list;
	size_t n;

	if (!m->nvml)
		return;
	gpus = rc_alloc(RC_GPUS_MAX * sizeof *gpus);
	n = rc_nvml_read(m->nvml, gpus);
	list = json_array();
	for (size_t i = 0; i < n; i++) {
		json_t *o = json_object();

		json_object_set_new(o, "index", json_integer(gpus[i].index));
		set_text(o, "name", gpus[i].name);
		json_object_set_new(o, "percent", json_integer(gpus[i].percent));
		json_object_set_new(o, "used", json_integer((json_int_t)gpus[i].used_mb * MB));
		json_object_set_new(o, "total", json_integer((json_int_t)gpus[i].total_mb * MB));
		json_object_set_new(o, "celsius", json_integer(gpus[i].celsius));
		json_object_set_new(o, "watts", json_real(gpus[i].power_mw / 1000.0));
		json_array_append_new(list, o);
		rc_gpu_free(&gpus[i]);
	}
	free(gpus);
	json_object_set_new(m->all, "gpus", list);
}

/* ---- a round's end ---- */

static void finish(rc_top_model *m)
{
	json_t *node, *worker, *all = m->all;
	size_t i, k;

	json_array_foreach(json_object_get(all, "nodes"), i, node) {
		add_process(m, node, true);
		json_array_foreach(json_object_get(node, "workers"), k, worker) {
			add_process(m, worker, false);
			add_pace(m, worker);
		}
	}
	forget_paces(m);
	rc_process_table_sweep(m->processes);
	add_gpus(m);
	m->all = NULL;
	m->busy = false;
	m->fn(m->arg, all);
	json_decref(all);
}

static void rates(known *k, json_t *transfers)
{
	uint64_t now = rc_now_ms(), in = (uint64_t)json_integer_value(json_object_get(transfers, "in")),
	         out = (uint64_t)json_integer_value(json_object_get(transfers, "out"));

	if (!json_is_object(transfers))
		return;
	if (k->bytes_ms && now > k->bytes_ms && in >= k->bytes_in && out >= k->bytes_out) {
		double seconds = (double)(now - k->bytes_ms) / 1000;

		json_object_set_new(transfers, "in_per_s", json_real((double)(in - k->bytes_in) / seconds));
		json_object_set_new(transfers, "out_per_s", json_real((double)(out - k->bytes_out) / seconds));
	}
	k->bytes_in = in;
	k->bytes_out = out;
	k->bytes_ms = now;
}

/* The answer's keys join the node's. Those that /proc has told stay. */
static void merge(asked *a, rc_view reply)
{
	json_error_t wrong;
	json_t *told = json_loadb((const char *)reply.p, reply.n, JSON_REJECT_DUPLICATES, &wrong);

	if (!json_is_object(told)) {
		set_text(a->node, "error", "the node's answer is not a JSON object");
	} else {
		json_object_update_missing(a->node, told);
		rates(a->known, json_object_get(a->node, "transfers"));
	}
	json_decref(told);
}

static void on_answer(void *arg, int status, rc_view reply, const char *detail)
{
	asked *a = arg;
	rc_top_model *m = a->model;

	if (!m->ending) {
		if (status == RC_RPC_OK) {
			merge(a, reply);
		} else {
			set_text(a->node, "error", status == RC_RPC_UNIMPLEMENTED ? "an older raylet-c, which tells nothing" : detail);
			if (status == RC_RPC_UNAVAILABLE) {
				a->known->port = 0;
				snprintf(a->known->error, sizeof a->known->error, "%.400s", detail);
			}
		}
	}
	json_decref(a->node);
	free(a);
	if (--m->open == 0 && !m->ending)
		finish(m);
}

/* ---- a round's begin ---- */

static void on_node(void *arg, const rc_head_facts *head, const Rw__GcsNodeInfo *node, bool alive)
{
	const rc_id id = RC_GET_ID(node, node_id);
	rc_top_model *m = arg;
	known *k = rc_map_get(m->nodes, rc_view_str(rc_id_to_hex(&id).s));

	if (!k || !alive)
		return;
	k->port = RC_GET(node, node_manager_port);
	snprintf(k->release, sizeof k->release, "%s", head->release);
}

/* Each head once in HEAD_AGAIN_MS, for all its nodes whose port is not known. */
static void ask_heads(rc_top_model *m, const rc_node_here *here, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		known *k = rc_map_get(m->nodes, rc_view_str(here[i].node_id));
		uint64_t now = rc_now_ms();
		rc_error error;
		bool answered;

		if (!here[i].ours || k->port || (k->asked_head_ms && now - k->asked_head_ms < HEAD_AGAIN_MS))
			continue;
		answered = rc_head_nodes(here[i].gcs_address, HEAD_MS, on_node, m, &error) == 0;
		for (size_t j = i; j < n; j++) {
			k = rc_map_get(m->nodes, rc_view_str(here[j].node_id));
			if (strcmp(here[j].gcs_address, here[i].gcs_address) != 0 || k->port)
				continue;
			k->asked_head_ms = now;
			snprintf(k->error, sizeof k->error, "its port is not known: %.380s",
			         answered ? "its head does not have it as alive" : error.text);
		}
	}
}

static void meet(rc_top_model *m, const char *node_id)
{
	known *k = rc_map_get(m->nodes, rc_view_str(node_id));

	if (!k) {
		k = rc_alloc(sizeof *k);
		rc_map_put(m->nodes, rc_view_str(node_id), k);
	}
	k->here = true;
}

static void begin_node(rc_top_model *m, const rc_node_here *h)
{
	known *k = rc_map_get(m->nodes, rc_view_str(h->node_id));
	json_t *o = json_object();
	char address[80];
	asked *a;

	set_text(o, "node_id", h->node_id);
	set_text(o, "address", h->ip);
	set_text(o, "gcs_address", h->gcs_address);
	set_text(o, "daemon", h->ours ? "raylet-c" : "ray");
	json_object_set_new(o, "pid", json_integer(h->daemon));
	json_array_append_new(json_object_get(m->all, "nodes"), o);
	if (!h->ours)
		return;
	if (!k->port) {
		set_text(o, "error", k->error);
		return;
	}
	set_text(o, "ray_version", k->release);
	a = rc_alloc(sizeof *a);
	*a = (asked){ m, json_incref(o), k };
	snprintf(address, sizeof address, strchr(h->ip, ':') ? "[%s]:%d" : "%s:%d", h->ip, k->port);
	m->open++;
	rc_call(m->rpc, address, RC_LOOK_PATH, rc_view_of("", 0), ANSWER_MS, RC_META_NONE, on_answer, a);
}

static void forget_gone(rc_top_model *m)
{
	size_t i = 0;
	rc_view key;
	void *value;

	while (rc_map_next(m->nodes, &i, &key, &value)) {
		known *k = value;

		if (k->here)
			continue;
		rc_map_del(m->nodes, key);
		free(k);
	}
}

bool rc_top_model_look(rc_top_model *m, rc_top_model_fn fn, void *arg)
{
	double load[3] = { 0 };
	char host[65] = "";
	rc_node_here *here = NULL;
	size_t n = 0, i = 0;
	rc_error error;
	void *value;

	if (m->busy)
		return false;
	m->busy = true;
	m->fn = fn;
	m->arg = arg;
	(void)gethostname(host, sizeof host - 1);
	(void)getloadavg(load, 3);
	m->all = json_pack("{s:[f,f,f], s:[]}", "load", load[0], load[1], load[2], "nodes");
	set_text(m->all, "host", host);
	while (rc_map_next(m->nodes, &i, NULL, &value))
		((known *)value)->here = false;
	m->open = 1; /* ours */
	if (rc_nodes_here("/proc", &here, &n, &error) != 0)
		set_text(m->all, "error", error.text);
	for (i = 0; i < n; i++)
		meet(m, here[i].node_id);
	ask_heads(m, here, n);
	for (i = 0; i < n; i++)
		begin_node(m, &here[i]);
	if (here)
		rc_nodes_here_free(here, n);
	forget_gone(m);
	if (--m->open == 0)
		finish(m);
	return true;
}
