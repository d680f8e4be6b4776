/* The command lines of a node's processes, against those that were seen on running nodes of both releases. */
#include "raylet-c/cli/plan.h"

#include <stdlib.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/base/test.h"

#define S "/t/session_1"

static rc_plan plan(bool v235)
{
	rc_plan p = { .v235 = v235, .daemon = "/d/raylet", .ray_dir = "/p/ray", .python = "/v/bin/python3", .gcs_address = "127.0.0.10:6379",
		      .cluster_id = "cc", .session_name = "session_1", .webui = "127.0.0.1:8265", .node_id = "aa", .node_ip = "127.0.0.11",
		      .node_name = "127.0.0.11", .temp_dir = "/t", .session_dir = S, .log_dir = S "/logs", .resource_dir = S "/runtime_resources",
		      .raylet_socket = S "/sockets/raylet.1", .store_socket = S "/sockets/plasma_store.1", .resources = "a,3,CPU,2",
		      .labels = "{\"zone\": \"east\"}", .plasma_dir = "/dev/shm", .fallback_dir = S, .worker_port_list = "",
		      .raylet_out = S "/logs/raylet.1.out", .raylet_err = S "/logs/raylet.1.err", .agent_out = S "/logs/dashboard_agent.1.out",
		      .agent_err = S "/logs/dashboard_agent.1.err", .agent_log = S "/logs/dashboard_agent.1.log",
		      .env_out = S "/logs/runtime_env_agent.1.out", .env_err = S "/logs/runtime_env_agent.1.err",
		      .env_log = S "/logs/runtime_env_agent.1.log", .monitor_out = S "/logs/log_monitor.1.out",
		      .monitor_err = S "/logs/log_monitor.1.err", .num_cpus = 2, .object_store_memory = 200000000, .maximum_startup_concurrency = 2,
		      .dashboard_agent_listen_port = 53112, .rotate_bytes = 536870912, .rotate_backups = 5, .redirect = true };

	if (v235) {
		p.metrics_agent_port = 48880;
		p.metrics_export_port = 49981;
		p.runtime_env_agent_port = 44564;
	}
	return p;
}

