// SPDX-License-Identifier: Apache-2.0
/*
 * system_test.c: pages of the process for a program that asked for device memory (backend.c): on a device that
 * reaches them, and registered on one that does not; what they answer, what hints do, and how they end.
 */
#include "test/core/home.h"

#include <sys/syscall.h>

static void pageable(bool on)
{
	sim_switch("PAGEABLE", on);
	device_get(0)->pageable = on;
}

static int tear_down(void **state)
{
	pageable(false);
	return home_tear_down(state);
}

static const struct policy_system plain = {.numa_node = POLICY_NODE_AUTO};
static const struct policy_system registering = {.register_pages = true, .numa_node = POLICY_NODE_AUTO};

static CUdeviceptr system_memory(size_t bytes, const struct policy_system *settings)
{
	const struct policy_decision decision = {.system = settings ? settings : &plain};

	return home_get(&backend_system, &(struct backend_request){.bytes = bytes, .decision = &decision});
}

/* Linked in place of sysconf(): what the system under test is told of its pages. 0: the truth. */
static long told_page;
long __real_sysconf(int name);
long __wrap_sysconf(int name);
long __wrap_sysconf(int name)
{
	return name == _SC_PAGESIZE && told_page ? told_page : __real_sysconf(name);
}

/* Linked in place of syscall(): remembers the node that was asked for last, -1: none. */
static int asked_node = -1;
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
	long with[6];
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		with[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_mbind)
		for (int node = 0; node < 1024; node++)
			if (((const unsigned long *)with[3])[node / 64] >> node % 64 & 1)
				asked_node = node;
	return __real_syscall(number, with[0], with[1], with[2], with[3], with[4], with[5]);
}

static bool is_mapped(CUdeviceptr address)
{
	CUdeviceptr page = (CUdeviceptr)__real_sysconf(_SC_PAGESIZE);
	unsigned char in_core;

	return mincore((void *)(uintptr_t)(address & ~(page - 1)), page, &in_core) == 0;
}

TEST(there_is_none_where_the_device_does_not_reach_it)
{
	struct backend_request request = {.bytes = MIB, .decision = &(struct policy_decision){.system = &plain}};
	CUdeviceptr at = 4711;

	assert_int_equal(home_alloc(&backend_system, &request, &at), SW_NOT_SUPPORTED);
	assert_int_equal(at, 4711);
}

static void use_it(CUdeviceptr at)
{
	uint32_t word = 5;

	assert_int_equal(stats_live(PLACE_SYSTEM), MIB);
	assert_ok(home_fill(at, 7, MIB / 4, NULL));
	assert_ok(cuCtxSynchronize());
	assert_true(home_holds(at, 7, MIB / 4));
	assert_ok(cuMemcpyHtoD_v2(at + 4, &word, 4));
	assert_ok(cuMemsetD32_v2(at + 8, 9, 10));
	CUdeviceptr other = core_alloc(MIB);
	assert_ok(cuMemcpyDtoD_v2(other, at, MIB));
	assert_ok(cuMemsetD8_v2(at, 0, MIB));
	assert_ok(cuMemcpyDtoD_v2(at, other, MIB));
	assert_ok(cuCtxSynchronize());
	assert_ok(cuMemcpyDtoH_v2(&word, at + 12, 4));
	assert_int_equal(word, 9);
	assert_int_equal(((uint32_t *)(uintptr_t)at)[1], 5);
	assert_int_equal(((uint32_t *)(uintptr_t)at)[100], 7);
	assert_ok(cuMemFree_v2(other));
	assert_ok(cuMemFree_v2(at));
	assert_false(is_mapped(at));
	assert_int_equal(stats_live(PLACE_SYSTEM), 0);
}

TEST(a_device_that_reaches_it_uses_it)
{
	unsigned long calls = sim_calls("cuMemHostRegister_v2");

	pageable(true);
	use_it(system_memory(MIB, NULL));
	use_it(system_memory(MIB, &registering)); /* not needed, not done */
	assert_int_equal(sim_calls("cuMemHostRegister_v2"), calls);
}

