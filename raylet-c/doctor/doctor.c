/* Options and the two forms of the report. */
#include "raylet-c/doctor/doctor.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/version.h"

const char rc_doctor_help[] =
	"raylet-c doctor [--json] [OPTIONS]\n"
	"\n"
	"Looks at this machine as a training node: network, GPUs, limits, Ray. A line each: OK, WARN, FAIL or SKIP, with the cure.\n"
	"Exit status 1 when a line is FAIL.\n"
	"\n"
	"  --json                   the report as JSON\n"
	"  --require-efa            a node without EFA in use is a FAIL\n"
	"  --node-ip-address IP     the node's own address (found out)\n"
	"  --ray-dir DIR            the ray package (as for raylet-c enable)\n"
	"  --pair                   latency and bandwidth between two ends on this machine, by what is really used\n"
	"  --pair HOST[:PORT]       the same towards HOST, where `raylet-c doctor --pair-listen [IP:]PORT` runs\n"
	"  --pair-listen [IP:]PORT  the other end: serves one measurement and ends\n";

static bool takes_value(const char *name, size_t n, rc_doctor_options *o, const char ***ret)
{
	struct {
		const char *name;
		const char **field;
	} table[] = { { "--node-ip-address", &o->address }, { "--ray-dir", &o->ray_dir }, { "--pair-listen", &o->pair_listen } };
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (strlen(table[i].name) == n && strncmp(table[i].name, name, n) == 0) {
			*ret = table[i].field;
			return true;
		}
	return false;
}

int rc_doctor_options_parse(int argc, char *const *argv, rc_doctor_options *ret, rc_error *error)
{
	rc_doctor_options o = { .root = getenv("RC_DOCTOR_ROOT") };
	if (!o.root)
		o.root = "";
	for (int i = 0; i < argc; i++) {
		const char *word = argv[i], *equals = strchr(word, '='), **field;
		size_t n = equals ? (size_t)(equals - word) : strlen(word);
		if (strcmp(word, "--json") == 0) {
			o.json = true;
		} else if (strcmp(word, "--require-efa") == 0) {
			o.require_efa = true;
		} else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
			o.help = true;
		} else if (n == 6 && strncmp(word, "--pair", 6) == 0) { /* its value may be left out */
			o.pair = true;
			o.pair_host = equals ? equals + 1 : i + 1 < argc && argv[i + 1][0] != '-' ? argv[++i] : NULL;
		} else if (takes_value(word, n, &o, &field)) {
			if (!equals && i + 1 >= argc)
				return rc_fail(error, RC_E_INVALID, "option %s needs a value", word);
			*field = equals ? equals + 1 : argv[++i];
		} else {
			return rc_fail(error, RC_E_INVALID, "no such option: %s", word);
		}
	}
	*ret = o;
	return 0;
}

void rc_doctor_print(const rc_lines *lines, const rc_choice *choice, const rc_choice_env *env, rc_buf *out)
{
	(void)choice;
	for (size_t i = 0; i < lines->n; i++) {
		const rc_line *l = &lines->v[i];
		rc_buf_printf(out, "%-4s  %-14s %s%s%s\n", rc_mark_name(l->mark), l->name, l->text, *l->cure ? " -> " : "", l->cure);
	}
	rc_buf_str(out, "train workers get, where the user has not set it:");
	for (size_t i = 0; i < env->n; i++)
		rc_buf_printf(out, " %s", env->v[i]);
	rc_buf_str(out, env->n ? "\n" : " nothing\n");
}

static json_t *text_or_null(const char *text)
{
	return *text ? json_string(text) : json_null();
}

void rc_doctor_json(const rc_lines *lines, const rc_facts *f, const rc_choice *c, const rc_choice_env *env, rc_buf *out)
{
	json_t *checks = json_array(), *variables = json_object();
	for (size_t i = 0; i < lines->n; i++) {
		const rc_line *l = &lines->v[i];
		json_array_append_new(checks, json_pack("{ss ss ss so}", "name", l->name, "mark", rc_mark_name(l->mark), "text", l->text, "cure",
		                                        text_or_null(l->cure)));
	}
	for (size_t i = 0; i < env->n; i++) {
		const char *value = strchr(env->v[i], '=') + 1;
		char *name = rc_strndup(env->v[i], (size_t)(value - 1 - env->v[i]));
		json_object_set_new(variables, name, json_string(value));
		free(name);
	}
	json_t *transport = json_pack("{ss ss ss ss sb so so}", "nccl_within", rc_via_name(c->nccl_within), "nccl_between", rc_via_name(c->nccl_between),
	                              "objects_within", rc_via_name(c->fabric_within), "objects_between", rc_via_name(c->fabric_between), "gpu_direct",
	                              c->gpu_direct, "interface", text_or_null(c->interface), "why_not_efa", text_or_null(c->why_not_efa));
	json_t *machine = json_pack("{so si si so so so so}", "instance", text_or_null(f->instance), "gpus", f->gpu.count, "efa_devices", f->efa.devices,
	                            "efa_firmware", text_or_null(f->efa.firmware), "libfabric", text_or_null(f->libfabric.version), "nccl",
	                            text_or_null(f->nccl.version), "nccl_plugin", text_or_null(f->plugin.version));
	json_t *report = json_pack("{ss sb so so so so}", "version", RC_VERSION, "ok", !rc_lines_failed(lines), "checks", checks, "transport", transport,
	                           "machine", machine, "environment", variables);
	char *text = report ? json_dumps(report, JSON_INDENT(2)) : NULL; /* NULL: bytes that are no UTF-8 in what a file told */
	rc_buf_printf(out, "%s\n", text ? text : "{\"ok\": false, \"checks\": []}");
	free(text);
	json_decref(report);
}