static const char *const raylet_2_60_0[] = {
	"/d/raylet",
	"--raylet_socket_name=" S "/sockets/raylet.1",
	"--store_socket_name=" S "/sockets/plasma_store.1",
	"--object_manager_port=0",
	"--min_worker_port=0",
	"--max_worker_port=0",
	"--node_manager_port=0",
	"--node_id=aa",
	"--node_ip_address=127.0.0.11",
	"--maximum_startup_concurrency=2",
	"--static_resource_list=a,3,CPU,2",
	"--python_worker_command=/v/bin/python3 /p/ray/_private/workers/setup_worker.py /p/ray/_private/workers/default_worker.py "
	"--node-ip-address=127.0.0.11 --node-manager-port=RAY_NODE_MANAGER_PORT_PLACEHOLDER --object-store-name=" S "/sockets/plasma_store.1 "
	"--raylet-name=" S "/sockets/raylet.1 --redis-address=None --metrics-agent-port=0 --logging-rotate-bytes=536870912 "
	"--logging-rotate-backup-count=5 --runtime-env-agent-port=0 --gcs-address=127.0.0.10:6379 --session-name=session_1 --temp-dir=/t "
	"--webui=127.0.0.1:8265 --cluster-id=cc RAY_WORKER_DYNAMIC_OPTION_PLACEHOLDER",
	"--java_worker_command=/v/bin/python3 /p/ray/_private/workers/setup_worker.py -Dray.address=127.0.0.10:6379 "
	"-Dray.raylet.node-manager-port=RAY_NODE_MANAGER_PORT_PLACEHOLDER -Dray.object-store.socket-name=" S "/sockets/plasma_store.1 "
	"-Dray.raylet.socket-name=" S "/sockets/raylet.1 -Dray.redis.username= -Dray.redis.password= -Dray.node-ip=127.0.0.11 "
	"-Dray.home=/p/ray/../.. -Dray.logging.dir=" S "/logs -Dray.session-dir=" S " RAY_WORKER_DYNAMIC_OPTION_PLACEHOLDER "
	"io.ray.runtime.runner.worker.DefaultWorker",
	"--cpp_worker_command=",
	"--native_library_path=/p/ray/cpp/lib",
	"--temp_dir=/t",
	"--session_dir=" S,
	"--log_dir=" S "/logs",
	"--resource_dir=" S "/runtime_resources",
	"--metrics-agent-port=0",
	"--metrics_export_port=0",
	"--runtime_env_agent_port=0",
	"--object_store_memory=200000000",
	"--plasma_directory=/dev/shm",
	"--fallback_directory=" S,
	"--ray-debugger-external=0",
	"--gcs-address=127.0.0.10:6379",
	"--session-name=session_1",
	"--labels={\"zone\": \"east\"}",
	"--cluster-id=cc",
	"--stdout_filepath=" S "/logs/raylet.1.out",
	"--stderr_filepath=" S "/logs/raylet.1.err",
	"--num_prestart_python_workers=2",
	"--dashboard_agent_command=/v/bin/python3 -u /p/ray/dashboard/agent.py --node-id=aa --node-ip-address=127.0.0.11 --metrics-export-port=0 "
	"--grpc-port=0 --listen-port=53112 --node-manager-port=RAY_NODE_MANAGER_PORT_PLACEHOLDER --object-store-name=" S
	"/sockets/plasma_store.1 --raylet-name=" S "/sockets/raylet.1 --temp-dir=/t --session-dir=" S " --log-dir=" S
	"/logs --logging-rotate-bytes=536870912 --logging-rotate-backup-count=5 --session-name=session_1 --gcs-address=127.0.0.10:6379 "
	"--cluster-id-hex=cc --stdout-filepath=" S "/logs/dashboard_agent.1.out --stderr-filepath=" S
	"/logs/dashboard_agent.1.err --logging-filename=dashboard_agent.1.log",
	"--runtime_env_agent_command=/v/bin/python3 -u /p/ray/_private/runtime_env/agent/main.py --node-id=aa --node-ip-address=127.0.0.11 "
	"--runtime-env-agent-port=0 --session-dir=" S " --gcs-address=127.0.0.10:6379 --cluster-id-hex=cc --runtime-env-dir=" S
	"/runtime_resources --logging-rotate-bytes=536870912 --logging-rotate-backup-count=5 --log-dir=" S "/logs --temp-dir=/t --stdout-filepath=" S
	"/logs/runtime_env_agent.1.out --stderr-filepath=" S "/logs/runtime_env_agent.1.err --logging-filename=runtime_env_agent.1.log",
	"--node-name=127.0.0.11",
	NULL,
};

static const char *const raylet_2_35_0[] = {
	"/d/raylet",
	"--raylet_socket_name=" S "/sockets/raylet.1",
	"--store_socket_name=" S "/sockets/plasma_store.1",
	"--object_manager_port=0",
	"--min_worker_port=0",
	"--max_worker_port=0",
	"--node_manager_port=0",
	"--node_id=aa",
	"--node_ip_address=127.0.0.11",
	"--maximum_startup_concurrency=2",
	"--static_resource_list=a,3,CPU,2",
	"--python_worker_command=/v/bin/python3 /p/ray/_private/workers/setup_worker.py /p/ray/_private/workers/default_worker.py "
	"--node-ip-address=127.0.0.11 --node-manager-port=RAY_NODE_MANAGER_PORT_PLACEHOLDER --object-store-name=" S "/sockets/plasma_store.1 "
	"--raylet-name=" S "/sockets/raylet.1 --redis-address=None --metrics-agent-port=48880 --runtime-env-agent-port=44564 "
	"--logging-rotate-bytes=536870912 --logging-rotate-backup-count=5 --runtime-env-agent-port=44564 --gcs-address=127.0.0.10:6379 "
	"--session-name=session_1 --temp-dir=/t --webui=127.0.0.1:8265 --cluster-id=cc RAY_WORKER_DYNAMIC_OPTION_PLACEHOLDER",
	"--java_worker_command=",
	"--cpp_worker_command=",
	"--native_library_path=/p/ray/cpp/lib",
	"--temp_dir=/t",
	"--session_dir=" S,
	"--log_dir=" S "/logs",
	"--resource_dir=" S "/runtime_resources",
	"--metrics-agent-port=48880",
	"--metrics_export_port=49981",
	"--runtime_env_agent_port=44564",
	"--object_store_memory=200000000",
	"--plasma_directory=/dev/shm",
	"--ray-debugger-external=0",
	"--gcs-address=127.0.0.10:6379",
	"--session-name=session_1",
	"--labels={\"zone\": \"east\"}",
	"--cluster-id=cc",
	"--worker_port_list=10100,10101",
	"--num_prestart_python_workers=2",
	"--dashboard_agent_command=/v/bin/python3 -u /p/ray/dashboard/agent.py --node-ip-address=127.0.0.11 --metrics-export-port=49981 "
	"--dashboard-agent-port=48880 --listen-port=53112 --node-manager-port=RAY_NODE_MANAGER_PORT_PLACEHOLDER --object-store-name=" S
	"/sockets/plasma_store.1 --raylet-name=" S "/sockets/raylet.1 --temp-dir=/t --session-dir=" S " --log-dir=" S
	"/logs --logging-rotate-bytes=536870912 --logging-rotate-backup-count=5 --session-name=session_1 --gcs-address=127.0.0.10:6379 --minimal",
	"--runtime_env_agent_command=/v/bin/python3 -u /p/ray/_private/runtime_env/agent/main.py --node-ip-address=127.0.0.11 "
	"--runtime-env-agent-port=44564 --gcs-address=127.0.0.10:6379 --runtime-env-dir=" S
	"/runtime_resources --logging-rotate-bytes=536870912 --logging-rotate-backup-count=5 --log-dir=" S "/logs --temp-dir=/t",
	"--node-name=127.0.0.11",
	NULL,
};

