/* Workers are shown by their title (ray::A), all that have the same together. Stock also shows its agent process; here that is
 * the daemon, which is shown once, as "raylet". */
#include "raylet-c/agent/gauges.h"

#include <stdio.h>
#include <string.h>

enum { MAX_LABELS = 12 };

typedef struct target {
	rc_series *series;
	const rc_gauges_options *o;
	rc_label labels[MAX_LABELS];
	size_t n;
} target;

static rc_label label(const char *key, const char *value)
{
	return (rc_label){ rc_view_str(key), rc_view_str(value) };
}

static void add_label(target *t, const char *key, const char *value)
{
	t->labels[t->n++] = label(key, value);
}

static void begin(target *t, rc_series *s, const rc_gauges_options *o)
{
	*t = (target){ .series = s, .o = o };
	add_label(t, "ip", o->ip);
	add_label(t, "SessionName", o->session_name);
	add_label(t, "Version", o->release);
}

static void put(const target *t, const char *name, const char *help, double value)
{
	rc_series_set(t->series, RC_SERIES_GAUGE, name, help, t->labels, t->n, value, false, t->o->ttl_ms);
}

/* ---- the node ---- */

static void node(const target *t, const rc_sample *s)
{
	double available = s->mem_total > s->mem_used ? (double)(s->mem_total - s->mem_used) : 0;
	put(t, "node_cpu_utilization", "Total CPU usage on a ray node", s->cpu_percent);
	put(t, "node_cpu_count", "Total CPUs available on a ray node", s->cpus);
	put(t, "node_mem_used", "Memory usage on a ray node", (double)s->mem_used);
	put(t, "node_mem_available", "Memory available on a ray node", available);
	put(t, "node_mem_total", "Total memory on a ray node", (double)s->mem_total);
	if (s->shm)
		put(t, "node_mem_shared_bytes", "Total shared memory usage on a ray node", (double)s->shm);
	if (!t->o->v235) {
		put(t, "node_mem_used_host", "Host memory usage on a ray node", (double)s->host_used);
		put(t, "node_mem_total_host", "Total host memory on a ray node", (double)s->host_total);
	}
	if (!t->o->v235 && s->has_cgroup) {
		put(t, "node_cgroup_mem_used", "Container memory usage on a ray node", (double)s->cgroup_used);
		put(t, "node_cgroup_mem_total", "Container memory limit on a ray node", (double)s->cgroup_total);
	}
	put(t, "node_network_sent", "Total network sent", (double)s->network[0]);
	put(t, "node_network_received", "Total network received", (double)s->network[1]);
	put(t, "node_network_send_speed", "Network send speed", s->network_speed[0]);
	put(t, "node_network_receive_speed", "Network receive speed", s->network_speed[1]);
}

static void disk(const target *t, const rc_sample *s)
{
	static const struct {
		const char *name, *help;
	} io[] = { { "node_disk_io_read", "Total read from disk" },
		   { "node_disk_io_write", "Total written to disk" },
		   { "node_disk_io_read_count", "Total read ops from disk" },
		   { "node_disk_io_write_count", "Total write ops to disk" } },
	  speed[] = { { "node_disk_io_read_speed", "Disk read speed" },
		      { "node_disk_io_write_speed", "Disk write speed" },
		      { "node_disk_read_iops", "Disk read iops" },
		      { "node_disk_write_iops", "Disk write iops" } };
	for (int i = 0; i < 4; i++) {
		put(t, io[i].name, io[i].help, (double)s->disk_io[i]);
		put(t, speed[i].name, speed[i].help, s->disk_io_speed[i]);
	}
	if (s->n_disks && s->disks[0].used + s->disks[0].free) {
		const rc_disk_usage *d = &s->disks[0];
		put(t, "node_disk_usage", "Total disk usage (bytes) on a ray node", (double)d->used);
		put(t, "node_disk_free", "Total disk free (bytes) on a ray node", (double)d->free);
		put(t, "node_disk_utilization_percentage", "Total disk utilization (percentage) on a ray node",
		    (double)d->used * 100 / (double)(d->used + d->free));
	}
}

static void gpu(const target *node_target, const rc_gpu *g)
{
	target t = *node_target;
	char index[16];
	snprintf(index, sizeof(index), "%d", g->index);
	add_label(&t, "GpuIndex", index);
	add_label(&t, "GpuDeviceName", g->name);
	if (!t.o->v235)
		add_label(&t, "GpuUuid", g->uuid);
	put(&t, "node_gpus_available", "Total GPUs available on a ray node", 1);
	put(&t, "node_gpus_utilization", "Total GPUs usage on a ray node", g->percent > 0 ? g->percent : 0);
	put(&t, "node_gram_used", "Total GPU RAM usage on a ray node", (double)g->used_mb);
	put(&t, "node_gram_available", "Total GPU RAM available on a ray node", (double)g->total_mb - (double)g->used_mb);
	if (!t.o->v235 && g->power_mw >= 0)
		put(&t, "node_gpu_power_milliwatts", "Current GPU power draw in milliwatts", g->power_mw);
	if (!t.o->v235 && g->celsius >= 0)
		put(&t, "node_gpu_temperature_celsius", "Current GPU temperature in Celsius", g->celsius);
}

