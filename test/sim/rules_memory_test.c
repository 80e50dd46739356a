// SPDX-License-Identifier: Apache-2.0
/*
 * rules_memory_test.c: the rules about memory (rules.h): handles and mappings, what the driver answers about an
 * address, allocation.
 */
#include "rules.h"

/* ---- handles and mappings ---- */

TEST(granularity_is_two_megabytes)
{
	CUmemAllocationProp prop = rules_at_location(CU_MEM_LOCATION_TYPE_DEVICE);
	CUmemGenericAllocationHandle handle;
	size_t bytes;

	ok(cu.cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	assert_int_equal(bytes, CHUNK);
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemCreate(&handle, CHUNK + 4096, &prop, 0));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemCreate(&handle, 0, &prop, 0));
}

TEST(mapping_part_of_a_handle_is_refused)
{
	CUmemGenericAllocationHandle handle = rules_new_handle(2 * CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	CUdeviceptr at = rules_reserve(2 * CHUNK);

	is(CUDA_ERROR_NOT_SUPPORTED, cu.cuMemMap(at, CHUNK, CHUNK, handle, 0));
	is(CUDA_ERROR_NOT_SUPPORTED, cu.cuMemMap(at, CHUNK, 0, handle, 0));
	is(CUDA_ERROR_NOT_SUPPORTED, cu.cuMemMap(at, 4096, 0, handle, 0));
	ok(cu.cuMemRelease(handle));
	ok(cu.cuMemAddressFree(at, 2 * CHUNK));
}

TEST(mapping_more_than_a_handle_is_refused)
{
	CUmemGenericAllocationHandle handle = rules_new_handle(CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	CUdeviceptr at = rules_reserve(2 * CHUNK);

	is(CUDA_ERROR_NOT_SUPPORTED, cu.cuMemMap(at, 2 * CHUNK, 0, handle, 0));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemMap(at, 0, 0, handle, 0));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemMap(at + 4096, CHUNK, 0, handle, 0));
	ok(cu.cuMemRelease(handle));
	ok(cu.cuMemAddressFree(at, 2 * CHUNK));
}

TEST(hints_and_alignments_are_multiples_and_powers)
{
	CUdeviceptr at;

	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemAddressReserve(&at, CHUNK + MIB, 0, 0, 0));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemAddressReserve(&at, CHUNK, 3 * CHUNK, 0, 0));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemAddressReserve(&at, CHUNK, 0, 0x600000001000, 0));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemAddressReserve(&at, CHUNK, 512 * CHUNK, 0x600000000000 + CHUNK, 0));
	ok(cu.cuMemAddressReserve(&at, CHUNK, 4096, 0, 0));
	assert_int_equal(at % CHUNK, 0);
	ok(cu.cuMemAddressFree(at, CHUNK));
	ok(cu.cuMemAddressReserve(&at, CHUNK, 512 * CHUNK, 0, 0));
	assert_int_equal(at % (512 * CHUNK), 0);
	ok(cu.cuMemAddressFree(at, CHUNK));
}

TEST(unmapping_part_of_a_handle_is_refused)
{
	CUdeviceptr at = rules_reserve(2 * CHUNK);

	rules_map_new(at, 2 * CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemUnmap(at, CHUNK));
	rules_unmap_and_free(at, 2 * CHUNK);
}

