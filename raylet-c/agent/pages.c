/* HTTP of the agent.
 *
 * | port | page | answer |
 * | agent | /api/local_raylet_healthz | "success", or 503 and why |
 * | agent | /api/healthz (2.60.0) | the same of raylet and GCS, of which a worker node has none |
 * | agent | /logs, /logs/... | the log folder: an index of a folder, or a file |
 * | agent | /api/job_agent/... | handed on to the job agent, a process that runs when it is wanted |
 * | metrics | /metrics, / | Prometheus' text |
 * | runtime-env agent | POST /get_runtime_envs_info | the envs of this node, for the state API |
 *
 * As 2.60.0 has it: with a token, all of the agent's pages but health want it; browsers are refused (a page of somebody else's
 * could ask through them). Metrics are open. 2.35.0 listens on all addresses with both, 2.60.0 with metrics only; here the pages
 * are on the node's address and on 127.0.0.1 for either. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "raylet-c/agent/gauges.h"
#include "raylet-c/agent/internal.h"
#include "raylet-c/agent/log_files.h"
#include "raylet-c/agent/text.h"
#include "raylet-c/base/log.h"

enum { MAX_BODY = 16 << 20 /* a job's request may be large */, RAYLET_TTL_MS = 1000 };

/* ---- who may ask ---- */

static bool is_browser(const rc_http_call *c)
{
	static const char *const marks[] = { "referer", "origin", "sec-fetch-mode", "sec-fetch-dest", "sec-fetch-site", "sec-fetch-user",
		                             "access-control-request-method", "access-control-request-headers" };
	const char *agent = rc_http_call_header(c, "user-agent");
	if (agent && !strncmp(agent, "Mozilla", 7))
		return true;
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
		if (rc_http_call_header(c, marks[i]))
			return true;
	return false;
}

/* Takes the same time wherever the two differ. */
static bool same_secret(const char *got, size_t n, const char *wanted)
{
	size_t want = strlen(wanted);
	unsigned differ = n != want;
	for (size_t i = 0; i < n; i++)
		differ |= (unsigned char)got[i] ^ (unsigned char)wanted[i % (want + 1)];
	return !differ;
}

/* 200: may. 401: no token. 403: a wrong one. */
static int check_token(const rc_agent *a, const rc_http_call *c)
{
	static const char cookie_name[] = "ray-authentication-token=";
	const char *header = rc_http_call_header(c, "authorization"), *cookie;
	if (!a->o.token)
		return 200;
	if (!header || !*header)
		header = rc_http_call_header(c, "x-ray-authorization");
	if (header && *header)
		return !strncasecmp(header, "Bearer ", 7) && same_secret(header + 7, strlen(header + 7), a->o.token) ? 200 : 403;
	cookie = rc_http_call_header(c, "cookie");
	cookie = cookie ? strstr(cookie, cookie_name) : NULL;
	if (!cookie)
		return 401;
	cookie += sizeof(cookie_name) - 1;
	return same_secret(cookie, strcspn(cookie, "; "), a->o.token) ? 200 : 403;
}

/* ---- pages ---- */

static void answer_words(rc_http_call *c, int status, const char *text)
{
	rc_http_answer(c, status, "application/text; charset=utf-8", rc_view_str(text));
}

static void health(rc_agent *a, rc_http_call *c)
{
	const char *why = a->o.ops->unwell(a->o.ctx);
	answer_words(c, why ? 503 : 200, why ? why : "success");
}

static void all_health(rc_agent *a, rc_http_call *c)
{
	const char *why = a->o.ops->unwell(a->o.ctx);
	char *text = rc_sprintf("raylet: %s\ngcs: success (no local gcs)", why ? why : "success");
	answer_words(c, why ? 503 : 200, text);
	free(text);
}

static const char *type_of(const char *name)
{
	static const char *const text[] = { ".log", ".out", ".err", ".txt" };
	const char *dot = strrchr(name, '.');
	for (size_t i = 0; dot && i < sizeof(text) / sizeof(text[0]); i++)
		if (!strcmp(dot, text[i]))
			return "text/plain";
	return dot && !strcmp(dot, ".html") ? "text/html" : dot && !strcmp(dot, ".json") ? "application/json" : "application/octet-stream";
}

