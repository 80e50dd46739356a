// SPDX-License-Identifier: Apache-2.0
/*
 * on_use_reach_test.c: allocations with place: on-use (on_use_test.c) on two devices: a submission that may touch
 * anything takes the memory of the devices that it can reach.
 */
#include "test/preload/on_use_help.h"

#include <dlfcn.h>

#define BYTES (32 * MIB)

/* A kernel whose parameters are not known: the driver does not tell. */
static void launch_unknown(CUdeviceptr small)
{
	sim_fail("cuFuncGetParamInfo", 1, CUDA_ERROR_UNKNOWN);
	MUST(driver_fill(NULL, small, 1, 1));
	CHECK(!sim_fail_pending());
	MUST(cu.cuCtxSynchronize());
}

PART_TEST(a_kernel_of_unknown_arguments_takes_what_its_device_can_reach, setenv("SIM_DEVICES", "2", 1);
	  on_use_run(part); unsetenv("SIM_DEVICES"))
{
	static CUdeviceptr words[1100];
	CUcontext peer = driver_start(1);
	CUdeviceptr far = child_alloc(BYTES), farther;

	driver_start(0);
	CUdeviceptr near = child_alloc(BYTES), small = child_alloc(MIB);

	CHECK(on_use_live(PLACE_UNUSED) == 2 * BYTES);
	launch_unknown(small);
	CHECK(on_use_live(PLACE_UNUSED) == BYTES && on_use_counted(STAT_on_use_whole) == 1);
	on_use_set(near, 2, BYTES);
	CHECK(on_use_live(PLACE_UNUSED) == BYTES);
	MUST(cuCtxEnablePeerAccess(peer, 0));
	launch_unknown(small);
	CHECK(on_use_live(PLACE_UNUSED) == 0 && on_use_counted(STAT_on_use_whole) == 2);
	MUST(cuCtxDisablePeerAccess(peer));
	driver_start(1);
	on_use_set(far, 3, BYTES);
	farther = child_alloc(BYTES);
	driver_start(0);
	/* Pointers that lie in memory may be read on any device. */
	for (unsigned i = 0; i < 1100; i++)
		words[i] = near + i * 4;
	MUST(cu.cuMemcpyHtoD_v2(small, words, sizeof(words)));
	CHECK(on_use_live(PLACE_UNUSED) == 0 && on_use_counted(STAT_on_use_whole) == 3);
	MUST(cu.cuMemFree_v2(farther));
	MUST(cu.cuMemFree_v2(near));
	MUST(cu.cuMemFree_v2(far));
}

/* A function of the driver that no row knows (sim_outside.c), which returns the difference of its arguments. */
static int call_unknown(int a, int b)
{
	void *address = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuBrandNew");
	int (*body)(int, int);

	CHECK(address);
	memcpy(&body, &address, sizeof(body));
	return body(a, b);
}

PART_TEST(a_function_that_no_row_knows_finds_memory_everywhere, on_use_run(part))
{
	CUdeviceptr block = child_alloc(BYTES);

	CHECK(on_use_live(PLACE_UNUSED) == BYTES);
	CHECK(call_unknown(9, 4) == 5);
	CHECK(on_use_live(PLACE_UNUSED) == 0 && on_use_counted(STAT_on_use_whole) == 1);
	/* Without memory for it, the function is not called. */
	CUdeviceptr more[] = {child_alloc(256 * MIB), child_alloc(256 * MIB)};
	CHECK(call_unknown(9, 4) == CUDA_ERROR_OUT_OF_MEMORY);
	MUST(cu.cuMemFree_v2(more[0]));
	MUST(cu.cuMemFree_v2(more[1]));
	CHECK(call_unknown(9, 4) == 5);
	MUST(cu.cuMemFree_v2(block));
}

/*
 * A kernel that is given where its memory ends goes backwards, and one that counts from 1 a little before its memory.
 */
PART_TEST(a_pointer_beside_an_allocation_finds_its_memory, on_use_run(part))
{
	for (int before = 0; before < 2; before++) {
		CUdeviceptr block = child_alloc(BYTES);

		CHECK(on_use_live(PLACE_UNUSED) == BYTES);
		MUST(driver_fill(NULL, before ? block - 4 : block + BYTES, 1, 0));
		CHECK(on_use_live(PLACE_UNUSED) == 0);
		MUST(cu.cuMemFree_v2(block));
	}
}

EACH_TEST(folder_make, folder_remove)