static void same(const char *const *want, char **got)
{
	size_t i = 0;

	for (; want[i] != NULL && got[i] != NULL; i++)
		CHECK_STR(want[i], got[i]);
	CHECK(want[i] == NULL && got[i] == NULL);
	rc_words_free(got);
}

static void raylet(void)
{
	rc_plan b = plan(false), a = plan(true);

	b.java = true;
	same(raylet_2_60_0, rc_plan_raylet_words(&b));
	a.minimal = true;
	a.worker_port_list = "10100,10101";
	same(raylet_2_35_0, rc_plan_raylet_words(&a));
}

static void log_monitor(void)
{
	static const char *const new[] = { "/v/bin/python3", "-u", "/p/ray/_private/log_monitor.py", "--session-dir=" S, "--logs-dir=" S "/logs",
		                           "--gcs-address=127.0.0.10:6379", "--node-ip-address=127.0.0.11", "--logging-rotate-bytes=536870912",
		                           "--logging-rotate-backup-count=5", "--stdout-filepath=" S "/logs/log_monitor.1.out",
		                           "--stderr-filepath=" S "/logs/log_monitor.1.err", NULL };
	static const char *const old[] = { "/v/bin/python3", "-u", "/p/ray/_private/log_monitor.py", "--session-dir=" S, "--logs-dir=" S "/logs",
		                           "--gcs-address=127.0.0.10:6379", "--logging-rotate-bytes=536870912", "--logging-rotate-backup-count=5", NULL };
	rc_plan b = plan(false), a = plan(true);

	same(new, rc_plan_log_monitor_words(&b));
	same(old, rc_plan_log_monitor_words(&a));
}

static void quoting(void)
{
	char *words[] = { "plain", "two words", "", "quo\"te", "back\\slash", "end\\ ", "\\\"", "a b\\", NULL };
	char *text = rc_words_join(words);

	CHECK_STR("plain \"two words\" \"\" quo\\\"te back\\slash \"end\\ \" \\\\\\\" \"a b\\\\\"", text);
	free(text);
}

static const char *resources(const char *custom, const char *env, rc_amounts a, const char *gpu)
{
	static char text[512];
	char *got = NULL;
	rc_error error;

	if (rc_resources_override(env, &a, &error) != 0 || rc_resources_text(custom, env, &a, "10.0.0.1", gpu, &got, &error) != 0) {
		snprintf(text, sizeof text, "%s", error.text);
		return text;
	}
	snprintf(text, sizeof text, "%s", got);
	free(got);
	return text;
}

