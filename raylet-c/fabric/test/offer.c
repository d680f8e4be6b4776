/* The order of providers and the choice between two machines, on descriptions; the search on this machine's libfabric. */
#include "raylet-c/fabric/offer.h"

#include "raylet-c/base/test.h"

static rc_fabric_offer offer(const char *provider, const char *place, uint32_t version)
{
	rc_fabric_offer o = { .protocol = 1, .protocol_version = version, .read = true };

	snprintf(o.provider, sizeof o.provider, "%s", provider);
	snprintf(o.place, sizeof o.place, "%s", place);
	return o;
}

static void order(void)
{
	CHECK_EQ_INT(0, rc_fabric_rank("shm"));
	CHECK(rc_fabric_rank("efa") < rc_fabric_rank("tcp"));
	CHECK(rc_fabric_rank("tcp") < rc_fabric_rank("net"));
	CHECK(rc_fabric_rank("net") < rc_fabric_rank("sockets"));
	CHECK_EQ_INT(-1, rc_fabric_rank("tcp;ofi_rxm"));
	CHECK_EQ_INT(-1, rc_fabric_rank("psm2"));
}

static void names(void)
{
	size_t at = 99;

	CHECK(rc_fabric_wanted(NULL, "efa", &at));
	CHECK_EQ_INT(1, at);
	CHECK(rc_fabric_wanted("auto", "sockets", NULL));
	CHECK(!rc_fabric_wanted("auto", "udp", NULL));
	CHECK(!rc_fabric_wanted("off", "tcp", NULL));
	CHECK(rc_fabric_wanted("sockets,tcp", "tcp", &at));
	CHECK_EQ_INT(1, at);
	CHECK(rc_fabric_wanted("sockets, tcp", "sockets", &at));
	CHECK_EQ_INT(0, at);
	CHECK(!rc_fabric_wanted("tc", "tcp", NULL));
}

static void choice(void)
{
	rc_fabric_offer mine[] = { offer("shm", "here", 1), offer("efa", "", 4), offer("tcp", "", 1) };
	rc_fabric_offer near[] = { offer("tcp", "", 1), offer("shm", "here", 1) }, far[] = { offer("shm", "there", 1), offer("tcp", "", 1) };
	rc_fabric_offer efa[] = { offer("tcp", "", 1), offer("efa", "", 4) }, old[] = { offer("efa", "", 3), offer("net", "", 1) };

	CHECK_EQ_INT(0, rc_fabric_choose(mine, 3, near, 2));
	CHECK_EQ_INT(2, rc_fabric_choose(mine, 3, far, 2));
	CHECK_EQ_INT(1, rc_fabric_choose(mine, 3, efa, 2));
	CHECK_EQ_INT(-1, rc_fabric_choose(mine, 3, old, 2));
	CHECK_EQ_INT(-1, rc_fabric_choose(mine, 3, near, 0));
	mine[1].read = false;
	CHECK_EQ_INT(2, rc_fabric_choose(mine, 3, efa, 2));
}

static void search(void)
{
	rc_error e;
	rc_fabric_library *l = rc_fabric_library_open(NULL, &e);
	rc_fabric_offer found[RC_FABRIC_MAX_OFFERS];
	rc_fabric_settings s = { .providers = "sockets,shm,tcp,net", .ip = "127.0.0.1" };
	unsigned major, minor;
	size_t n;

	CHECK(l != NULL);
	if (!l) {
		printf("# %s\n", e.text);
		return;
	}
	rc_fabric_library_version(l, &major, &minor);
	n = rc_fabric_offers(l, &s, found, &e);
	printf("# %s %u.%u:", rc_fabric_library_path(l), major, minor);
	for (size_t i = 0; i < n; i++)
		printf(" %s", found[i].provider);
	printf("\n");
	CHECK(n >= 2 && strcmp(found[0].provider, "sockets") == 0 && strcmp(found[1].provider, "shm") == 0);
	for (size_t i = 0; i < n; i++)
		CHECK_EQ_INT(strcmp(found[i].provider, "shm") == 0, found[i].place[0] != '\0');
	s.providers = "off";
	CHECK_EQ_INT(0, rc_fabric_offers(l, &s, found, &e));
	CHECK(strstr(e.text, "RAYLET_C_FABRIC=off") != NULL);
	rc_fabric_library_close(l);
	CHECK(!rc_fabric_library_open("/nowhere/libfabric.so", &e));
	CHECK(strstr(e.text, "/nowhere/libfabric.so") != NULL);
	CHECK(!rc_fabric_library_open("libc.so.6", &e));
	CHECK(strstr(e.text, "fi_getinfo") != NULL);
}

int main(void)
{
	RUN(order, "memory of the host comes before a device, a device before sockets");
	RUN(names, "a list of names gives its own order");
	RUN(choice, "two machines take the first provider that both have in one protocol and place");
	RUN(search, "the library is found, its providers come in the order asked, and what is missing is named");
	return test_end();
}
