#include "raylet-c/cli/doctor.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/machine.h"
#include "raylet-c/cli/install.h"
#include "raylet-c/doctor/doctor.h"
#include "raylet-c/doctor/pair.h"
#include "raylet-c/wire/dialect.h"

/* An address that is routed to the outside, of a block that nobody has (RFC 5737): only the route is asked for. */
#define OUTSIDE "192.0.2.1"

static void look_at_ray(const rc_doctor_options *o, rc_package *p, rc_line_context *ret, char *text, size_t size)
{
	static const char *const states[] = {
		[RC_INSTALL_STOCK] = "Ray's own daemon is in place",
		[RC_INSTALL_ENABLED] = "our daemon is in place",
		[RC_INSTALL_OVERWRITTEN] = "a later installation of ray put its own daemon back",
		[RC_INSTALL_NO_STOCK] = "our daemon is in place, Ray's own is gone",
	};
	rc_install_state state;
	rc_error error;
	ret->ray_text = text;
	if (rc_package_find(o->ray_dir, p, &error) != 0 || rc_install_state_of(p, &state, &error) != 0) {
		snprintf(text, size, "%s", error.text);
		return;
	}
	ret->ray_release = p->release;
	ret->ray_supported = rc_dialect_find(p->release, &error) != NULL;
	ret->ray_enabled = state == RC_INSTALL_ENABLED || state == RC_INSTALL_NO_STOCK;
	if (ret->ray_supported)
		snprintf(text, size, "%s (%s)", states[state], p->dir);
	else
		snprintf(text, size, "which this version does not support (%s)", p->dir);
}

/* The interface's speed, of the node's own address; 0: not told. */
static uint64_t link_of(const rc_doctor_options *o)
{
	static rc_facts facts;
	rc_facts_gather(&(rc_facts_options){ .root = o->root, .address = o->address, .brief = true }, &facts);
	const rc_interface *own = rc_facts_own(&facts);
	return own && own->mbits > 0 ? (uint64_t)own->mbits * 1000000 : 0;
}

static void tell_ready(void *arg, int port)
{
	printf("raylet-c doctor: serves one measurement at %s port %d\n", (const char *)arg, port);
	fflush(stdout);
}

static int run_pair(const rc_doctor_options *o)
{
	rc_pair_options p = { .ip = o->address, .providers = getenv("RAYLET_C_FABRIC") };
	rc_pair_result result;
	rc_error error;
	char host[256];
	int port, rc = 0;
	if (o->pair_listen) {
		rc = rc_pair_parse(o->pair_listen, host, &port, &error);
		if (rc == 0 && *host)
			p.ip = host;
		if (rc == 0)
			rc = rc_pair_serve(&p, port, tell_ready, (char *)p.ip, &error);
	} else if (o->pair_host) {
		rc = rc_pair_parse(o->pair_host, host, &port, &error);
		if (rc == 0)
			rc = rc_pair_measure(&p, host, port, &result, &error);
	} else {
		rc = rc_pair_local(&p, &result, &error);
	}
	if (rc != 0) {
		fprintf(stderr, "raylet-c: doctor: %s\n", error.text);
		return 1;
	}
	rc_buf out = { 0 };
	if (!o->pair_listen && o->json)
		rc_pair_json(&result, link_of(o), &out);
	else if (!o->pair_listen)
		rc_pair_print(&result, link_of(o), &out);
	fputs(rc_buf_cstr(&out), stdout);
	rc_buf_free(&out);
	return 0;
}

int rc_doctor_command(int argc, char *const *argv)
{
	static rc_facts facts; /* large */
	rc_doctor_options o;
	rc_error error;
	rc_package package = { 0 };
	char address[64], ray_text[PATH_MAX + 200];
	if (rc_doctor_options_parse(argc, argv, &o, &error) != 0) {
		fprintf(stderr, "raylet-c: doctor: %s; see raylet-c doctor --help\n", error.text);
		return 2;
	}
	if (o.help) {
		fputs(rc_doctor_help, stdout);
		return 0;
	}
	const char *asked = getenv("RAYLET_C_REQUIRE_EFA");
	rc_line_context context = { .require_efa = o.require_efa || (asked && strcmp(asked, "1") == 0) };
	if (!*o.root)
		look_at_ray(&o, &package, &context, ray_text, sizeof(ray_text));
	if (!o.address && !*o.root) {
		rc_machine_ip_towards(OUTSIDE, 1, address);
		o.address = address;
	}
	if (o.pair || o.pair_listen)
		return run_pair(&o);
	char *slash = context.ray_release ? strrchr(package.dir, '/') : NULL;
	char *site = slash ? rc_strndup(package.dir, (size_t)(slash - package.dir)) : NULL;
	rc_facts_options options = { .root = o.root, .address = o.address, .site_packages = site, .library_path = getenv("LD_LIBRARY_PATH") };
	rc_choice choice;
	rc_choice_env env;
	rc_lines lines;
	rc_buf out = { 0 };
	rc_facts_gather(&options, &facts);
	rc_choose(&facts, &choice);
	rc_choice_environment(&facts, &choice, context.require_efa, &env);
	rc_lines_make(&facts, &choice, &context, &lines);
	if (o.json)
		rc_doctor_json(&lines, &facts, &choice, &env, &out);
	else
		rc_doctor_print(&lines, &choice, &env, &out);
	fputs(rc_buf_cstr(&out), stdout);
	rc_buf_free(&out);
	free(site);
	return rc_lines_failed(&lines) ? 1 : 0;
}