typedef struct folder_page {
	rc_buf html;
	const char *path; /* below /logs, "" or with a '/' at its end */
} folder_page;

static void add_link(void *arg, const char *name)
{
	folder_page *p = arg;
	rc_buf_str(&p->html, "<li><a href=\"/logs/");
	rc_html_text(&p->html, p->path);
	rc_html_text(&p->html, name);
	rc_buf_str(&p->html, "\">");
	rc_html_text(&p->html, name);
	rc_buf_str(&p->html, "</a></li>\n");
}

static void log_folder(rc_agent *a, rc_http_call *c, const char *name)
{
	size_t n = strlen(name);
	char *path = rc_sprintf("%s%s", name, n && name[n - 1] != '/' ? "/" : ""), *real = rc_sprintf("%s/%s", a->o.log_dir, path);
	folder_page page = { .path = path };
	rc_error e;
	rc_buf_str(&page.html, "<html>\n<head>\n<title>Index of /");
	rc_html_text(&page.html, path);
	rc_buf_str(&page.html, "</title>\n</head>\n<body>\n<h1>Index of /");
	rc_html_text(&page.html, path);
	rc_buf_str(&page.html, "</h1>\n<ul>\n");
	if (rc_log_files_list(real, "*", add_link, &page, &e)) {
		rc_http_answer_text(c, 404, "%s", e.text);
	} else {
		rc_buf_str(&page.html, "</ul>\n</body>\n</html>");
		rc_http_answer(c, 200, "text/html; charset=utf-8", rc_view_of(page.html.p, page.html.n));
	}
	rc_buf_free(&page.html);
	free(real);
	free(path);
}

/* The folder itself is small and in the kernel's cache; a file's content comes by the pool. */
static void logs(rc_agent *a, rc_http_call *c, const char *name)
{
	bool is_folder = false;
	uint64_t size = 0;
	rc_error e;
	if (*name == '/') {
		rc_http_answer_text(c, 404, "Not Found");
		return;
	}
	int fd = rc_log_file_open(a->o.log_dir, name, &is_folder, &size, &e);
	if (fd < 0) {
		if (e.code == RC_E_INVALID)
			rc_warn("a log file was refused: %s", e.text);
		rc_http_answer_text(c, e.code == RC_E_INVALID ? 403 : 404, "%s", e.text);
	} else if (is_folder) {
		close(fd);
		log_folder(a, c, name);
	} else {
		rc_http_answer_file(c, type_of(name), fd, size);
	}
}

static void serve_page(void *ctx, rc_http_call *c)
{
	rc_agent *a = ctx;
	const char *path = rc_http_call_path(c), *method = rc_http_call_method(c);
	bool get = !strcmp(method, "GET") || !strcmp(method, "HEAD");
	bool is_health = !strcmp(path, "/api/local_raylet_healthz"), is_all = !a->v235 && !strcmp(path, "/api/healthz");
	int may = is_health || is_all ? 200 : check_token(a, c);
	if (may != 200)
		rc_http_answer_text(c, may, may == 401 ? "Unauthorized: Missing authentication token" : "Forbidden: Invalid authentication token");
	else if (!a->v235 && is_browser(c))
		rc_http_answer_text(c, 403, "Browser requests not allowed.");
	else if ((is_health || is_all) && !get)
		rc_http_answer_text(c, 405, "405: Method Not Allowed");
	else if (is_health)
		health(a, c);
	else if (is_all)
		all_health(a, c);
	else if (!strncmp(path, "/api/job_agent/", 15))
		rc_relay(a->relays, c);
	else if (get && !strcmp(path, "/logs"))
		logs(a, c, "");
	else if (get && !strncmp(path, "/logs/", 6))
		logs(a, c, path + 6);
	else
		rc_http_answer_text(c, 404, "404: Not Found");
}

