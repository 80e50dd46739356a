/*
 * async_policy_test.c: `async.use: heap` in the policy brings memory in stream order into the heap, and its rules decide
 * about it like about any other; nothing else is switched on here. What becomes of it there: async_test.c.
 */
#include "test/core/async_help.h"

#include "shim/device.h"

static void the_policy_sends_memory_in_stream_order_to_the_heap(void **state)
{
	CUstream stream = async_stream();
	CUdeviceptr address = async_get(4 * MIB, stream);

	(void)state;
	assert_non_null(device_of(address));
	assert_ok(cuMemFreeAsync(address, stream));
	assert_ok(cuStreamSynchronize(stream));
	assert_ok(cuStreamDestroy_v2(stream));
}

static void a_rule_about_it_is_heard(void **state)
{
	CUstream stream = async_stream();
	CUdeviceptr address = async_get(2 * MIB, stream);

	(void)state;
	assert_null(device_of(address)); /* the rule's: small ones stay with the driver */
	assert_ok(cuMemFreeAsync(address, stream));
	assert_ok(cuStreamSynchronize(stream));
	assert_ok(cuStreamDestroy_v2(stream));
}

int main(void)
{
	static const char *const settings[] = {
	    "SIM_MEMORY=256MiB",
	    "SPILLWAY_POLICY=" ASYNC_POLICY,
	    NULL,
	};
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_policy_sends_memory_in_stream_order_to_the_heap),
	    cmocka_unit_test(a_rule_about_it_is_heard),
	};
	core_start(settings);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
