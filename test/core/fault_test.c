// SPDX-License-Identifier: Apache-2.0
/*
 * fault_test.c: one scenario, run again and again, each time with the next driver call failing, until it passes without
 * the failure having happened. Each run is a process of its own, so that a failure while the heap is being made counts
 * too. Whatever fails: the program gets that error or its memory, and in the end nothing is left anywhere.
 */
#include "test/core/core.h"
#include "test/ledger_check.h"

#include "shim/lifecycle/lifecycle.h"
#include "shim/serve/deferred_free.h"
#include "shim/stats/stats.h"

enum { PASSED_UNHURT = 42, PASSED_HURT = 43 };

static const char *const settings[] = {
    "SIM_MEMORY=256MiB",
    "SIM_FILL=0", /* nothing reads memory it has not written; filling it costs most of the time */
    "SIM_LARGE=0",
    "SPILLWAY_SET=device.budget=40MiB,host.budget=48MiB,report.summary=no",
    NULL,
};

static CUresult ordered;

static void check_result(CUresult result)
{
	CHECK(result == CUDA_SUCCESS || result == ordered);
}

/* With part of the machinery refused there may be no memory for it: out of memory is an honest answer too. */
static void check_refusal(CUresult result)
{
	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		check_result(result);
}

static CUdeviceptr alloc(size_t bytes)
{
	CUdeviceptr address = 0;
	CUresult result = cuMemAlloc_v2(&address, bytes);

	check_refusal(result);
	CHECK((result == CUDA_SUCCESS) == (address != 0));
	/* What we were given works, wherever it lies. */
	if (address) {
		core_fill(address, bytes, bytes);
		CHECK(core_is_filled(address, bytes, bytes));
	}
	return address;
}

static CUdeviceptr alloc_pitch(void)
{
	CUdeviceptr address = 0;
	size_t pitch = 0;
	CUresult result = cuMemAllocPitch_v2(&address, &pitch, 1000, 1000, 4);

	check_refusal(result);
	CHECK((result == CUDA_SUCCESS) == (address != 0));
	CHECK(!address || (pitch >= 1000 && pitch % 512 == 0));
	return address;
}

/* A free that failed may be tried again: it has happened already (then we say so), or it happens now. */
static void give(CUdeviceptr address)
{
	if (!address)
		return;
	CUresult result = cuMemFree_v2(address);
	check_result(result);
	if (result != CUDA_SUCCESS) {
		result = cuMemFree_v2(address);
		CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_VALUE);
	}
}

static void give_behind_stream(CUdeviceptr address, CUstream stream)
{
	if (!address)
		return;
	CUresult result = cuMemFreeAsync(address, stream);
	/* Memory of the driver's, passed through: cuMemFreeAsync may not take it. Then it is freed as it came. */
	if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED) {
		give(address);
		return;
	}
	check_result(result);
	if (result != CUDA_SUCCESS)
		cuMemFree_v2(address);
}

static void scenario(CUcontext other, CUstream stream)
{
	CUcontext first = NULL;
	CUdeviceptr small = alloc(4000), large = alloc(20 * MIB), spilled = alloc(40 * MIB), pitched = alloc_pitch();
	CUdeviceptr behind = alloc(3 * MIB);

	give(spilled);
	spilled = alloc(30 * MIB);
	give(small);
	give_behind_stream(behind, stream);
	CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
	give(alloc(5000)); /* looks at what has passed */
	/* Freed while another context is current. */
	CHECK(cuCtxGetCurrent(&first) == CUDA_SUCCESS && cuCtxSetCurrent(other) == CUDA_SUCCESS);
	give(pitched);
	CHECK(cuCtxSetCurrent(first) == CUDA_SUCCESS);
	give(large);
	give(spilled);
}

static void nothing_is_left(const struct sim_live *before)
{
	struct device *device = device_get(0);
	struct heap *heap = device ? atomic_load(&device->heap) : NULL;

	core_drain();
	CHECK(ledger_n_rows() == 0 && ledger_is_valid());
	if (heap) {
		CHECK(heap_is_valid(heap));
		heap_trim(heap, 0, 0);
		CHECK(heap_is_valid(heap));
	}
	/* After trimming: memory the driver would not unmap at first counts as in use until it does. */
	for (int place = 0; place < PLACE_COUNT; place++)
		CHECK(stats_live((enum place)place) == 0);
	CHECK(!device || (device->budget.used == 0 && host_budget.used == 0));
	struct sim_live live = sim_live();
	live.reservations -= heap != NULL;
	if (memcmp(&live, before, sizeof(live)) != 0) {
		sim_leaks(stdout);
		CHECK(!"the model holds what it did not hold before");
	}
	CHECK(sim_broken_rules() == 0);
}

/* The n-th call of name fails, or of any memory call when name is NULL. */
struct order {
	const char *name;
	unsigned n;
};

static void place_order(const struct order *order, unsigned n)
{
	if (order->name)
		sim_fail(order->name, n, ordered);
	else
		sim_fail_any(n, ordered);
}

/* In a child. */
static int run_one(void *argument)
{
	const struct order *order = argument;
	CUcontext other;

	core_driver();
	CHECK(lifecycle_start() == STAGE_RUNNING);
	CUcontext first = core_current();
	CHECK(cuCtxCreate_v2(&other, 0, 0) == CUDA_SUCCESS && cuCtxSetCurrent(first) == CUDA_SUCCESS);
	CUstream stream = core_stream();
	struct sim_live before = sim_live();
	place_order(order, order->n);
	scenario(other, stream);
	bool unhurt = sim_fail_pending();
	place_order(order, 0);
	nothing_is_left(&before);
	return unhurt ? PASSED_UNHURT : PASSED_HURT;
}

/* n = 1, 2, 3 ... until the scenario is over before the n-th call. */
static void fail_each(const char *name, CUresult error)
{
	struct order order = {.name = name};
	int status = PASSED_HURT;

	ordered = error;
	while (status == PASSED_HURT && ++order.n < 1000)
		status = core_in_child(settings, run_one, &order);
	if (status != PASSED_UNHURT)
		fail_msg("call %u of %s failing with %d", order.n, name ? name : "any", error);
	print_message("%s: %u calls failed one by one\n", name ? name : "any memory call", order.n - 1);
}

TEST(any_memory_call_may_fail)
{
	fail_each(NULL, CUDA_ERROR_OUT_OF_MEMORY);
	fail_each(NULL, CUDA_ERROR_UNKNOWN);
	fail_each(NULL, CUDA_ERROR_NOT_SUPPORTED);
}

TEST(each_call_by_name_may_fail)
{
	static const char *const names[] = {
	    "cuMemCreate",         "cuMemMap",
	    "cuMemSetAccess",      "cuMemUnmap",
	    "cuMemRelease",        "cuMemAddressReserve",
	    "cuMemGetInfo_v2",     "cuMemGetAllocationGranularity",
	    "cuDeviceTotalMem_v2", "cuDeviceGetAttribute",
	    "cuCtxSynchronize",    "cuCtxGetDevice",
	    "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
	    "cuEventCreate",       "cuEventRecord",
	    "cuEventQuery",        "cuEventDestroy_v2",
	    "cuStreamGetCtx",      "cuThreadExchangeStreamCaptureMode",
	    "cuCtxRecordEvent",    "cuCtxGetStreamPriorityRange",
	};

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		fail_each(names[i], CUDA_ERROR_UNKNOWN);
}
