/* Which command lines run Ray's own raylet. */
#include "raylet-c/node/stock.h"

#include "raylet-c/base/test.h"

#define ASKED(env, ...) rc_stock_asked((int)(sizeof(char *[]){ __VA_ARGS__ } / sizeof(char *)), (char *[]){ __VA_ARGS__ }, env)

static void head(void)
{
	CHECK_STR("--head", ASKED(NULL, "raylet", "--node_id=ab", "--head"));
	CHECK_STR("--head", ASKED("1", "raylet", "-head"));
	CHECK_STR("--head", ASKED(NULL, "raylet", "--head=true"));
	CHECK(ASKED(NULL, "raylet", "--head=false") == NULL);
	CHECK(ASKED(NULL, "raylet", "--head", "--nohead") == NULL);
	CHECK(ASKED(NULL, "raylet", "--header", "--dashboard_agent_command=python agent.py --head") == NULL);
	CHECK(ASKED(NULL, "raylet", "--", "--head") == NULL);
	CHECK(ASKED(NULL, "raylet", "head") == NULL);
}

static void environment(void)
{
	CHECK_STR("RAYLET_C=0", ASKED("0", "raylet", "--node_id=ab"));
	CHECK(ASKED("", "raylet") == NULL);
	CHECK(ASKED("fsdp,worker", "raylet") == NULL);
	CHECK(ASKED(NULL, "raylet") == NULL);
}

int main(void)
{
	RUN(head, "--head among the raylet's own arguments runs the stock daemon, inside an agent's command it does not");
	RUN(environment, "RAYLET_C=0 runs the stock daemon, other values do not");
	return test_end();
}