TEST(one_unmap_may_cover_several_handles)
{
	CUdeviceptr at = rules_reserve(3 * CHUNK);

	rules_map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	rules_map_new(at + CHUNK, 2 * CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	rules_unmap_and_free(at, 3 * CHUNK);
}

TEST(mapping_over_a_mapping_is_refused)
{
	CUmemGenericAllocationHandle handle = rules_new_handle(CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	CUdeviceptr at = rules_reserve(CHUNK);

	rules_map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemMap(at, CHUNK, 0, handle, 0));
	ok(cu.cuMemRelease(handle));
	rules_unmap_and_free(at, CHUNK);
}

TEST(mapping_outside_a_reservation_is_refused)
{
	CUmemGenericAllocationHandle handle = rules_new_handle(2 * CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	CUdeviceptr at = rules_reserve(CHUNK);

	assert_int_not_equal(cu.cuMemMap(at, 2 * CHUNK, 0, handle, 0), CUDA_SUCCESS);
	ok(cu.cuMemRelease(handle));
	ok(cu.cuMemAddressFree(at, CHUNK));
}

TEST(freeing_a_reservation_still_mapped_is_refused)
{
	CUdeviceptr at = rules_reserve(CHUNK);

	rules_map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	assert_int_not_equal(cu.cuMemAddressFree(at, CHUNK), CUDA_SUCCESS);
	rules_unmap_and_free(at, CHUNK);
}

TEST(released_handle_lives_while_it_is_mapped)
{
	CUdeviceptr at = rules_reserve(CHUNK);
	CUmemGenericAllocationHandle handle;
	unsigned char got = 0;

	rules_map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	ok(cu.cuMemsetD8(at, 0x5A, CHUNK));
	ok(cu.cuMemcpyDtoH(&got, at + CHUNK - 1, 1));
	assert_int_equal(got, 0x5A);
	ok(cu.cuMemRetainAllocationHandle(&handle, (void *)at));
	ok(cu.cuMemUnmap(at, CHUNK));
	ok(cu.cuMemMap(at, CHUNK, 0, handle, 0));
	ok(rules_set_access(at, CHUNK));
	ok(cu.cuMemRelease(handle));
	got = 0;
	ok(cu.cuMemcpyDtoH(&got, at + CHUNK - 1, 1));
	assert_int_equal(got, 0x5A);
	rules_unmap_and_free(at, CHUNK);
}

TEST(released_handle_can_be_mapped_while_it_is_mapped)
{
	CUmemGenericAllocationHandle handle = rules_new_handle(CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	CUdeviceptr at = rules_reserve(2 * CHUNK);
	CUmemAllocationProp prop;

	ok(cu.cuMemMap(at, CHUNK, 0, handle, 0));
	ok(cu.cuMemRelease(handle));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemRelease(handle));
	ok(cu.cuMemGetAllocationPropertiesFromHandle(&prop, handle));
	ok(cu.cuMemMap(at + CHUNK, CHUNK, 0, handle, 0));
	rules_unmap_and_free(at, 2 * CHUNK);
}

TEST(host_numa_current_is_refused)
{
	CUmemAllocationProp prop = rules_at_location(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
	CUmemGenericAllocationHandle handle;

	assert_int_not_equal(cu.cuMemCreate(&handle, CHUNK, &prop, 0), CUDA_SUCCESS);
}

TEST(data_survives_remapping_to_host_memory)
{
	unsigned char got[64], want[64];

	if (!rules_host_vmm)
		skip();
	CUdeviceptr at = rules_reserve(CHUNK), alias = rules_reserve(CHUNK);
	CUmemGenericAllocationHandle host = rules_new_handle(CHUNK, CU_MEM_LOCATION_TYPE_HOST_NUMA);
	rules_map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	ok(cu.cuMemMap(alias, CHUNK, 0, host, 0));
	ok(rules_set_access(alias, CHUNK));
	for (size_t i = 0; i < sizeof(want); i++)
		want[i] = (unsigned char)(i * 7 + 1);
	ok(cu.cuMemcpyHtoD(at + MIB, want, sizeof(want)));
	ok(cu.cuMemcpyDtoD(alias, at, CHUNK));
	ok(cu.cuCtxSynchronize());
	ok(cu.cuMemUnmap(at, CHUNK));
	ok(cu.cuMemMap(at, CHUNK, 0, host, 0));
	ok(rules_set_access(at, CHUNK));
	ok(cu.cuMemcpyDtoH(got, at + MIB, sizeof(got)));
	assert_memory_equal(got, want, sizeof(got));
	ok(cu.cuMemRelease(host));
	rules_unmap_and_free(at, CHUNK);
	rules_unmap_and_free(alias, CHUNK);
}

/* In one process, as between two. */
static void is_the_same_memory_when_imported(CUmemLocationType type)
{
	CUmemAllocationProp prop = rules_at_location(type);
	CUmemGenericAllocationHandle handle, imported;
	CUdeviceptr at = rules_reserve(CHUNK), other = rules_reserve(CHUNK);
	unsigned char got = 0;
	int file;

	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	ok(cu.cuMemCreate(&handle, CHUNK, &prop, 0));
	ok(cu.cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	ok(cu.cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)file,
					     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	assert_int_equal(close(file), 0);
	ok(cu.cuMemMap(at, CHUNK, 0, handle, 0));
	ok(cu.cuMemMap(other, CHUNK, 0, imported, 0));
	ok(rules_set_access(at, CHUNK));
	ok(rules_set_access(other, CHUNK));
	ok(cu.cuMemRelease(handle));
	ok(cu.cuMemRelease(imported));
	ok(cu.cuMemsetD8(at, 0x5C, CHUNK));
	ok(cu.cuMemcpyDtoH(&got, other + CHUNK - 1, 1));
	assert_int_equal(got, 0x5C);
	/* It outlives the mapping of whoever made it. */
	rules_unmap_and_free(at, CHUNK);
	got = 0;
	ok(cu.cuMemcpyDtoH(&got, other + MIB, 1));
	assert_int_equal(got, 0x5C);
	rules_unmap_and_free(other, CHUNK);
}

TEST(exported_memory_can_be_imported)
{
	is_the_same_memory_when_imported(CU_MEM_LOCATION_TYPE_DEVICE);
}

TEST(exported_host_memory_can_be_imported)
{
	if (!rules_host_vmm)
		skip();
	is_the_same_memory_when_imported(CU_MEM_LOCATION_TYPE_HOST_NUMA);
}

TEST(copies_cross_the_border_of_device_and_host_chunks)
{
	if (!rules_host_vmm)
		skip();
	CUdeviceptr at = rules_reserve(2 * CHUNK);
	unsigned char *want = malloc(2 * CHUNK);
	unsigned char *got = malloc(2 * CHUNK);
	rules_map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	rules_map_new(at + CHUNK, CHUNK, CU_MEM_LOCATION_TYPE_HOST_NUMA);
	for (size_t i = 0; i < 2 * CHUNK; i++)
		want[i] = (unsigned char)(i * 31 >> 3);
	ok(cu.cuMemcpyHtoD(at, want, 2 * CHUNK));
	ok(cu.cuMemcpyDtoH(got, at, 2 * CHUNK));
	assert_memory_equal(got, want, 2 * CHUNK);
	ok(cu.cuMemsetD8(at + CHUNK - 64, 9, 128));
	ok(cu.cuMemcpyDtoH(got, at + CHUNK - 64, 128));
	for (int i = 0; i < 128; i++)
		assert_int_equal(got[i], 9);
	rules_unmap_and_free(at, 2 * CHUNK);
	free(want);
	free(got);
}

/* ---- answers about memory ---- */

static unsigned long long attribute(CUpointer_attribute which, CUdeviceptr at)
{
	unsigned long long value = 0;

	ok(cu.cuPointerGetAttribute(&value, which, at));
	return value;
}

TEST(block_answers_like_cuMemAlloc)
{
	CUmemGenericAllocationHandle handle;
	CUipcMemHandle ipc;
	CUdeviceptr base;
	size_t bytes;
	void *host;
	CUdeviceptr at = rules_alloc(5 * MIB);

	assert_int_equal(at % 512, 0);
	ok(cu.cuMemGetAddressRange(&base, &bytes, at + MIB));
	assert_int_equal(base, at);
	assert_int_equal(bytes, 5 * MIB);
	ok(cu.cuMemGetAddressRange(NULL, &bytes, at));
	ok(cu.cuMemGetAddressRange(&base, NULL, at));
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at), CU_MEMORYTYPE_DEVICE);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_CONTEXT, at), (uintptr_t)rules_context);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at + 8), at + 8);
	is(CUDA_ERROR_INVALID_VALUE, cu.cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at));
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, at), 0);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at), 0);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at), 1);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at + MIB), at);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, at), 5 * MIB);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MAPPED, at), 1);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, at), 0);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at), CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at), 0);
	ok(cu.cuPointerSetAttribute(&(unsigned){1}, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
	ok(cu.cuIpcGetMemHandle(&ipc, at));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemRetainAllocationHandle(&handle, (void *)at));
	ok(cu.cuMemFree(at));
	assert_int_not_equal(cu.cuMemFree(at), CUDA_SUCCESS);
}

