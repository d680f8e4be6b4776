/* The driver's functions where there is no GPU: what is missing is said. */
#include "raylet-c/base/test.h"
#include "train_backend/device/cuda.h"

static void says_what_is_missing(void)
{
	rc_error error = {0};
	rc_stream stream = NULL;

	if (!rc_cuda_open(0, &error)) {
		printf("# a device is there: nothing is missing\n");
		CHECK(!rc_cuda_enter(0, &error));
		return;
	}
	CHECK_EQ_INT(RC_E_UNAVAILABLE, error.code);
	CHECK(strstr(error.text, "CUDA driver") != NULL);
	printf("# %s\n", error.text);
	CHECK_EQ_INT(-1, rc_cuda_stream_create(0, &stream, &error));
	CHECK(strstr(error.text, "before the driver was opened") != NULL);
	CHECK_EQ_INT(-1, rc_cuda_event_done(NULL, &error));
}

static void refuses_a_device_that_was_not_opened(void)
{
	rc_error error = {0};

	CHECK_EQ_INT(-1, rc_cuda_enter(63, &error));
	CHECK_EQ_INT(RC_E_INVALID, error.code);
	CHECK_EQ_INT(-1, rc_cuda_enter(-1, &error));
	CHECK_EQ_INT(-1, rc_cuda_enter(1 << 20, &error));
}

static void freeing_nothing_is_allowed(void)
{
	CHECK_EQ_INT(0, rc_cuda_free(NULL, NULL));
	CHECK_EQ_INT(0, rc_cuda_stream_destroy(NULL, NULL));
	CHECK_EQ_INT(0, rc_cuda_event_destroy(NULL, NULL));
	CHECK_EQ_INT(0, rc_cuda_module_unload(NULL, NULL));
}

int main(void)
{
	RUN(says_what_is_missing, "a host without a driver is told what is missing");
	RUN(refuses_a_device_that_was_not_opened, "a device that was not opened cannot be entered");
	RUN(freeing_nothing_is_allowed, "freeing nothing is allowed");
	return test_end();
}