static void serve_metrics(void *ctx, rc_http_call *c)
{
	rc_agent *a = ctx;
	rc_buf text = { 0 };
	const char *const common[] = { "Component", "raylet", "NodeAddress", a->o.node_ip, "SessionName", a->o.session_name,
		                       "Version", rc_dialect_release(a->o.dialect), "WorkerId", "", NULL };
	if (strcmp(rc_http_call_path(c), "/metrics") != 0 && strcmp(rc_http_call_path(c), "/") != 0) {
		rc_http_answer_text(c, 404, "404: Not Found");
		return;
	}
	rc_metrics *own = rc_metrics_create(common); /* as they are now */
	a->o.ops->metrics(a->o.ctx, own);
	rc_gauges_from_metrics(a->series, own, RAYLET_TTL_MS);
	rc_metrics_destroy(own);
	rc_series_write(a->series, &text);
	rc_http_answer(c, 200, "text/plain; version=0.0.4; charset=utf-8", rc_view_of(text.p, text.n));
	rc_buf_free(&text);
}

/* What makes envs is a process of its own, on another port, and only when one is needed. */
static void serve_runtime_envs(void *ctx, rc_http_call *c)
{
	rc_agent *a = ctx;
	int may = check_token(a, c);
	if (may != 200) {
		rc_http_answer_text(c, may, may == 401 ? "Unauthorized: Missing authentication token" : "Forbidden: Invalid authentication token");
		return;
	}
	if (strcmp(rc_http_call_path(c), "/get_runtime_envs_info") != 0 || strcmp(rc_http_call_method(c), "POST") != 0) {
		rc_http_answer_text(c, 404, "404: Not Found");
		return;
	}
	Rw__GetRuntimeEnvsInfoRequest *m = rc_unpack(a->o.dialect, &rw__get_runtime_envs_info_request__descriptor, rc_http_call_body(c));
	if (!m) {
		rc_http_answer_text(c, 400, "GetRuntimeEnvsInfoRequest: malformed");
		return;
	}
	rc_buf out = { 0 };
	a->o.ops->runtime_envs(a->o.ctx, m->has_limit ? m->limit : -1, &out);
	rc_free_message(m);
	rc_http_answer(c, 200, "application/octet-stream", rc_view_of(out.p, out.n));
	rc_buf_free(&out);
}

/* ---- ports ---- */

static int listen_here(rc_http_server *s, const rc_agent *a, int port, const char *what, rc_error *error)
{
	static const char localhost[] = "127.0.0.1";
	if (rc_http_server_listen(s, a->o.node_ip, port, error) < 0)
		return -1;
	rc_error local;
	if (strcmp(a->o.node_ip, localhost) && rc_http_server_listen(s, localhost, port, &local) < 0)
		rc_warn("%s at this host's own address: %s", what, local.text); /* another node of this host may have it */
	return 0;
}

int rc__agent_pages_open(rc_agent *a, rc_error *error)
{
	const rc_agent_ports *p = &a->o.ports;
	rc_error e;
	a->pages = rc_http_server_create(a->o.loop, MAX_BODY, serve_page, a);
	a->metrics = rc_http_server_create(a->o.loop, MAX_BODY, serve_metrics, a);
	a->runtime_envs = rc_http_server_create(a->o.loop, MAX_BODY, serve_runtime_envs, a);
	if (p->runtime_env_agent_port > 0 && rc_http_server_listen(a->runtime_envs, a->o.node_ip, p->runtime_env_agent_port, &e) < 0)
		return rc_fail(error, e.code, "%s (--runtime-env-agent-port)", e.text);
	if (p->dashboard_agent_listen_port > 0 && listen_here(a->pages, a, p->dashboard_agent_listen_port, "no pages", &e))
		rc_warn("the agent goes without its pages: %s (--dashboard-agent-listen-port)", e.text);
	if (p->metrics_export_port > 0 &&
	    rc_http_server_listen(a->metrics, strchr(a->o.node_ip, ':') ? "::" : "0.0.0.0", p->metrics_export_port, &e) < 0)
		return rc_fail(error, e.code, "%s (--metrics-export-port)", e.text);
	return 0;
}