TEST(mapped_memory_answers_differently)
{
	CUdeviceptr at = rules_reserve(2 * CHUNK), base;
	CUipcMemHandle ipc;
	size_t bytes;

	rules_map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	rules_map_new(at + CHUNK, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at), CU_MEMORYTYPE_DEVICE);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_CONTEXT, at), 0);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at), 0);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, at), 0);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, at), 0);
	is(CUDA_ERROR_INVALID_VALUE, cu.cuIpcGetMemHandle(&ipc, at));
	assert_int_not_equal(cu.cuPointerSetAttribute(&(unsigned){1}, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at),
			     CUDA_SUCCESS);
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree(at));
	ok(cu.cuMemGetAddressRange(&base, &bytes, at + CHUNK + 5));
	assert_int_equal(base, at + CHUNK);
	assert_int_equal(bytes, CHUNK);
	rules_unmap_and_free(at, 2 * CHUNK);
}

TEST(range_is_the_reservation_and_mapping_the_mapping)
{
	CUmemGenericAllocationHandle handle = rules_new_handle(CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	CUdeviceptr at = rules_reserve(4 * CHUNK), alias = at + 3 * CHUNK;

	rules_map_new(at + CHUNK, 2 * CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	ok(cu.cuMemMap(at, CHUNK, 0, handle, 0));
	ok(cu.cuMemMap(alias, CHUNK, 0, handle, 0));
	ok(rules_set_access(at, 4 * CHUNK));
	ok(cu.cuMemRelease(handle));
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at + 2 * CHUNK), at);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, at + 2 * CHUNK), 4 * CHUNK);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, at + 2 * CHUNK), at + CHUNK);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, at + 2 * CHUNK), 2 * CHUNK);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, at),
			 attribute(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, alias));
	assert_int_not_equal(attribute(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, at),
			     attribute(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, at + CHUNK));
	assert_int_not_equal(attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, at),
			     attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, alias));
	rules_unmap_and_free(at, 4 * CHUNK);
}