/* ---- processes ---- */

typedef struct component {
	double cpu_percent, rss, uss, shared, fds, gpu_percent, gpu_mb;
} component;

static void add_process(component *c, const rc_process_info *p, bool v235)
{
	c->cpu_percent += p->cpu_percent;
	c->rss += (double)p->rss;
	c->shared += (double)p->shared;
	/* 2.60.0 takes what is not shared for its own; 2.35.0 has the kernel's count. */
	c->uss += v235 ? (double)p->uss : p->rss > p->shared ? (double)(p->rss - p->shared) : 0;
	c->fds += p->num_fds > 0 ? p->num_fds : 0;
	c->gpu_percent += p->gpu_percent;
	c->gpu_mb += p->gpu_memory_mb;
}

static void put_component(rc_series *s, const rc_gauges_options *o, const component *c, const char *name, const char *pid)
{
	target t;
	begin(&t, s, o);
	add_label(&t, "Component", name);
	add_label(&t, "pid", pid);
	put(&t, "component_cpu_percentage", "Total CPU usage of the components on a node.", c->cpu_percent);
	put(&t, "component_rss_mb", "RSS usage of all components on the node.", c->rss / 1e6);
	if (c->uss > 0)
		put(&t, "component_uss_mb", "USS usage of all components on the node.", c->uss / 1e6);
	put(&t, "component_num_fds", "Number of open fds of all components on the node (Not available on Windows).", c->fds);
	put(&t, o->v235 ? "component_mem_shared_bytes" : "component_shared_bytes",
	    "SHM usage of all components of the node. It is equivalent to the top command's SHR column.", c->shared);
	if (o->v235)
		return;
	put(&t, "component_rss_bytes", "RSS usage of all components on the node.", c->rss);
	if (c->uss > 0)
		put(&t, "component_uss_bytes", "USS usage of all components on the node.", c->uss);
	if (c->gpu_percent > 0)
		put(&t, "component_gpu_percentage", "GPU usage of all components on the node.", c->gpu_percent);
	if (c->gpu_mb > 0)
		put(&t, "component_gpu_memory_mb", "GPU memory usage of all components on the node.", c->gpu_mb);
}

static const char *title(const rc_process_info *p)
{
	return p->cmdline.n ? (const char *)p->cmdline.p : "";
}

static void processes(rc_series *s, const rc_sample *sample, const rc_gauges_options *o)
{
	char pid[16];
	component c = { 0 };
	snprintf(pid, sizeof(pid), "%d", (int)sample->raylet.pid);
	add_process(&c, &sample->raylet, o->v235);
	put_component(s, o, &c, "raylet", pid);
	for (size_t i = 0; i < sample->n_workers; i++) {
		const char *name = title(&sample->workers[i]);
		bool seen = !*name;
		for (size_t k = 0; k < i && !seen; k++)
			seen = !strcmp(title(&sample->workers[k]), name);
		if (seen)
			continue;
		c = (component){ 0 };
		for (size_t k = i; k < sample->n_workers; k++)
			if (!strcmp(title(&sample->workers[k]), name))
				add_process(&c, &sample->workers[k], o->v235);
		put_component(s, o, &c, name, "");
	}
}

void rc_gauges_from_sample(rc_series *s, const rc_sample *sample, const rc_gauges_options *o)
{
	target t;
	begin(&t, s, o);
	if (!o->v235) {
		add_label(&t, "IsHeadNode", "false");
		add_label(&t, "RayNodeType", "worker");
	}
	node(&t, sample);
	disk(&t, sample);
	for (size_t i = 0; i < sample->n_gpus; i++)
		gpu(&t, &sample->gpus[i]);
	processes(s, sample, o);
}

/* ---- the daemon's own ---- */

typedef struct visit {
	rc_series *series;
	uint64_t ttl_ms;
} visit;

static void put_metric(void *arg, const char *name, const char *help, double value, const char *const *pairs, size_t n)
{
	const visit *v = arg;
	rc_label labels[32];
	for (size_t i = 0; i < n && i < 32; i++)
		labels[i] = label(pairs[2 * i], pairs[2 * i + 1]);
	rc_series_set(v->series, RC_SERIES_GAUGE, name, help, labels, n < 32 ? n : 32, value, false, v->ttl_ms);
}

void rc_gauges_from_metrics(rc_series *s, const rc_metrics *m, uint64_t ttl_ms)
{
	rc_metrics_each(m, put_metric, &(visit){ s, ttl_ms });
}