TEST(registered_it_can_be_used_elsewhere)
{
	unsigned long calls = sim_calls("cuMemHostUnregister");

	use_it(system_memory(MIB, &registering));
	assert_int_equal(sim_calls("cuMemHostUnregister"), calls + 1);
}

/* Of whatever size: the host budget pays for all that is pinned. */
TEST(whole_pages_are_registered_and_charged)
{
	uint64_t used = atomic_load(&host_budget.used);

	told_page = 65536;
	CUdeviceptr at = system_memory(1000, &registering);
	told_page = 0;
	assert_int_equal(atomic_load(&host_budget.used) - used, 65536);
	assert_ok(cuMemFree_v2(at));
	assert_int_equal(atomic_load(&host_budget.used), used);
}

TEST(what_cannot_be_registered_leaves_nothing_behind)
{
	struct backend_request request = {.bytes = MIB, .decision = &(struct policy_decision){.system = &registering}};
	CUdeviceptr at = 4711;

	sim_fail("cuMemHostRegister_v2", 1, CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(home_alloc(&backend_system, &request, &at), SW_NO_MEMORY);
	sim_fail("cuMemHostGetDevicePointer_v2", 1, CUDA_ERROR_UNKNOWN);
	assert_int_equal(home_alloc(&backend_system, &request, &at), SW_NOT_SUPPORTED);
	sim_switch("SAME_POINTER", 0);
	assert_int_equal(home_alloc(&backend_system, &request, &at), SW_NOT_SUPPORTED);
	sim_switch("SAME_POINTER", 1);
	request.bytes = SIZE_MAX - 100;
	assert_int_equal(home_alloc(&backend_system, &request, &at), SW_NO_MEMORY);
	request.bytes = (size_t)1 << 60;
	assert_int_equal(home_alloc(&backend_system, &request, &at), SW_NO_MEMORY);
	assert_int_equal(at, 4711);
}

TEST(huge_pages_and_a_node_are_asked_for)
{
	struct policy_system settings = {.huge_pages = true, .numa_node = 0};
	int nearest = device_get(0)->node;

	pageable(true);
	CUdeviceptr at = system_memory(3 * MIB, &settings);
	assert_int_equal(at % (2 * MIB), 0);
	assert_true(is_mapped(at + 4 * MIB - 1));
	memset((void *)(uintptr_t)at, 1, 3 * MIB);
	assert_ok(cuMemFree_v2(at));
	assert_false(is_mapped(at) || is_mapped(at + 2 * MIB));
	assert_int_equal(asked_node, 0);
	settings.numa_node = 1000; /* a hint, like the other */
	at = system_memory(3 * MIB, &settings);
	assert_ok(cuMemFree_v2(at));
	assert_int_equal(asked_node, 1000);
	/* What the policy leaves open: the nearest node. */
	settings.numa_node = POLICY_NODE_AUTO;
	device_get(0)->node = 7;
	at = system_memory(3 * MIB, &settings);
	assert_ok(cuMemFree_v2(at));
	assert_int_equal(asked_node, 7);
	device_get(0)->node = nearest;
}

/* ---- answers ---- */

static void answers(CUdeviceptr at)
{
	CUdeviceptr base, pointers[2];
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
	void *data[] = {&pointers[0], &pointers[1]};
	unsigned on = 1;
	CUipcMemHandle handle;
	CUcontext context;
	size_t bytes;

	assert_int_equal(home_ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 5000), CU_MEMORYTYPE_DEVICE);
	assert_int_equal(home_ask(CU_POINTER_ATTRIBUTE_IS_MANAGED, at), 0);
	assert_int_equal(home_ask(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at), 0);
	assert_ok(cuPointerGetAttributes(2, which, data, at + 5000));
	assert_int_equal(pointers[0], at + 5000);
	assert_int_equal(pointers[1], at + 5000);
	assert_ok(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, at));
	assert_ptr_equal(context, context_current());
	assert_ok(cuMemGetAddressRange_v2(&base, &bytes, at + 5000));
	assert_int_equal(base, at);
	assert_int_equal(bytes, 10000);
	assert_ok(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at + 8));
	assert_int_equal(home_ask(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at), 1);
	assert_int_equal(cuIpcGetMemHandle(&handle, at), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemFree_v2(at + 4096), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemFreeAsync(at + 4096, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_ok(cuMemFree_v2(at));
	assert_int_equal(ledger_n_sync_memops(), 0);
	assert_int_equal(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, at), CUDA_ERROR_NOT_FOUND);
}