TEST(without_access_a_mapping_is_nothing_yet)
{
	const CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
	CUmemGenericAllocationHandle handle = rules_new_handle(CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	CUdeviceptr at = rules_reserve(2 * CHUNK), base = 1;

	unsigned long long flags = 77;
	unsigned char got;
	size_t bytes = 1;
	void *pointer = &got;

	ok(cu.cuMemMap(at, CHUNK, 0, handle, 0));
	ok(cu.cuMemRelease(handle));
	is(CUDA_ERROR_NOT_FOUND, cu.cuMemGetAddressRange(&base, &bytes, at));
	assert_int_equal(base, 0);
	assert_int_equal(bytes, 0);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MAPPED, at), 1);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at), CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE);
	is(CUDA_ERROR_INVALID_VALUE, cu.cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoH(&got, at, 1));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8(at, 1, 1));
	ok(cu.cuMemGetAccess(&flags, &device, at));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	flags = 77;
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemGetAccess(&flags, &device, at + CHUNK));
	assert_int_equal(flags, 0);
	is(CUDA_ERROR_INVALID_VALUE, cu.cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + CHUNK));
	ok(cu.cuCtxSynchronize());
	ok(cu.cuMemUnmap(at, CHUNK));
	ok(cu.cuMemAddressFree(at, 2 * CHUNK));
}

