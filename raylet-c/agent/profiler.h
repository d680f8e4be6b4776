/* ReporterService of the agent, the part that looks into processes: GetTraceback, CpuProfiling (py-spy), MemoryProfiling (memray),
 * for workers and drivers of this node only. A tool that is not installed is told in the answer, as are its own errors. The
 * commands are those of ray/dashboard/modules/reporter/profile_manager.py (2.35.0, 2.60.0). Loop thread only. */
#ifndef RC_AGENT_PROFILER_H
#define RC_AGENT_PROFILER_H

#include "raylet-c/procs/process.h"
#include "raylet-c/rpc/rpc.h"
#include "raylet-c/wire/dialect.h"

typedef struct rc_profiler rc_profiler;

typedef struct rc_profiler_options {
	rc_loop *loop;
	rc_procs *procs;
	const rc_dialect *dialect;
	const char *log_dir;        /* results are written there, as stock does */
	const char *python_command; /* its interpreter's folder is looked through for the tools too */
	bool (*is_ours)(void *ctx, pid_t pid);
	void *ctx;
} rc_profiler_options;

rc_profiler *rc_profiler_create(const rc_profiler_options *options);
/* Before rc_rpc_destroy; open requests are answered UNAVAILABLE. NULL is fine. */
void rc_profiler_destroy(rc_profiler *p);

void rc_profiler_traceback(rc_profiler *p, rc_request *r, rc_view bytes);
void rc_profiler_cpu(rc_profiler *p, rc_request *r, rc_view bytes);
void rc_profiler_memory(rc_profiler *p, rc_request *r, rc_view bytes);

#endif