static void amounts(void)
{
	rc_amounts a = { .cpus = 2, .gpus = 0, .memory = 1000, .object_store_memory = 500 };

	CHECK_STR("a,3,b,1.0,node:10.0.0.1,1.0,CPU,2,memory,1000,object_store_memory,500", resources("{\"a\": 3, \"b\": 1.0, \"zero\": 0}", NULL, a, ""));
	a.gpus = 1;
	CHECK_STR("node:10.0.0.1,1.0,accelerator_type:A100,1,CPU,2,GPU,1,memory,1000,object_store_memory,500", resources(NULL, "", a, "A100"));
	CHECK_STR("a,5,c,1,node:10.0.0.1,1.0,CPU,7,GPU,1,memory,1000,object_store_memory,500", resources("{\"a\": 3}", "{\"CPU\": 7, \"a\": 5, \"c\": 1}", a, ""));
	CHECK(strstr(resources("{\"CPU\": 3}", NULL, a, ""), "\"CPU\"") != NULL);
	CHECK(strstr(resources("{\"a\": 0.5}", NULL, a, ""), "whole numbers") != NULL);
	CHECK(strstr(resources("{\"a\": -1}", NULL, a, ""), "\"a\" is -1") != NULL);
	CHECK(strstr(resources("{\"a\": 1e15}", NULL, a, ""), "from 0 to 1e+14") != NULL);
	CHECK(strstr(resources("{\"a\": \"x\"}", NULL, a, ""), "not a number") != NULL);
	CHECK(strstr(resources("{\"a,b\": 1}", NULL, a, ""), "comma") != NULL);
	CHECK(strstr(resources("[1]", NULL, a, ""), "not a JSON object") != NULL);
	CHECK(strstr(resources("{", NULL, a, ""), "--resources is not JSON") != NULL);
	CHECK(strstr(resources(NULL, "{\"CPU\": \"x\"}", a, ""), "\"CPU\" is not a number") != NULL);
}

static const char *labels(bool v235, const char *given)
{
	static char text[512];
	char *got = NULL;
	rc_error error;

	if (rc_labels_text(v235, NULL, given, "", &got, &error) != 0) {
		snprintf(text, sizeof text, "error: %s", error.text);
		return text;
	}
	snprintf(text, sizeof text, "%s", got);
	free(got);
	return text;
}

static void label_forms(void)
{
	CHECK_STR("", labels(false, NULL));
	CHECK_STR("{\"zone\": \"east\", \"tier\": \"gold\"}", labels(false, "zone=east,tier=gold"));
	CHECK_STR("{\"zone\": \"east\"}", labels(false, "\" zone = east \""));
	CHECK_STR("{\"ray.io/x\": \"\"}", labels(false, "ray.io/x="));
	CHECK_STR("{\"zone\": \"east\"}", labels(false, "{\"zone\": \"east\"}"));
	CHECK_STR("{\"zone\": \"east\"}", labels(true, "{\"zone\": \"east\"}"));
	CHECK(strncmp(labels(true, "zone=east"), "error: --labels is not JSON", 27) == 0);
	CHECK(strstr(labels(true, "{\"ray.io/x\": \"y\"}"), "cannot start with") != NULL);
	CHECK(strstr(labels(false, "zone"), "not of the form key=value") != NULL);
	CHECK(strstr(labels(false, "a=b=c"), "not of the form key=value") != NULL);
	CHECK(strstr(labels(false, "a=b,"), "not of the form key=value") != NULL);
	CHECK(strstr(labels(false, "-a=b"), "`-a`") != NULL);
	CHECK(strstr(labels(false, "a=b/c"), "`b/c`") != NULL);
	char *merged = NULL;
	rc_error error;
	CHECK_EQ_INT(0, rc_labels_text(false, "zone: north # as the file has it\ntier: gold\n", "zone=east", "", &merged, &error));
	CHECK_STR("{\"zone\": \"east\", \"tier\": \"gold\"}", merged);
	free(merged);
	CHECK_EQ_INT(-1, rc_labels_text(false, "-a/: b\n", NULL, "", &merged, &error));
	setenv("RAY_NODE_TYPE_NAME", "group", 1);
	setenv("RAY_OVERRIDE_LABELS", "{\"zone\": \"west\"}", 1);
	CHECK_STR("{\"ray.io/node-group\": \"group\", \"zone\": \"west\"}", labels(false, "zone=east"));
	CHECK_STR("{\"zone\": \"west\"}", labels(true, ""));
	unsetenv("RAY_NODE_TYPE_NAME");
	unsetenv("RAY_OVERRIDE_LABELS");
}

int main(void)
{
	RUN(raylet, "the daemon's command line is the one of each release's ray start");
	RUN(log_monitor, "the log monitor's command line is the one of each release's ray start");
	RUN(quoting, "words are joined as Python's list2cmdline does");
	RUN(amounts, "resources are checked and ordered as Ray does, and the environment wins");
	RUN(label_forms, "labels are read in each release's forms and bad ones are named");
	return test_end();
}
