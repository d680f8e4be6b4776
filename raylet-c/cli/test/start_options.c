/* The words of `raylet-c start`. */
#include "raylet-c/cli/start_options.h"

#include "raylet-c/base/test.h"

static rc_error error;
static rc_start_options o;

#define PARSE(...) rc_start_options_parse((int)(sizeof(char *[]){ __VA_ARGS__ } / sizeof(char *)), (char *[]){ __VA_ARGS__ }, &o, &error)

static void values(void)
{
	CHECK_EQ_INT(0, PARSE("--address=h:1", "--num-cpus", "3", "--resources", "{\"a\": 1}", "--block", "--include-log-monitor=false",
	                      "--min-worker-port=0", "--max-worker-port=0", "--disable-usage-stats", "--log-color=false", "-v"));
	CHECK_STR("h:1", o.address);
	CHECK_EQ_INT(3, o.num_cpus);
	CHECK_EQ_INT(-1, o.num_gpus);
	CHECK_STR("{\"a\": 1}", o.resources);
	CHECK(o.block && !o.log_monitor && !o.no_redirect_output && !o.debugger_external);
	CHECK_EQ_INT(0, o.max_worker_port);
	CHECK_EQ_INT(52365, o.dashboard_agent_listen_port);
	CHECK_EQ_INT(0, PARSE("--address=h:1"));
	CHECK_EQ_INT(10002, o.min_worker_port);
	CHECK(o.log_monitor);
	CHECK_EQ_INT(0, PARSE("--address=h:1", "--labels-file=f", "--ray-debugger-external", "--storage=s", "--proxy-server-url=u"));
	CHECK_STR("f", o.labels_file);
	CHECK(o.debugger_external);
	CHECK(!o.require_efa);
	CHECK_EQ_INT(0, PARSE("--address=h:1", "--require-efa"));
	CHECK(o.require_efa);
	CHECK_EQ_INT(0, PARSE("--help"));
	CHECK(o.help);
}

static void wrong_words(void)
{
	CHECK_EQ_INT(-1, PARSE("--address=h:1", "--num-cpu=3"));
	CHECK_STR("No such option: --num-cpu", error.text);
	CHECK_EQ_INT(RC_E_NOT_FOUND, error.code);
	CHECK_EQ_INT(-1, PARSE("--address=h:1", "extra"));
	CHECK_EQ_INT(-1, PARSE("--address"));
	CHECK_STR("--address needs a value", error.text);
	CHECK_EQ_INT(-1, PARSE("--address=h:1", "--num-cpus=two"));
	CHECK(strstr(error.text, "--num-cpus") != NULL && strstr(error.text, "two") != NULL);
	CHECK_EQ_INT(-1, PARSE("--address=h:1", "--num-cpus=-1"));
	CHECK_EQ_INT(-1, PARSE("--address=h:1", "--num-cpus=99999999999999999999"));
	CHECK_EQ_INT(-1, PARSE("--address=h:1", "--node-manager-port=70000"));
	CHECK_EQ_INT(-1, PARSE("--address=h:1", "--include-log-monitor=maybe"));
	CHECK_EQ_INT(-1, PARSE("--address=h:1", "--block=1"));
	CHECK_EQ_INT(RC_E_INVALID, error.code);
}

static void refused(void)
{
	CHECK_EQ_INT(-1, PARSE("--num-cpus=1"));
	CHECK_EQ_INT(RC_E_UNSUPPORTED, error.code);
	CHECK(strstr(error.text, "--address") != NULL);
	CHECK_EQ_INT(-1, PARSE("--head"));
	CHECK(strstr(error.text, "--head") != NULL && strstr(error.text, "ray start --head") != NULL);
	CHECK_EQ_INT(-1, PARSE("--address=h:1", "--port=6379"));
	CHECK_EQ_INT(-1, PARSE("--address=h:1", "--enable-resource-isolation"));
	CHECK_EQ_INT(RC_E_UNSUPPORTED, error.code);
	CHECK(strstr(error.text, "control groups") != NULL);
	CHECK_EQ_INT(-1, PARSE("--address=h:1", "--node-manager-port=7000", "--metrics-export-port=7000"));
	CHECK_STR("--node-manager-port and --metrics-export-port are both 7000", error.text);
	CHECK_EQ_INT(-1, PARSE("--address=h:1", "--metrics-export-port=10500"));
	CHECK(strstr(error.text, "workers' ports") != NULL);
	CHECK_EQ_INT(0, PARSE("--address=h:1", "--metrics-export-port=10500", "--worker-port-list=11000,11001"));
	CHECK_EQ_INT(-1, PARSE("--address=h:1", "--min-worker-port=20000", "--max-worker-port=10000"));
}

int main(void)
{
	RUN(values, "options are read in both spellings, with the defaults of ray start");
	RUN(wrong_words, "unknown options and bad values are named");
	RUN(refused, "a missing address, options of a head and ports used twice are refused");
	return test_end();
}
