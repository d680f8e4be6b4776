/* Words of the small subcommands, and the head's address. */
#include "raylet-c/cli/words.h"

#include <stdlib.h>
#include <unistd.h>

#include "raylet-c/base/test.h"
#include "raylet-c/cli/address.h"

static const char *value;
static bool is_there;
static rc_error error;
static const rc_word table[] = { { "--value", &value, NULL }, { "-s", NULL, &is_there }, { NULL, NULL, NULL } };

#define READ(...) rc_words_read(table, (int)(sizeof(char *[]){ __VA_ARGS__ } / sizeof(char *)), (char *[]){ __VA_ARGS__ }, &error)

static void words(void)
{
	int64_t n = 0;

	CHECK_EQ_INT(0, READ("--value", "x", "-s"));
	CHECK_STR("x", value);
	CHECK(is_there);
	CHECK_EQ_INT(0, READ("--value=a=b"));
	CHECK_STR("a=b", value);
	CHECK_EQ_INT(-1, READ("--values=x"));
	CHECK_STR("No such option: --values", error.text);
	CHECK_EQ_INT(-1, READ("--value"));
	CHECK_STR("--value needs a value", error.text);
	CHECK_EQ_INT(-1, READ("-s=1"));
	CHECK_STR("-s takes no value", error.text);
	CHECK_EQ_INT(0, rc_word_number("--n", "12", 0, 12, &n, &error));
	CHECK_EQ_INT(12, n);
	static const char *const bad[] = { "13", "-1", "", "1x", "99999999999999999999" };
	for (size_t i = 0; i < 5; i++)
		CHECK_EQ_INT(-1, rc_word_number("--n", bad[i], 0, 12, &n, &error));
	CHECK_EQ_INT(12, n);
}

static void addresses(void)
{
	char host[256];
	int port = 0;

	CHECK_EQ_INT(0, rc_address_split("head.ns.svc:6379", host, &port, &error));
	CHECK_STR("head.ns.svc", host);
	CHECK_EQ_INT(6379, port);
	CHECK_EQ_INT(0, rc_address_split("[::1]:80", host, &port, &error));
	CHECK_STR("::1", host);
	static const char *const bad[] = { "h", "h:", ":1", "h:0", "h:65536", "h:1x", "" };
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		CHECK_EQ_INT(-1, rc_address_split(bad[i], host, &port, &error));
}

static void found(void)
{
	char top[] = "/tmp/raylet-c-test-XXXXXX", address[256], path[64];
	FILE *f;

	CHECK(mkdtemp(top) != NULL);
	setenv("RAY_TMPDIR", top, 1);
	unsetenv("RAY_ADDRESS");
	CHECK_EQ_INT(-1, rc_address_auto(address, &error));
	CHECK(strstr(error.text, top) != NULL);
	snprintf(path, sizeof path, "mkdir %s/ray", top);
	CHECK_EQ_INT(0, system(path));
	snprintf(path, sizeof path, "%s/ray/ray_current_cluster", top);
	f = fopen(path, "w");
	CHECK(f != NULL && fputs("h:1\n", f) >= 0);
	fclose(f);
	CHECK_EQ_INT(0, rc_address_auto(address, &error));
	CHECK_STR("h:1", address);
	setenv("RAY_ADDRESS", "g:2", 1);
	CHECK_EQ_INT(0, rc_address_auto(address, &error));
	CHECK_STR("g:2", address);
	snprintf(path, sizeof path, "rm -r %s", top);
	CHECK_EQ_INT(0, system(path));
}

int main(void)
{
	RUN(words, "switches and values are read in both spellings, and what is wrong is named");
	RUN(addresses, "an address is taken apart, IPv6 too");
	RUN(found, "the address is that of RAY_ADDRESS, else of the last cluster of this host");
	return test_end();
}
