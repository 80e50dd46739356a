// SPDX-License-Identifier: Apache-2.0
/*
 * What the driver says of memory that a program makes itself, of its handles, reservations and mappings, and what it
 * refuses: natively, and under the library whatever vmm.spill is (vmm_help.h). Answers are those of driver 580 on an
 * H100 (rules_memory_test).
 */
#include "test/preload/vmm_help.h"
#include "test/test.h"

#define REFUSED(call)     CHECK((call) == CUDA_ERROR_INVALID_VALUE)
#define UNSUPPORTED(call) CHECK((call) == CUDA_ERROR_NOT_SUPPORTED)

/* ---- reservations ---- */

static void wrong_reservations(void)
{
	CUdeviceptr at;

	REFUSED(cu.cuMemAddressReserve(&at, 0, 0, 0, 0));
	REFUSED(cu.cuMemAddressReserve(&at, GRANULE + MIB, 0, 0, 0));
	REFUSED(cu.cuMemAddressReserve(&at, 4096, 0, 0, 0));
	REFUSED(cu.cuMemAddressReserve(&at, GRANULE, 3 * GRANULE, 0, 0));
	REFUSED(cu.cuMemAddressReserve(&at, GRANULE, 0, 0, 1));
	REFUSED(cu.cuMemAddressReserve(NULL, GRANULE, 0, 0, 0));
	REFUSED(cu.cuMemAddressReserve(&at, GRANULE, 0, 0x600000001000, 0));
	CHECK(cu.cuMemAddressReserve(&at, (size_t)1 << 50, 0, 0, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(cu.cuMemAddressReserve(&at, -GRANULE, 0, 0, 0) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void alignments(void)
{
	static const size_t align[] = {0, 1, 4096, GRANULE, 32 * MIB, 1024 * MIB};
	enum { N = sizeof(align) / sizeof(align[0]) };
	CUdeviceptr at[N];

	for (int i = 0; i < N; i++) {
		MUST(cu.cuMemAddressReserve(&at[i], 3 * GRANULE, align[i], 0, 0));
		CHECK(at[i] % (align[i] > GRANULE ? align[i] : GRANULE) == 0);
		for (int j = 0; j < i; j++)
			CHECK(at[i] + 3 * GRANULE <= at[j] || at[j] + 3 * GRANULE <= at[i]);
	}
	for (int i = 0; i < N; i++)
		MUST(cu.cuMemAddressFree(at[i], 3 * GRANULE));
	/* More than all memory there is, as frameworks reserve it. */
	CUdeviceptr large = vmm_reserve((size_t)16 << 30);
	vmm_map_new(large + ((size_t)16 << 30) - GRANULE, GRANULE);
	vmm_write(large + ((size_t)16 << 30) - GRANULE, 5, GRANULE / 4);
	CHECK(vmm_counts(large + ((size_t)16 << 30) - GRANULE, 5, GRANULE / 4));
	vmm_unmap(large + ((size_t)16 << 30) - GRANULE, GRANULE);
	MUST(cu.cuMemAddressFree(large, (size_t)16 << 30));
}

static bool meet(CUdeviceptr a, CUdeviceptr b, size_t bytes)
{
	return a < b + bytes && b < a + bytes;
}

/* A hint is no promise, but never leads to what is taken. */
static void hints(void)
{
	const size_t bytes = 4 * GRANULE;

	CUdeviceptr first = vmm_reserve(bytes), again, other, beside, block = child_alloc(bytes);

	MUST(cu.cuMemAddressFree(first, bytes));
	MUST(cu.cuMemAddressReserve(&again, bytes, 0, first, 0));
	MUST(cu.cuMemAddressReserve(&other, bytes, 0, again, 0));
	MUST(cu.cuMemAddressReserve(&beside, bytes, 0, again + GRANULE, 0));
	CHECK(!meet(again, other, bytes) && !meet(again, beside, bytes) && !meet(other, beside, bytes));
	MUST(cu.cuMemAddressReserve(&first, bytes, 0, block & ~(CUdeviceptr)(GRANULE - 1), 0));
	CHECK(!meet(first, block, bytes));
	CUdeviceptr all[] = {again, other, beside, first};
	for (int i = 0; i < 4; i++) {
		vmm_map_new(all[i], bytes);
		vmm_count(NULL, all[i], (unsigned)i << 24, bytes / 4);
	}
	for (int i = 0; i < 4; i++)
		CHECK(vmm_counts(all[i], (unsigned)i << 24, bytes / 4));
	for (int i = 0; i < 4; i++)
		vmm_unmap_and_free(all[i], bytes, bytes);
	MUST(cu.cuMemFree_v2(block));
}

static void reservations_that_are_not_freed(void)
{
	CUdeviceptr at = vmm_reserve(4 * GRANULE), block = child_alloc(4 * GRANULE);

	REFUSED(cu.cuMemAddressFree(at, 2 * GRANULE));
	REFUSED(cu.cuMemAddressFree(at + GRANULE, 3 * GRANULE));
	REFUSED(cu.cuMemAddressFree(at, 8 * GRANULE));
	REFUSED(cu.cuMemAddressFree(at, 0));
	REFUSED(cu.cuMemAddressFree(block, 4 * GRANULE));
	vmm_map_new(at + 2 * GRANULE, GRANULE);
	REFUSED(cu.cuMemAddressFree(at, 4 * GRANULE));
	vmm_write(at + 2 * GRANULE, 1, GRANULE / 4);
	CHECK(vmm_counts(at + 2 * GRANULE, 1, GRANULE / 4));
	vmm_unmap(at + 2 * GRANULE, GRANULE);
	MUST(cu.cuMemAddressFree(at, 4 * GRANULE));
	REFUSED(cu.cuMemAddressFree(at, 4 * GRANULE));
	MUST(cu.cuMemFree_v2(block));
}

TEST(what_is_wrong_with_a_reservation_is_refused)
{
	vmm_run(wrong_reservations);
	vmm_run(alignments);
	vmm_run(hints);
	vmm_run(reservations_that_are_not_freed);
}

/* ---- mappings ---- */

static void wrong_mappings(void)
{
	CUdeviceptr at = vmm_reserve(4 * GRANULE), block = child_alloc(4 * GRANULE);
	handle_id one = vmm_create(0, GRANULE), two = vmm_create(0, 2 * GRANULE);

	REFUSED(cu.cuMemMap(at, 0, 0, one, 0));
	REFUSED(cu.cuMemMap(at, GRANULE, 0, one, 1));
	REFUSED(cu.cuMemMap(at, GRANULE, 0, one + 12345, 0));
	REFUSED(cu.cuMemMap(at, GRANULE, 0, 0, 0));
	REFUSED(cu.cuMemMap(at + 4096, GRANULE, 0, one, 0));
	REFUSED(cu.cuMemMap(0, GRANULE, 0, one, 0));
	REFUSED(cu.cuMemMap(block, GRANULE, 0, one, 0));
	UNSUPPORTED(cu.cuMemMap(at, 4096, 0, one, 0));
	UNSUPPORTED(cu.cuMemMap(at, 2 * GRANULE, 0, one, 0));
	UNSUPPORTED(cu.cuMemMap(at, GRANULE, 0, two, 0));
	UNSUPPORTED(cu.cuMemMap(at, GRANULE, GRANULE, two, 0));
	UNSUPPORTED(cu.cuMemMap(at, 2 * GRANULE, GRANULE, two, 0));
	MUST(cu.cuMemMap(at + GRANULE, GRANULE, 0, one, 0));
	REFUSED(cu.cuMemMap(at + GRANULE, GRANULE, 0, one, 0));
	REFUSED(cu.cuMemMap(at, 2 * GRANULE, 0, two, 0));
	REFUSED(cu.cuMemMap(at + GRANULE, 2 * GRANULE, 0, two, 0));
	/* A refusal takes no reference: all of it goes with one release each. */
	MUST(cu.cuMemUnmap(at + GRANULE, GRANULE));
	MUST(cu.cuMemRelease(one));
	REFUSED(cu.cuMemRelease(one));
	REFUSED(cu.cuMemMap(at, GRANULE, 0, one, 0));
	MUST(cu.cuMemRelease(two));
	MUST(cu.cuMemAddressFree(at, 4 * GRANULE));
	REFUSED(cu.cuMemMap(at, GRANULE, 0, one, 0));
	MUST(cu.cuMemFree_v2(block));
}

static void unmaps(void)
{
	CUdeviceptr at = vmm_reserve(8 * GRANULE), block = child_alloc(4 * GRANULE);

	vmm_map_new(at, GRANULE);
	vmm_map_new(at + GRANULE, 2 * GRANULE);
	vmm_map_new(at + 4 * GRANULE, GRANULE);
	vmm_count(NULL, at, 7, 3 * GRANULE / 4);
	vmm_count(NULL, at + 4 * GRANULE, 8, GRANULE / 4);
	MUST(cu.cuCtxSynchronize());
	REFUSED(cu.cuMemUnmap(at + GRANULE, GRANULE));
	REFUSED(cu.cuMemUnmap(at + 2 * GRANULE, GRANULE));
	REFUSED(cu.cuMemUnmap(at, 2 * GRANULE));
	REFUSED(cu.cuMemUnmap(at, 5 * GRANULE));
	REFUSED(cu.cuMemUnmap(at + 3 * GRANULE, 2 * GRANULE));
	REFUSED(cu.cuMemUnmap(at + 3 * GRANULE, GRANULE));
	REFUSED(cu.cuMemUnmap(at, 0));
	REFUSED(cu.cuMemUnmap(block, 4 * GRANULE));
	CHECK(vmm_counts(at, 7, 3 * GRANULE / 4) && vmm_counts(at + 4 * GRANULE, 8, GRANULE / 4));
	MUST(cu.cuMemUnmap(at, 3 * GRANULE));
	REFUSED(cu.cuMemUnmap(at, 3 * GRANULE));
	CHECK(vmm_counts(at + 4 * GRANULE, 8, GRANULE / 4));
	vmm_unmap(at + 4 * GRANULE, GRANULE);
	MUST(cu.cuMemAddressFree(at, 8 * GRANULE));
	MUST(cu.cuMemFree_v2(block));
}

static void several_are_unmapped(void)
{
	CUdeviceptr at = vmm_reserve(8 * GRANULE);
	size_t used = 0;

	for (int i = 0; i < 4; i++, used += GRANULE)
		vmm_map_new(at + used, GRANULE);
	vmm_count(NULL, at, 7, used / 4);
	vmm_unmap(at + GRANULE, 2 * GRANULE);
	CHECK(vmm_counts(at, 7, GRANULE / 4));
	CHECK(vmm_counts(at + 3 * GRANULE, 7 + 3 * GRANULE / 4, GRANULE / 4));
	vmm_map_new(at + GRANULE, 2 * GRANULE);
	vmm_count(NULL, at + MIB, 9, 6 * MIB / 4);
	CHECK(vmm_counts(at + MIB, 9, 6 * MIB / 4));
	vmm_unmap_and_free(at, used, 8 * GRANULE);
}

TEST(what_is_wrong_with_a_mapping_is_refused)
{
	vmm_run(wrong_mappings);
	vmm_run(unmaps);
	vmm_run(several_are_unmapped);
}

/* ---- handles ---- */

static void wrong_handles(void)
{
	CUmemAllocationProp prop = form_memory(0);
	handle_id handle;

	REFUSED(cu.cuMemCreate(&handle, 0, &prop, 0));
	REFUSED(cu.cuMemCreate(&handle, GRANULE + 4096, &prop, 0));
	REFUSED(cu.cuMemCreate(&handle, GRANULE, &prop, 1));
	REFUSED(cu.cuMemCreate(NULL, GRANULE, &prop, 0));
	REFUSED(cu.cuMemCreate(&handle, GRANULE, NULL, 0));
	CHECK(cu.cuMemCreate(&handle, (size_t)1 << 50, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	prop.location.id = 99;
	CHECK(cu.cuMemCreate(&handle, GRANULE, &prop, 0) == CUDA_ERROR_INVALID_DEVICE);
	prop = form_memory(0);
	prop.type = CU_MEM_ALLOCATION_TYPE_INVALID;
	REFUSED(cu.cuMemCreate(&handle, GRANULE, &prop, 0));
	prop = form_memory(0);
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_WIN32;
	REFUSED(cu.cuMemCreate(&handle, GRANULE, &prop, 0));
	REFUSED(cu.cuMemRelease(0));
	REFUSED(cu.cuMemRelease(0xdead0000));
	REFUSED(cuMemGetAllocationPropertiesFromHandle(&prop, 0xdead0000));
}

static void references(void)
{
	CUdeviceptr at = vmm_reserve(4 * GRANULE), block = child_alloc(4 * GRANULE);
	handle_id handle = vmm_create(0, 2 * GRANULE), same, other;
	CUmemAllocationProp prop;

	vmm_map(at, 2 * GRANULE, handle);
	vmm_count(NULL, at, 3, 2 * GRANULE / 4);
	MUST(cu.cuMemRetainAllocationHandle(&same, (void *)(at + 3 * MIB + 5)));
	CHECK(same == handle);
	REFUSED(cu.cuMemRetainAllocationHandle(&other, (void *)(at + 2 * GRANULE)));
	REFUSED(cu.cuMemRetainAllocationHandle(&other, (void *)block));
	/* One by create, one by retain; then the mapping alone holds it, and it can be had again. */
	MUST(cu.cuMemRelease(handle));
	MUST(cu.cuMemRelease(handle));
	REFUSED(cu.cuMemRelease(handle));
	CHECK(vmm_counts(at, 3, 2 * GRANULE / 4));
	MUST(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
	MUST(cu.cuMemRetainAllocationHandle(&same, (void *)at));
	CHECK(same == handle);
	vmm_unmap(at, 2 * GRANULE);
	MUST(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
	vmm_map(at + 2 * GRANULE, 2 * GRANULE, handle);
	CHECK(vmm_counts(at + 2 * GRANULE, 3, 2 * GRANULE / 4));
	/* Mapped, and released: it can be mapped once more. */
	MUST(cu.cuMemRelease(handle));
	vmm_map(at, 2 * GRANULE, handle);
	vmm_count(NULL, at, 4, 2 * GRANULE / 4);
	CHECK(vmm_counts(at + 2 * GRANULE, 4, 2 * GRANULE / 4));
	vmm_unmap(at + 2 * GRANULE, 2 * GRANULE);
	CHECK(vmm_counts(at, 4, 2 * GRANULE / 4));
	vmm_unmap(at, 2 * GRANULE);
	REFUSED(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
	REFUSED(cu.cuMemMap(at, 2 * GRANULE, 0, handle, 0));
	REFUSED(cu.cuMemRelease(handle));
	MUST(cu.cuMemAddressFree(at, 4 * GRANULE));
	MUST(cu.cuMemFree_v2(block));
}

static void check_properties(const CUmemAllocationProp *asked, handle_id handle)
{
	CUmemAllocationProp got;

	memset(&got, 0x55, sizeof(got));
	MUST(cuMemGetAllocationPropertiesFromHandle(&got, handle));
	CHECK(got.type == asked->type && got.location.type == asked->location.type &&
	      got.location.id == asked->location.id && got.requestedHandleTypes == asked->requestedHandleTypes &&
	      !got.win32HandleMetaData);
	CHECK(got.allocFlags.gpuDirectRDMACapable == asked->allocFlags.gpuDirectRDMACapable &&
	      got.allocFlags.compressionType == asked->allocFlags.compressionType && !got.allocFlags.usage);
}

/* With so much of it that some does not fit the budget. */
static void properties(void)
{
	enum { N = 12 };
	handle_id handle[N], retained;
	CUmemAllocationProp prop[N];

	CUdeviceptr at = vmm_reserve(N * 4 * MIB);
	for (unsigned i = 0; i < N; i++) {
		prop[i] = form_memory(0);
		prop[i].allocFlags.gpuDirectRDMACapable = i % 3 == 1;
		prop[i].requestedHandleTypes =
		    i % 4 == 3 ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
		MUST(cu.cuMemCreate(&handle[i], 4 * MIB, &prop[i], 0));
		check_properties(&prop[i], handle[i]);
		vmm_map(at + i * 4 * MIB, 4 * MIB, handle[i]);
		MUST(cu.cuMemRetainAllocationHandle(&retained, (void *)(at + i * 4 * MIB + MIB)));
		CHECK(retained == handle[i]);
		check_properties(&prop[i], retained);
		MUST(cu.cuMemRelease(retained));
		for (unsigned j = 0; j < i; j++)
			CHECK(handle[j] != handle[i]);
	}
	for (unsigned i = 0; i < N; i++)
		MUST(cu.cuMemRelease(handle[i]));
	vmm_unmap_and_free(at, N * 4 * MIB, N * 4 * MIB);
}

TEST(handles_are_counted_and_say_what_was_asked_for)
{
	vmm_run(wrong_handles);
	vmm_run(references);
	vmm_run(properties);
}

/* ---- access ---- */

static void access_is_set(void)
{
	const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
			    nowhere = {.type = location.type, .id = 99};
	CUmemAccessDesc desc[2] = {{.location = location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READ},
				   {.location = location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
	unsigned long long flags = 77;
	unsigned word = 5;

	CUdeviceptr at = vmm_reserve(6 * GRANULE), block = child_alloc(4 * GRANULE);
	REFUSED(cuMemGetAccess(&flags, &location, at));
	CHECK(flags == 0);
	handle_id handle = vmm_create(0, GRANULE);
	MUST(cu.cuMemMap(at, GRANULE, 0, handle, 0));
	MUST(cu.cuMemRelease(handle));
	CHECK(vmm_access_of(at, 0) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
	REFUSED(cu.cuMemcpyHtoD_v2(at, &word, 4));
	handle = vmm_create(0, 2 * GRANULE);
	MUST(cu.cuMemMap(at + GRANULE, 2 * GRANULE, 0, handle, 0));
	MUST(cu.cuMemRelease(handle));
	REFUSED(vmm_access(at + GRANULE, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	REFUSED(vmm_access(at, 4 * GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	REFUSED(vmm_access(at + 4 * GRANULE, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	REFUSED(vmm_access(at, 0, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	REFUSED(vmm_access(at, 4096, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	REFUSED(vmm_access(at, GRANULE, 0, (CUmemAccess_flags)2));
	REFUSED(vmm_access(at, GRANULE, 99, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	REFUSED(vmm_access(block, 4 * GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	REFUSED(cuMemGetAccess(&flags, &location, block));
	REFUSED(cu.cuMemSetAccess(at, GRANULE, NULL, 1));
	REFUSED(cu.cuMemSetAccess(at, GRANULE, desc, 0));
	CHECK(cuMemGetAccess(&flags, &nowhere, at) == CUDA_ERROR_INVALID_DEVICE);
	CHECK(vmm_access_of(at, 0) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
	/* The last word counts; what is refused in part is refused. */
	MUST(cu.cuMemSetAccess(at, 3 * GRANULE, desc, 2));
	CHECK(vmm_access_of(at + 2 * GRANULE + 7, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	desc[1].location.id = 99;
	REFUSED(cu.cuMemSetAccess(at, 3 * GRANULE, desc, 2));
	CHECK(vmm_access_of(at, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	vmm_count(NULL, at, 11, 3 * GRANULE / 4);
	CHECK(vmm_counts(at, 11, 3 * GRANULE / 4));
	vmm_unmap(at, 3 * GRANULE);
	MUST(cu.cuMemAddressFree(at, 6 * GRANULE));
	MUST(cu.cuMemFree_v2(block));
}

static void access_is_taken_back(void)
{
	unsigned word = 5, flags = 77;

	CUdeviceptr at = vmm_reserve(4 * GRANULE);
	vmm_map_new(at, GRANULE);
	vmm_map_new(at + GRANULE, GRANULE);
	vmm_count(NULL, at, 11, 2 * GRANULE / 4);
	MUST(cu.cuCtxSynchronize());
	MUST(vmm_access(at, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
	CHECK(vmm_access_of(at, 0) == CU_MEM_ACCESS_FLAGS_PROT_READ);
	CHECK(vmm_access_of(at + GRANULE, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	MUST(cu.cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at));
	CHECK(flags == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ);
	vmm_press();
	REFUSED(cu.cuMemcpyHtoD_v2(at, &word, 4));
	REFUSED(cu.cuMemsetD32_v2(at + GRANULE - 4, 5, 2));
	CHECK(vmm_counts(at, 11, 2 * GRANULE / 4));
	MUST(driver_copy(NULL, at + GRANULE, at, GRANULE / 4)); /* a kernel reads it */
	CHECK(vmm_counts(at + GRANULE, 11, GRANULE / 4));
	MUST(vmm_access(at, 2 * GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
	CHECK(vmm_access_of(at + GRANULE, 0) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
	vmm_press();
	REFUSED(cu.cuMemcpyDtoH_v2(&word, at, 4));
	MUST(vmm_access(at, 2 * GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	CHECK(vmm_counts(at, 11, GRANULE / 4) && vmm_counts(at + GRANULE, 11, GRANULE / 4));
	/* It goes with the mapping. */
	handle_id handle;
	MUST(cu.cuMemRetainAllocationHandle(&handle, (void *)at));
	vmm_unmap(at, GRANULE);
	MUST(cu.cuMemMap(at, GRANULE, 0, handle, 0));
	CHECK(vmm_access_of(at, 0) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
	MUST(cu.cuMemRelease(handle));
	vmm_unmap_and_free(at, 2 * GRANULE, 4 * GRANULE);
}

TEST(access_is_what_was_set_last)
{
	vmm_run(access_is_set);
	vmm_run(access_is_taken_back);
}

/* ---- answers about addresses ---- */

static unsigned long long attribute(CUpointer_attribute which, CUdeviceptr at)
{
	unsigned long long value = 0;

	MUST(cu.cuPointerGetAttribute(&value, which, at));
	return value;
}

static void check_answers(CUdeviceptr reservation, size_t reserved, CUdeviceptr at, size_t bytes, size_t offset)
{
	CUdeviceptr address = at + offset, base = 1;
	CUdeviceptr is_null = 1, pointer = 1;
	size_t size = 1;
	unsigned type = 77;
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_HOST_POINTER,
				       CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	void *data[] = {&type, &is_null, &pointer, &size};

	CHECK(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CU_MEMORYTYPE_DEVICE);
	CHECK(attribute(CU_POINTER_ATTRIBUTE_CONTEXT, address) == 0);
	CHECK(attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address) == address);
	CHECK(attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address) == 0);
	CHECK(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, address) == 0);
	CHECK(attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) == 0);
	CHECK(attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address) == 0);
	CHECK(attribute(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, address) == 0);
	CHECK(attribute(CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, address) == 0);
	CHECK(attribute(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address) == 0);
	CHECK(attribute(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address) == 0);
	CHECK(attribute(CU_POINTER_ATTRIBUTE_MAPPED, address) == 1);
	CHECK(attribute(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
	CHECK(attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) == reservation);
	CHECK(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) == reserved);
	CHECK(attribute(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, address) == at);
	CHECK(attribute(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, address) == bytes);
	REFUSED(cu.cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, address));
	MUST(cu.cuPointerGetAttributes(4, which, data, address));
	CHECK(type == CU_MEMORYTYPE_DEVICE && is_null == 0 && pointer == address && size == reserved);
	MUST(cu.cuMemGetAddressRange_v2(&base, &size, address));
	CHECK(base == at && size == bytes);
}

static void check_refusals(CUdeviceptr at)
{
	unsigned on = 1;
	CUipcMemHandle ipc;

	REFUSED(cu.cuMemFree_v2(at));
	REFUSED(cu.cuMemFreeAsync(at, NULL));
	REFUSED(cu.cuIpcGetMemHandle(&ipc, at));
	CHECK(cu.cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at) != CUDA_SUCCESS);
}

static void answers(void)
{
	enum { N = 10 };
	const size_t bytes = 4 * MIB, reserved = (N + 2) * bytes;
	CUdeviceptr base = 1, word = 1;
	size_t size = 1;

	CUdeviceptr at = vmm_reserve(reserved);
	CHECK(cu.cuMemGetAddressRange_v2(&base, &size, at) == CUDA_ERROR_NOT_FOUND);
	CHECK(base == 0 && size == 0);
	REFUSED(cu.cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
	for (unsigned i = 0; i < N; i++) { /* some over the budget */
		vmm_map_new(at + bytes * (i + 1), bytes);
		vmm_count(NULL, at + bytes * (i + 1), i, bytes / 4);
	}
	for (int round = 0; round < 2; round++) {
		for (unsigned i = 1; i <= N; i++) {
			check_answers(at, reserved, at + i * bytes, bytes, 0);
			check_answers(at, reserved, at + i * bytes, bytes, 3 * MIB + 5);
			check_refusals(at + i * bytes);
			check_refusals(at + i * bytes + 512);
		}
		vmm_press();
	}
	unsigned long long first = attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, at + bytes);
	CHECK(first && first == attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, at + bytes + 99));
	CHECK(first != attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, at + 2 * bytes));
	CHECK(attribute(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, at + bytes) !=
	      attribute(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, at + 2 * bytes));
	for (unsigned i = 0; i < N; i++)
		CHECK(vmm_counts(at + bytes * (i + 1), i, bytes / 4));
	vmm_unmap(at + bytes, N * bytes);
	REFUSED(cu.cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + bytes));
	CHECK(cu.cuMemGetAddressRange_v2(&base, &size, at + bytes) == CUDA_ERROR_NOT_FOUND);
	MUST(cu.cuMemAddressFree(at, reserved));
}

/* A handle of several pieces under the library, partly on the host where it may be, and three addresses of it. */
static void answers_of_further_mappings(void)
{
	const size_t bytes = 24 * MIB, reserved = bytes + GRANULE;
	CUdeviceptr at[3];
	handle_id same;

	CUdeviceptr block = child_alloc(16 * MIB);
	handle_id handle = vmm_create(0, bytes);
	at[0] = vmm_reserve(reserved), at[1] = vmm_reserve(reserved);
	MUST(cu.cuMemAddressReserve(&at[2], reserved, 64 * MIB, 0, 0)); /* the driver's in any case */
	for (unsigned i = 0; i < 3; i++) {
		MUST(cu.cuMemMap(at[i], bytes, 0, handle, 0));
		CHECK(cu.cuMemGetAddressRange_v2(NULL, NULL, at[i] + bytes - 1) == CUDA_ERROR_NOT_FOUND);
		MUST(vmm_access(at[i], bytes, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	}
	vmm_count(NULL, at[2], 7, bytes / 4);
	/* The first may go, the others stay what they are. */
	for (unsigned first = 0; first < 3; first++) {
		for (unsigned i = first; i < 3; i++) {
			CHECK(vmm_counts(at[i], 7, bytes / 4));
			check_answers(at[i], reserved, at[i], bytes, bytes - 5);
			check_refusals(at[i] + 8 * MIB);
			MUST(cu.cuMemRetainAllocationHandle(&same, (void *)(at[i] + bytes - 1)));
			CHECK(same == handle && cu.cuMemRelease(same) == CUDA_SUCCESS);
			REFUSED(cu.cuMemRetainAllocationHandle(&same, (void *)(at[i] + bytes)));
		}
		vmm_unmap_and_free(at[first], bytes, reserved);
	}
	MUST(cu.cuMemRelease(handle));
	MUST(cu.cuMemFree_v2(block));
}

static void answers_before_access(void)
{
	CUdeviceptr pointer = 1, base = 1;
	size_t size = 1;

	CUdeviceptr at = vmm_reserve(GRANULE);
	handle_id handle = vmm_create(0, GRANULE);
	MUST(cu.cuMemMap(at, GRANULE, 0, handle, 0));
	MUST(cu.cuMemRelease(handle));
	CHECK(cu.cuMemGetAddressRange_v2(&base, &size, at) == CUDA_ERROR_NOT_FOUND && base == 0 && size == 0);
	CHECK(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) == CU_MEMORYTYPE_DEVICE);
	CHECK(attribute(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE);
	CHECK(attribute(CU_POINTER_ATTRIBUTE_MAPPED, at) == 1);
	REFUSED(cu.cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at));
	vmm_unmap_and_free(at, GRANULE, GRANULE);
}

TEST(answers_about_an_address_are_those_of_mapped_memory)
{
	vmm_run(answers);
	vmm_run(answers_of_further_mappings);
	vmm_run(answers_before_access);
}