TEST(host_chunk_without_host_access_has_no_host_pointer)
{
	if (!rules_host_vmm)
		skip();
	CUdeviceptr at = rules_reserve(CHUNK);
	rules_map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_HOST_NUMA);
	void *host = (void *)1;
	is(CUDA_ERROR_INVALID_VALUE, cu.cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at));
	assert_null(host);
	rules_unmap_and_free(at, CHUNK);
}

TEST(unknown_pointer_fails_alone_and_is_null_in_company)
{
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT,
				       CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				       CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	unsigned type = 1;
	int ordinal = 5;
	CUcontext of = (CUcontext)1;
	void *host = NULL;
	size_t range = 77;
	void *values[] = {&type, &of, &host, &ordinal, &range}, *plain = malloc(64);
	CUdeviceptr base;
	size_t bytes;

	is(CUDA_ERROR_INVALID_VALUE, cu.cuPointerGetAttribute(&type, which[0], (CUdeviceptr)(uintptr_t)plain));
	ok(cu.cuPointerGetAttributes(5, which, values, (CUdeviceptr)(uintptr_t)plain));
	assert_int_equal(type, 0);
	assert_null(of);
	assert_ptr_equal(host, plain);
	assert_int_equal(ordinal, CU_DEVICE_INVALID);
	assert_int_equal(range, 77);
	which[0] = (CUpointer_attribute)99;
	is(CUDA_ERROR_INVALID_VALUE, cu.cuPointerGetAttributes(1, which, values, (CUdeviceptr)(uintptr_t)plain));
	is(CUDA_ERROR_NOT_FOUND, cu.cuMemGetAddressRange(&base, &bytes, (CUdeviceptr)(uintptr_t)plain));
	free(plain);
}

/* How many bytes an answer takes: what differs from the pattern, or would have by its value. */
static void expect_bytes(CUpointer_attribute which, CUdeviceptr at, size_t bytes)
{
	unsigned char data[32];

	memset(data, 0xa5, sizeof(data));
	ok(cu.cuPointerGetAttribute(data, which, at));
	for (size_t i = 0; i < sizeof(data); i++)
		assert_int_equal(i >= bytes, data[i] == 0xa5);
}

TEST(flags_are_four_bytes_wide)
{
	CUdeviceptr at = rules_alloc(1000);

	expect_bytes(CU_POINTER_ATTRIBUTE_IS_MANAGED, at, 4);
	expect_bytes(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at, 4);
	expect_bytes(CU_POINTER_ATTRIBUTE_MAPPED, at, 4);
	expect_bytes(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at, 4);
	expect_bytes(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, at, 4);
	expect_bytes(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, at, 8);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, at), 1000);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, at), 2 * MIB);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, at) % (2 * MIB), 0);
	ok(cu.cuMemFree(at));
}

TEST(asking_for_tokens_turns_sync_memops_on)
{
	unsigned char tokens[16];
	CUdeviceptr at = rules_alloc(MIB);

	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at), 0);
	ok(cu.cuPointerGetAttribute(tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, at));
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at), 1);
	ok(cu.cuMemFree(at));
}

TEST(pitch_is_a_multiple_of_512)
{
	CUdeviceptr at, base;
	size_t pitch, bytes;

	ok(cu.cuMemAllocPitch(&at, &pitch, 513, 3, 4));
	assert_int_equal(pitch, 1024);
	ok(cu.cuMemGetAddressRange(&base, &bytes, at));
	assert_int_equal(bytes, 3 * 1024);
	ok(cu.cuMemFree(at));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemAllocPitch(&at, &pitch, 100, 3, 5));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemAllocPitch(&at, &pitch, 0, 3, 4));
}

TEST(async_free_takes_any_block)
{
	CUdeviceptr ordered;
	CUstream stream = rules_stream();
	CUdeviceptr block = rules_alloc(MIB);

	ok(cu.cuMemAllocAsync(&ordered, MIB, stream));
	ok(cu.cuMemFreeAsync(block, stream));
	ok(cu.cuStreamSynchronize(stream));
	ok(cu.cuMemFree(ordered));
	ok(cu.cuStreamDestroy(stream));
}
