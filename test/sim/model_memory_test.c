// SPDX-License-Identifier: Apache-2.0
/*
 * model_memory_test.c: what the simulated GPU promises (model.h) about memory: its capacity and its places, who may
 * touch it and what a fault does; and about its controls, look-ups and fork.
 */
#include "model.h"
#include <dlfcn.h>

/* ---- virtual memory management ---- */

TEST(only_what_is_mapped_alike_all_over_leaves_the_process)
{
	CUmemAllocationProp plain = model_on(CU_MEM_LOCATION_TYPE_DEVICE), special = plain;
	CUmemGenericAllocationHandle handles[2];
	CUdeviceptr at;
	int file = -1;

	special.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	special.allocFlags.gpuDirectRDMACapable = 1;
	ok(cuMemAddressReserve(&at, 6 * MIB, 0, 0, 0));
	ok(cuMemCreate(&handles[0], 2 * MIB, &plain, 0));
	ok(cuMemCreate(&handles[1], 2 * MIB, &special, 0));
	ok(cuMemMap(at, 2 * MIB, 0, handles[0], 0));
	ok(cuMemMap(at + 2 * MIB, 2 * MIB, 0, handles[1], 0));
	for (int i = 0; i < 2; i++) {
		ok(cuMemGetHandleForAddressRange(&file, at + i * 2 * MIB, 2 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
						 0));
		assert_int_equal(close(file), 0);
	}
	assert_int_equal(cuMemGetHandleForAddressRange(&file, at, 4 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(
	    cuMemGetHandleForAddressRange(&file, at + 2 * MIB, 4 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
	    CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemExportToShareableHandle(&file, handles[0], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
			 CUDA_ERROR_INVALID_VALUE);
	ok(cuMemExportToShareableHandle(&file, handles[1], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	assert_int_equal(close(file), 0);
	special.location.type = CU_MEM_LOCATION_TYPE_HOST;
	assert_int_equal(cuMemCreate(&handles[0], 2 * MIB, &special, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemUnmap(at, 4 * MIB));
	ok(cuMemAddressFree(at, 6 * MIB));
	ok(cuMemRelease(handles[0]));
	ok(cuMemRelease(handles[1]));
}

TEST(over_capacity_is_out_of_memory)
{
	CUmemAllocationProp prop = model_on(CU_MEM_LOCATION_TYPE_DEVICE);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;
	size_t left, total;

	ok(cuMemGetInfo(&left, &total));
	assert_int_equal(total, 256 * MIB);
	is(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, 258 * MIB, &prop, 0));
	is(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&at, 257 * MIB));
	ok(cuMemAlloc(&at, 200 * MIB));
	is(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, 58 * MIB, &prop, 0));
	ok(cuMemGetInfo(&left, NULL));
	assert_int_equal(left, 56 * MIB);
}

TEST(who_reserves_all_addresses_leaves_the_driver_its_own)
{
	CUdeviceptr at[64];
	size_t bytes[64];
	unsigned n = 0;

	for (size_t most = (size_t)1 << 42; most >= 2 * MIB && n < 64;)
		if (cuMemAddressReserve(&at[n], most, 0, 0, 0) == CUDA_SUCCESS)
			bytes[n++] = most;
		else
			most /= 2;
	assert_true(n > 0 && n < 64);
	CUdeviceptr block = model_alloc(4 * MIB);
	ok(cuMemFree(block));
	while (n--)
		ok(cuMemAddressFree(at[n], bytes[n]));
}

TEST(host_access_is_a_broken_rule)
{
	CUdeviceptr at = model_map_new(CU_MEM_LOCATION_TYPE_HOST, 2 * MIB);
	CUmemAccessDesc desc = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	unsigned long before = sim_broken_rules();

	desc.location.type = CU_MEM_LOCATION_TYPE_HOST;
	ok(cuMemSetAccess(at, 2 * MIB, &desc, 1));
	assert_int_equal(sim_broken_rules(), before + 1);
	model_unmap(at, 2 * MIB);
}

TEST(switched_off_vmm_is_not_supported)
{
	CUmemAllocationProp prop = model_on(CU_MEM_LOCATION_TYPE_HOST);
	CUmemGenericAllocationHandle handle;
	int has;

	sim_switch("HOST_VMM", 0);
	is(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, 2 * MIB, &prop, 0));
	ok(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
	assert_int_equal(has, 0);
	sim_switch("HOST_VMM", 1);
	sim_switch("VMM", 0);
	is(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, 2 * MIB, &prop, 0));
	sim_switch("VMM", 1);
}

/* ---- faults ---- */

TEST(host_access_to_device_memory_faults)
{
	int status;
	CUdeviceptr at = model_alloc(MIB);

	pid_t child = fork();
	if (!child) {
		signal(SIGSEGV, SIG_DFL);
		*(volatile int *)at = 1;
		_exit(0);
	}
	waitpid(child, &status, 0);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

TEST(kernel_on_unmapped_address_kills_the_context)
{
	CUdeviceptr at = model_map_new(CU_MEM_LOCATION_TYPE_DEVICE, 2 * MIB);
	unsigned long before = sim_broken_rules();
	size_t left;

	ok(model_launch_fill(at, 1, 10, 0)); /* mapped, but no access was set */
	is(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	is(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemGetInfo(&left, NULL));
	assert_int_equal(sim_broken_rules(), before + 1);
	model_unmap(at, 2 * MIB);
}

TEST(write_to_read_only_memory_kills_the_context)
{
	CUdeviceptr at = model_map_new(CU_MEM_LOCATION_TYPE_DEVICE, 2 * MIB);

	model_set_access(at, 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READ);
	ok(model_launch_fill(at, 1, 10, 0));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(0));
	model_unmap(at, 2 * MIB);
}

TEST(copy_of_unmapped_memory_is_refused)
{
	char bytes[16] = {0};
	CUdeviceptr at = model_alloc(2 * MIB);

	is(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(at + 2 * MIB, bytes, 16));
	is(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(at + MIB, 0, 2 * MIB));
	ok(cuMemFree(at));
	is(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(bytes, at, 16));
}

TEST(new_memory_is_garbage)
{
	unsigned char byte;
	CUdeviceptr at = model_alloc(4 * MIB);

	assert_true(sim_peek(at + MIB, &byte, 1));
	assert_int_equal(byte, 0xA5);
	ok(cuMemFree(at));
	assert_false(sim_peek(at, &byte, 1));
}

/* ---- controls ---- */

TEST(nth_call_fails_once)
{
	unsigned long before = sim_calls("cuMemAlloc_v2");
	CUdeviceptr b;

	sim_fail("cuMemAlloc_v2", 2, CUDA_ERROR_OUT_OF_MEMORY);
	CUdeviceptr a = model_alloc(16);
	assert_true(sim_fail_pending());
	is(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&b, 16));
	assert_false(sim_fail_pending());
	ok(cuMemAlloc(&b, 16));
	assert_int_equal(sim_calls("cuMemAlloc_v2"), before + 3);
	sim_fail_any(2, CUDA_ERROR_UNKNOWN);
	ok(cuMemFree(a));
	is(CUDA_ERROR_UNKNOWN, cuMemFree(b));
	ok(cuMemFree(b));
}

TEST(resolver_hands_out_exports_by_version)
{
	CUdriverProcAddressQueryResult status;
	void *at;

	ok(cuGetProcAddress("cuGetProcAddress", &at, 11030, 0, &status));
	assert_ptr_equal(at, dlsym(RTLD_DEFAULT, "cuGetProcAddress"));
	ok(cuGetProcAddress("cuGetProcAddress", &at, 12000, 0, NULL));
	assert_ptr_equal(at, dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2"));
	ok(cuGetProcAddress("cuMemPrefetchAsync", &at, 8000, 0, NULL));
	assert_ptr_equal(at, dlsym(RTLD_DEFAULT, "cuMemPrefetchAsync"));
	ok(cuGetProcAddress("cuMemcpyHtoD", &at, 12000, 2, NULL));
	assert_ptr_equal(at, dlsym(RTLD_DEFAULT, "cuMemcpyHtoD_v2_ptds"));
	is(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("", &at, 12000, 0, &status));
	assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

TEST(forked_child_is_not_initialized)
{
	int status;
	pid_t child = fork();
	CUdeviceptr at;

	if (!child)
		_exit(cuMemAlloc(&at, 16) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
	waitpid(child, &status, 0);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(context_takes_its_memory_with_it)
{
	CUcontext other;
	void *host;

	ok(cuCtxCreate(&other, NULL, 0, 0));
	model_alloc(100);
	ok(cuMemHostAlloc(&host, 100, 0));
	assert_int_equal(sim_live().allocations, 2);
	ok(cuCtxDestroy(other));
	assert_int_equal(sim_live().allocations, 0);
}

TEST(pitched_copies_copy_rows)
{
	CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST, .dstMemoryType = CU_MEMORYTYPE_DEVICE};
	unsigned char rows[4][100], got[100];
	CUdeviceptr at;
	size_t pitch;

	for (int i = 0; i < 4; i++)
		memset(rows[i], i + 1, 100);
	ok(cuMemAllocPitch(&at, &pitch, 100, 4, 4));
	copy.srcHost = rows;
	copy.srcPitch = 100;
	copy.dstDevice = at;
	copy.dstPitch = pitch;
	copy.WidthInBytes = 100;
	copy.Height = 4;
	ok(cuMemcpy2D(&copy));
	for (int i = 0; i < 4; i++) {
		ok(cuMemcpyDtoH(got, at + (size_t)i * pitch, 100));
		assert_memory_equal(got, rows[i], 100);
	}
}

EACH_TEST(model_set_up, model_tear_down)
