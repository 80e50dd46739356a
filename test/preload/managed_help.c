// SPDX-License-Identifier: Apache-2.0
#include "test/preload/managed_help.h"
#include "test/test.h"

CUcontext contexts[N];

void run_part(const char *const *settings, void (*part)(void))
{
	folder_clear(); /* what the one before has left is not looked at */
	child_passes(settings, part);
}

void start_gpus(void)
{
	for (int d = N; d--;)
		contexts[d] = driver_start(d);
}

void on_gpu(int device)
{
	MUST(cu.cuCtxSetCurrent(contexts[device]));
}

CUdeviceptr new_on(int device, size_t bytes)
{
	on_gpu(device);
	CUdeviceptr block = child_alloc(bytes);
	bool managed = driver_attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, block);
	CHECK(managed == (bytes >= MIB) && driver_is_heap(block) == (bytes < MIB));
	return block;
}

void fill_on(int device, CUdeviceptr block, unsigned value)
{
	on_gpu(device);
	MUST(driver_fill(NULL, block, value, BYTES / 4));
	MUST(cu.cuCtxSynchronize());
}

void holds_everywhere(CUdeviceptr block, unsigned value)
{
	for (int d = 0; d < N; d++) {
		CUdeviceptr copy = new_on(d, BYTES);

		MUST(driver_copy(NULL, copy, block, BYTES / 4));
		CHECK(driver_holds(copy, value, BYTES / 4));
		MUST(cu.cuMemFree_v2(copy));
		CHECK(driver_holds(block, value, BYTES / 4));
	}
	for (size_t i = 0; i < BYTES / 4; i++)
		CHECK(home_words(block)[i] == value);
}

void end_gpus(void)
{
	for (int d = 0; d < N; d++) {
		on_gpu(d);
		MUST(cu.cuCtxSynchronize());
		CHECK(sim_managed_of(d).resident == 0);
	}
	CHECK(sim_live().allocations == 0 && sim_broken_rules() == 0);
}

int range_attribute(CUdeviceptr block, CUmem_range_attribute which)
{
	int value = 77;

	MUST(cuMemRangeGetAttribute(&value, sizeof(value), which, block, BYTES));
	return value;
}