TEST(it_answers_as_device_memory_with_a_host_pointer)
{
	answers(system_memory(10000, &registering));
	pageable(true);
	answers(system_memory(10000, NULL));
}

TEST(hints_are_taken_where_the_driver_does_not_take_them)
{
	const CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, none = {0};
	CUdeviceptr at = system_memory(10000, &registering);
	unsigned long calls = sim_calls("cuMemPrefetchAsync_v2");

	assert_ok(cuMemPrefetchAsync_v2(at, 10000, device, 0, NULL));
	assert_ok(cuMemAdvise_v2(at + 5, 9995, CU_MEM_ADVISE_SET_READ_MOSTLY, device));
	assert_int_equal(sim_calls("cuMemPrefetchAsync_v2"), calls);
	assert_int_equal(cuMemPrefetchAsync_v2(at, 10001, device, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemPrefetchAsync_v2(at, 10000, none, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_ok(cuMemFree_v2(at));
	pageable(true);
	at = system_memory(10000, NULL);
	assert_ok(cuMemPrefetchAsync_v2(at, 10000, device, 0, NULL));
	assert_ok(cuMemAdvise_v2(at, 10000, CU_MEM_ADVISE_SET_READ_MOSTLY, device));
	assert_int_equal(sim_calls("cuMemPrefetchAsync_v2"), calls + 1);
	assert_ok(cuMemFree_v2(at));
}

/* ---- freeing ---- */

TEST(a_free_waits_for_work_submitted_before)
{
	CUstream stream = home_stream();

	pageable(true);
	CUdeviceptr at = system_memory(MIB, NULL);
	assert_ok(home_fill_slowly(at, 3, MIB / 4, stream)); /* would write to nothing, and end the process */
	assert_ok(cuMemFree_v2(at));
	assert_int_equal(cuStreamQuery(stream), CUDA_SUCCESS);
	assert_ok(cuStreamDestroy_v2(stream));
}

TEST(a_free_behind_a_stream_waits_for_it_and_not_the_program)
{
	CUdeviceptr at = system_memory(MIB, &registering);
	CUstream stream = home_stream();

	sim_hold();
	assert_ok(home_fill(at, 3, MIB / 4, stream));
	assert_ok(cuMemFreeAsync(at, stream));
	deferred_free_reap(0);
	assert_true(is_mapped(at));
	sim_release();
	assert_ok(cuStreamSynchronize(stream));
	core_drain();
	assert_false(is_mapped(at));
	assert_ok(cuStreamDestroy_v2(stream));
}

TEST(a_free_in_a_capture_is_put_off_and_harms_it_not)
{
	CUdeviceptr at = system_memory(MIB, &registering);
	CUstream stream = home_capture();

	assert_ok(cuMemFree_v2(at));
	deferred_free_reap(0);
	assert_true(is_mapped(at));
	home_end_capture(stream);
	assert_false(is_mapped(at));
}

TEST(with_its_context_it_is_gone)
{
	CUcontext first = core_current(), second = core_new_context();
	CUdeviceptr at = system_memory(MIB, &registering);
	unsigned long calls = sim_calls("cuMemHostUnregister");
	assert_ok(cuCtxDestroy_v2(second));
	assert_false(is_mapped(at));
	assert_int_equal(sim_calls("cuMemHostUnregister"), calls);
	assert_ok(cuCtxSetCurrent(first));
}

EACH_TEST(home_set_up, tear_down)

START(home_start())
