/* The picture of `raylet-c top` from good, odd and hostile figures. */
#include "raylet-c/cli/top_frame.h"

#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/test.h"

static const char good[] =
        "{\"host\": \"h\", \"load\": [1, 2, 3], \"nodes\": [{\"node_id\": \"0123456789abcdef\", \"address\": \"192.0.2.1\", \"gcs_address\":"
        "\"192.0.2.9:6379\", \"daemon\": \"raylet-c\", \"ray_version\": \"2.60.0\", \"pid\": 7, \"cpu_percent\": 1.25, \"pss\": 6291456,"
        "\"state\": \"alive\", \"up_ms\": 3723000, \"total\": {\"CPU\": 4, \"memory\": 2147483648, \"node:192.0.2.1\": 1, \"x\": 2.5},"
        "\"free\": {\"CPU\": 3, \"memory\": 1073741824, \"x\": 0}, \"leases\": {\"granted\": 2, \"waiting\": 1}, \"n_bundles\": 3,"
        "\"n_workers\": 2, \"store\": {\"capacity\": 1048576000, \"used\": 524288000, \"objects\": 5, \"spilled\": 1024},"
        "\"transfers\": {\"in_per_s\": 1536, \"fabric\": 1}, \"workers\": ["
        "{\"pid\": 11, \"kind\": \"worker\", \"state\": \"idle\", \"cpu_percent\": 1, \"rss\": 300000000, \"title\": \"ray::IDLE\"},"
        "{\"pid\": 12, \"kind\": \"worker\", \"state\": \"leased\", \"cpu_percent\": 99, \"rss\": 100000000, \"title\": \"ray::f\", \"steps\": 40, \"steps_per_s\": 2.5, \"lease\":"
        "{\"name\": \"mine\", \"for_ms\": 90061000, \"resources\": {\"CPU\": 1, \"memory\": 1024}}}]}],"
        "\"gpus\": [{\"index\": 1, \"name\": \"G\", \"percent\": 50, \"used\": 1024, \"total\": 2048, \"celsius\": 40, \"watts\": 120}]}";

static rc_buf drawn;

static const char *draw(const char *json, rc_top_view *view)
{
	json_t *all = json_loads(json, 0, NULL);

	rc_buf_free(&drawn);
	rc_top_frame(all, view, &drawn);
	json_decref(all);
	return rc_buf_cstr(&drawn);
}

static void all_of_it(void)
{
	rc_top_view view = { .width = 200, .clock = "12:00:00" };
	static const char *const words[] = {
		"raylet-c top  h  12:00:00  load 1.00 2.00 3.00  nodes 1\n",
		"node 01234567  alive  192.0.2.1  head 192.0.2.9:6379  ray 2.60.0  up 1:02:03  pid 7: CPU 1.2 %, 6.0 MB\n",
		"  CPU    [|||||               ] 1/4  memory 1.0 GB of 2.0 GB  x 2.5/2.5\n",
		"  store  [||||||||||          ] 500 MB of 1.0 GB, objects 5, spilled 1.0 KB   in 1.5 KB/s, out 0 B/s over the fabric\n",
		"  leases 2 granted, 1 waiting   bundles 3   workers 2\n",
		"GPU 1    [||||||||||          ]  50 %  1.0 KB of 2.0 KB  40 C  120 W  G\n",
		"     12 01234567   99.0  95.4 MB  leased        1 d 1 h  CPU 1, memory 1.0 KB ray::f  step 40, 2.5/s  mine\n",
	};

	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		CHECK(strstr(draw(good, &view), words[i]) != NULL);
	CHECK(strstr(draw(good, &view), "     12 ") < strstr(draw(good, &view), "     11 "));
	view.sort = RC_TOP_BY_MEMORY;
	CHECK(strstr(draw(good, &view), "     11 ") < strstr(draw(good, &view), "     12 "));
}

static void fits(void)
{
	for (unsigned width = 1; width < 140; width += 7)
		for (unsigned height = 1; height < 14; height++) {
			rc_top_view view = { .width = width, .height = height }, colored = { .width = width, .height = height, .colors = true };
			unsigned lines = 0, column = 0;
			const char *last;

			draw(good, &colored); /* ends with a whole line, the table's head with its sequences or without them */
			last = strrchr(rc_buf_cstr(&drawn), '\033');
			CHECK(drawn.p[drawn.n - 1] == '\n');
			CHECK(!last || strncmp(last, "\033[0m\n", 5) == 0);

			for (const char *p = draw(good, &view); *p; p++) {
				column = *p == '\n' ? 0 : column + 1;
				lines += *p == '\n';
				CHECK(column <= width);
			}
			CHECK(lines <= height);
		}
}

static void scrolls(void)
{
	rc_top_view view = { .width = 100, .height = 8, .first = 1000 }; /* seven lines stand above the processes */

	CHECK(strstr(draw(good, &view), "     11 ") != NULL);
	CHECK(strstr(draw(good, &view), "     12 ") == NULL);
	CHECK_EQ_INT(1, view.first);
	view = (rc_top_view){ .width = 100, .height = 9, .first = 1 };
	CHECK(strstr(draw(good, &view), "     12 ") != NULL);
	CHECK_EQ_INT(0, view.first);
	view.help = true;
	CHECK(strstr(draw(good, &view), "  q  leave") != NULL);
	CHECK(strstr(draw(good, &view), "    PID") == NULL);
}

/* Titles and names are other people's text. */
static void hostile(void)
{
	rc_top_view view = { .width = 120 };
	const char *text = draw("{\"host\": \"a\\u001b[2Jb\\u009bc\\u007f\\n\xc3\xa4\", \"nodes\": [{\"node_id\": 5, \"workers\": {\"pid\": 1}, \"total\":"
	                        "{\"CPU\": -1}}, 7, {\"workers\": [1, {\"title\": \"\\r\\u0007\", \"pid\": -5, \"rss\": 1e300, \"lease\": []}]}], \"gpus\": [[]]}",
	                        &view);

	CHECK(strstr(text, "a?[2Jb?c??\xc3\xa4") != NULL);
	for (const char *p = text; *p; p++)
		CHECK((unsigned char)*p >= 32 || *p == '\n');
	CHECK(strstr(draw("[]", &view), "no Ray worker node") != NULL);
	CHECK(strstr(draw("{\"error\": \"why\"}", &view), "\nwhy\n") != NULL);
	CHECK(strstr(draw("{\"nodes\": [{\"error\": \"not told\"}]}", &view), "  not told\n") != NULL);
	CHECK(strstr(draw("{\"nodes\": [{\"daemon\": \"ray\"}]}", &view), "Ray's own daemon") != NULL);
}

int main(void)
{
	RUN(all_of_it, "everything is shown, sorted");
	RUN(fits, "no line is wider, nothing is higher than the window");
	RUN(scrolls, "scrolling ends where the processes end");
	RUN(hostile, "control characters and values of other types do no harm");
	rc_buf_free(&drawn);
	return test_end();
}
