/* Collectives over shared memory: data. */
#include "train_backend/comm/test/data.h"

int main(void)
{
	ranks_start();
	run_data();
	return test_end();
}
