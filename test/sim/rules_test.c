/*
 * rules_test.c: the rules that the simulated driver takes from real ones (facts sections 2 and 3), asked of whichever
 * libcuda.so.1 is found: the simulated one in every build, a real one under the label gpu. It links neither.
 *
 * On a real GPU it stays below 256 MiB, touches no managed memory, and does nothing that kills a context. Where a rule
 * is the model's own strictness, the test asks only when sim_calls is there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS(ROW)                                                                                                 \
	ROW(cuInit)                                                                                                    \
	ROW(cuDeviceGetAttribute)                                                                                      \
	ROW(cuDevicePrimaryCtxRetain)                                                                                  \
	ROW(cuDevicePrimaryCtxReset)                                                                                   \
	ROW(cuCtxRecordEvent)                                                                                          \
	ROW(cuDevicePrimaryCtxRelease)                                                                                 \
	ROW(cuCtxSetCurrent)                                                                                           \
	ROW(cuCtxSynchronize)                                                                                          \
	ROW(cuGetProcAddress)                                                                                          \
	ROW(cuMemAllocPitch)                                                                                           \
	ROW(cuMemAddressFree)                                                                                          \
	ROW(cuMemAddressReserve)                                                                                       \
	ROW(cuMemAlloc)                                                                                                \
	ROW(cuMemCreate)                                                                                               \
	ROW(cuMemFree)                                                                                                 \
	ROW(cuMemFreeAsync)                                                                                            \
	ROW(cuMemAllocAsync)                                                                                           \
	ROW(cuMemGetAddressRange)                                                                                      \
	ROW(cuMemGetAllocationGranularity)                                                                             \
	ROW(cuMemHostAlloc)                                                                                            \
	ROW(cuMemFreeHost)                                                                                             \
	ROW(cuMemMap)                                                                                                  \
	ROW(cuMemRelease)                                                                                              \
	ROW(cuMemRetainAllocationHandle)                                                                               \
	ROW(cuMemSetAccess)                                                                                            \
	ROW(cuMemUnmap)                                                                                                \
	ROW(cuMemcpyDtoD)                                                                                              \
	ROW(cuMemcpyDtoH)                                                                                              \
	ROW(cuMemcpyHtoD)                                                                                              \
	ROW(cuMemcpyHtoDAsync)                                                                                         \
	ROW(cuMemsetD8)                                                                                                \
	ROW(cuMemsetD8Async)                                                                                           \
	ROW(cuPointerGetAttribute)                                                                                     \
	ROW(cuPointerGetAttributes)                                                                                    \
	ROW(cuPointerSetAttribute)                                                                                     \
	ROW(cuIpcGetMemHandle)                                                                                         \
	ROW(cuStreamBeginCapture)                                                                                      \
	ROW(cuStreamCreate)                                                                                            \
	ROW(cuStreamDestroy)                                                                                           \
	ROW(cuStreamEndCapture)                                                                                        \
	ROW(cuStreamQuery)                                                                                             \
	ROW(cuStreamSynchronize)                                                                                       \
	ROW(cuEventCreate)                                                                                             \
	ROW(cuEventDestroy)                                                                                            \
	ROW(cuEventQuery)                                                                                              \
	ROW(cuEventRecord)                                                                                             \
	ROW(cuEventSynchronize)                                                                                        \
	ROW(cuGraphDestroy)                                                                                            \
	ROW(cuThreadExchangeStreamCaptureMode)

/* cuda.h gives a base name its newest spelling by #define: the field and the look-up take that one. */
static struct {
#define ROW(name) __typeof__(name) *name;
	FUNCTIONS(ROW)
#undef ROW
} cu;
static void *library;
static bool simulated, host_vmm;
static CUcontext context;

#define MIB         ((size_t)1 << 20)
#define CHUNK       (2 * MIB)
#define ok(call)    assert_int_equal((call), CUDA_SUCCESS)
#define is(e, call) assert_int_equal((call), (e))

#define TEXT_OF(name) #name
#define TEXT(name)    TEXT_OF(name)

static bool load(void)
{
	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library)
		return false;
#define ROW(name)                                                                                                      \
	cu.name = (__typeof__(cu.name))dlsym(library, TEXT(name));                                                     \
	if (!cu.name)                                                                                                  \
		return false;
	FUNCTIONS(ROW)
#undef ROW
	simulated = dlsym(library, "sim_calls") != NULL;
	return true;
}

/* ---- helpers ---- */

static CUmemAllocationProp at_location(CUmemLocationType type)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};

	prop.location.type = type;
	return prop;
}

static CUmemGenericAllocationHandle new_handle(size_t bytes, CUmemLocationType type)
{
	CUmemAllocationProp prop = at_location(type);
	CUmemGenericAllocationHandle handle;

	ok(cu.cuMemCreate(&handle, bytes, &prop, 0));
	return handle;
}

static CUdeviceptr reserve(size_t bytes)
{
	CUdeviceptr at;

	ok(cu.cuMemAddressReserve(&at, bytes, 0, 0, 0));
	return at;
}

static CUresult set_access(CUdeviceptr at, size_t bytes)
{
	CUmemAccessDesc desc = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	desc.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	return cu.cuMemSetAccess(at, bytes, &desc, 1);
}

/* Maps a new handle of this size, with access, and releases the handle. */
static void map_new(CUdeviceptr at, size_t bytes, CUmemLocationType type)
{
	CUmemGenericAllocationHandle handle = new_handle(bytes, type);

	ok(cu.cuMemMap(at, bytes, 0, handle, 0));
	ok(cu.cuMemRelease(handle));
	ok(set_access(at, bytes));
}

static void unmap_and_free(CUdeviceptr at, size_t bytes)
{
	ok(cu.cuMemUnmap(at, bytes));
	ok(cu.cuMemAddressFree(at, bytes));
}

static unsigned long long attribute(CUpointer_attribute which, CUdeviceptr at)
{
	unsigned long long value = 0;

	ok(cu.cuPointerGetAttribute(&value, which, at));
	return value;
}

/* ---- handles and mappings ---- */

static void granularity_is_two_megabytes(void **state)
{
	CUmemAllocationProp prop = at_location(CU_MEM_LOCATION_TYPE_DEVICE);
	CUmemGenericAllocationHandle handle;
	size_t bytes;

	(void)state;
	ok(cu.cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	assert_int_equal(bytes, CHUNK);
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemCreate(&handle, CHUNK + 4096, &prop, 0));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemCreate(&handle, 0, &prop, 0));
}

static void mapping_part_of_a_handle_is_refused(void **state)
{
	CUmemGenericAllocationHandle handle = new_handle(2 * CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	CUdeviceptr at = reserve(2 * CHUNK);

	(void)state;
	is(CUDA_ERROR_NOT_SUPPORTED, cu.cuMemMap(at, CHUNK, CHUNK, handle, 0));
	is(CUDA_ERROR_NOT_SUPPORTED, cu.cuMemMap(at, CHUNK, 0, handle, 0));
	ok(cu.cuMemRelease(handle));
	ok(cu.cuMemAddressFree(at, 2 * CHUNK));
}

static void unmapping_part_of_a_handle_is_refused(void **state)
{
	CUdeviceptr at = reserve(2 * CHUNK);

	(void)state;
	map_new(at, 2 * CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemUnmap(at, CHUNK));
	unmap_and_free(at, 2 * CHUNK);
}

static void one_unmap_may_cover_several_handles(void **state)
{
	CUdeviceptr at = reserve(3 * CHUNK);

	(void)state;
	map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	map_new(at + CHUNK, 2 * CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	unmap_and_free(at, 3 * CHUNK);
}

static void mapping_over_a_mapping_is_refused(void **state)
{
	CUmemGenericAllocationHandle handle = new_handle(CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	CUdeviceptr at = reserve(CHUNK);

	(void)state;
	map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	assert_int_not_equal(cu.cuMemMap(at, CHUNK, 0, handle, 0), CUDA_SUCCESS);
	ok(cu.cuMemRelease(handle));
	unmap_and_free(at, CHUNK);
}

static void mapping_outside_a_reservation_is_refused(void **state)
{
	CUmemGenericAllocationHandle handle = new_handle(2 * CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	CUdeviceptr at = reserve(CHUNK);

	(void)state;
	assert_int_not_equal(cu.cuMemMap(at, 2 * CHUNK, 0, handle, 0), CUDA_SUCCESS);
	ok(cu.cuMemRelease(handle));
	ok(cu.cuMemAddressFree(at, CHUNK));
}

static void freeing_a_reservation_still_mapped_is_refused(void **state)
{
	CUdeviceptr at = reserve(CHUNK);

	(void)state;
	map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	assert_int_not_equal(cu.cuMemAddressFree(at, CHUNK), CUDA_SUCCESS);
	unmap_and_free(at, CHUNK);
}

static void released_handle_lives_while_it_is_mapped(void **state)
{
	CUdeviceptr at = reserve(CHUNK);
	CUmemGenericAllocationHandle handle;
	unsigned char got = 0;

	(void)state;
	map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	ok(cu.cuMemsetD8(at, 0x5A, CHUNK));
	ok(cu.cuMemcpyDtoH(&got, at + CHUNK - 1, 1));
	assert_int_equal(got, 0x5A);
	ok(cu.cuMemRetainAllocationHandle(&handle, (void *)at));
	ok(cu.cuMemUnmap(at, CHUNK));
	ok(cu.cuMemMap(at, CHUNK, 0, handle, 0));
	ok(set_access(at, CHUNK));
	ok(cu.cuMemRelease(handle));
	got = 0;
	ok(cu.cuMemcpyDtoH(&got, at + CHUNK - 1, 1));
	assert_int_equal(got, 0x5A);
	unmap_and_free(at, CHUNK);
}

static void host_numa_current_is_refused(void **state)
{
	CUmemAllocationProp prop = at_location(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
	CUmemGenericAllocationHandle handle;

	(void)state;
	assert_int_not_equal(cu.cuMemCreate(&handle, CHUNK, &prop, 0), CUDA_SUCCESS);
}

static void data_survives_remapping_to_host_memory(void **state)
{
	CUmemGenericAllocationHandle host;
	CUdeviceptr at, alias;
	unsigned char got[64], want[64];

	(void)state;
	if (!host_vmm)
		skip();
	at = reserve(CHUNK);
	alias = reserve(CHUNK);
	host = new_handle(CHUNK, CU_MEM_LOCATION_TYPE_HOST_NUMA);
	map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	ok(cu.cuMemMap(alias, CHUNK, 0, host, 0));
	ok(set_access(alias, CHUNK));
	for (size_t i = 0; i < sizeof(want); i++)
		want[i] = (unsigned char)(i * 7 + 1);
	ok(cu.cuMemcpyHtoD(at + MIB, want, sizeof(want)));
	ok(cu.cuMemcpyDtoD(alias, at, CHUNK));
	ok(cu.cuCtxSynchronize());
	ok(cu.cuMemUnmap(at, CHUNK));
	ok(cu.cuMemMap(at, CHUNK, 0, host, 0));
	ok(set_access(at, CHUNK));
	ok(cu.cuMemcpyDtoH(got, at + MIB, sizeof(got)));
	assert_memory_equal(got, want, sizeof(got));
	ok(cu.cuMemRelease(host));
	unmap_and_free(at, CHUNK);
	unmap_and_free(alias, CHUNK);
}

static void copies_cross_the_border_of_device_and_host_chunks(void **state)
{
	CUdeviceptr at;
	unsigned char *want, *got;

	(void)state;
	if (!host_vmm)
		skip();
	at = reserve(2 * CHUNK);
	want = malloc(2 * CHUNK);
	got = malloc(2 * CHUNK);
	map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	map_new(at + CHUNK, CHUNK, CU_MEM_LOCATION_TYPE_HOST_NUMA);
	for (size_t i = 0; i < 2 * CHUNK; i++)
		want[i] = (unsigned char)(i * 31 >> 3);
	ok(cu.cuMemcpyHtoD(at, want, 2 * CHUNK));
	ok(cu.cuMemcpyDtoH(got, at, 2 * CHUNK));
	assert_memory_equal(got, want, 2 * CHUNK);
	ok(cu.cuMemsetD8(at + CHUNK - 64, 9, 128));
	ok(cu.cuMemcpyDtoH(got, at + CHUNK - 64, 128));
	for (int i = 0; i < 128; i++)
		assert_int_equal(got[i], 9);
	unmap_and_free(at, 2 * CHUNK);
	free(want);
	free(got);
}

/* ---- answers about memory ---- */

static void block_answers_like_cuMemAlloc(void **state)
{
	CUmemGenericAllocationHandle handle;
	CUipcMemHandle ipc;
	CUdeviceptr at, base;
	size_t bytes;
	void *host;

	(void)state;
	ok(cu.cuMemAlloc(&at, 5 * MIB));
	assert_int_equal(at % 512, 0);
	ok(cu.cuMemGetAddressRange(&base, &bytes, at + MIB));
	assert_int_equal(base, at);
	assert_int_equal(bytes, 5 * MIB);
	ok(cu.cuMemGetAddressRange(NULL, &bytes, at));
	ok(cu.cuMemGetAddressRange(&base, NULL, at));
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at), CU_MEMORYTYPE_DEVICE);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_CONTEXT, at), (uintptr_t)context);
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

static void mapped_memory_answers_differently(void **state)
{
	CUdeviceptr at = reserve(2 * CHUNK), base;
	CUipcMemHandle ipc;
	size_t bytes;

	(void)state;
	map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	map_new(at + CHUNK, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
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
	unmap_and_free(at, 2 * CHUNK);
}

static void host_chunk_without_host_access_has_no_host_pointer(void **state)
{
	CUdeviceptr at;
	void *host;

	(void)state;
	if (!host_vmm)
		skip();
	at = reserve(CHUNK);
	map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_HOST_NUMA);
	host = (void *)1;
	is(CUDA_ERROR_INVALID_VALUE, cu.cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at));
	assert_null(host);
	unmap_and_free(at, CHUNK);
}

static void unknown_pointer_fails_alone_and_is_null_in_company(void **state)
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

	(void)state;
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

static void flags_are_four_bytes_wide(void **state)
{
	CUdeviceptr at;

	(void)state;
	ok(cu.cuMemAlloc(&at, 1000));
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

static void asking_for_tokens_turns_sync_memops_on(void **state)
{
	unsigned char tokens[16];
	CUdeviceptr at;

	(void)state;
	ok(cu.cuMemAlloc(&at, MIB));
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at), 0);
	ok(cu.cuPointerGetAttribute(tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, at));
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at), 1);
	ok(cu.cuMemFree(at));
}

static void pitch_is_a_multiple_of_512(void **state)
{
	CUdeviceptr at, base;
	size_t pitch, bytes;

	(void)state;
	ok(cu.cuMemAllocPitch(&at, &pitch, 513, 3, 4));
	assert_int_equal(pitch, 1024);
	ok(cu.cuMemGetAddressRange(&base, &bytes, at));
	assert_int_equal(bytes, 3 * 1024);
	ok(cu.cuMemFree(at));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemAllocPitch(&at, &pitch, 100, 3, 5));
	is(CUDA_ERROR_INVALID_VALUE, cu.cuMemAllocPitch(&at, &pitch, 0, 3, 4));
}

static void async_free_takes_any_block(void **state)
{
	CUdeviceptr block, ordered;
	CUstream stream;

	(void)state;
	ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(cu.cuMemAlloc(&block, MIB));
	ok(cu.cuMemAllocAsync(&ordered, MIB, stream));
	ok(cu.cuMemFreeAsync(block, stream));
	ok(cu.cuStreamSynchronize(stream));
	ok(cu.cuMemFree(ordered));
	ok(cu.cuStreamDestroy(stream));
}

/* ---- look-ups ---- */

static void look_ups_hand_out_exported_addresses(void **state)
{
	static const char *const names[] = {"cuMemAlloc",        "cuMemFree",           "cuLaunchKernel",
					    "cuMemcpyHtoDAsync", "cuStreamSynchronize", "cuGetProcAddress"};
	CUdriverProcAddressQueryResult status;
	void *at;
	Dl_info info;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		for (cuuint64_t flags = 0; flags <= 2; flags++) {
			ok(cu.cuGetProcAddress(names[i], &at, 12000, flags, &status));
			assert_int_equal(status, CU_GET_PROC_ADDRESS_SUCCESS);
			assert_true(dladdr(at, &info) && info.dli_sname);
			assert_int_equal(strncmp(info.dli_sname, names[i], strlen(names[i])), 0);
			ok(cu.cuGetProcAddress(names[i], &at, 12000, flags, NULL));
		}
	}
}

/* ---- capture ---- */

enum what { QUERY_EVENT, SYNC_EVENT, QUERY_STREAM, SYNC_STREAM, ALLOC, SYNC_CONTEXT, VMM, RECORD, COPY };

struct other {
	enum what what;
	bool relaxed;
	CUstream stream;
	CUevent event;
	CUdeviceptr block;
	void *pinned;
	CUresult result;
};

static CUresult do_vmm(void)
{
	CUmemAllocationProp prop = at_location(CU_MEM_LOCATION_TYPE_DEVICE);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;
	CUresult result = cu.cuMemAddressReserve(&at, CHUNK, 0, 0, 0);

	if (!result)
		result = cu.cuMemCreate(&handle, CHUNK, &prop, 0);
	if (!result)
		result = cu.cuMemMap(at, CHUNK, 0, handle, 0);
	if (!result)
		result = set_access(at, CHUNK);
	if (!result)
		result = cu.cuMemUnmap(at, CHUNK);
	if (!result)
		result = cu.cuMemRelease(handle);
	if (!result)
		result = cu.cuMemAddressFree(at, CHUNK);
	return result;
}

static void *on_another_thread(void *argument)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct other *other = argument;
	CUdeviceptr at;

	cu.cuCtxSetCurrent(context);
	if (other->relaxed)
		cu.cuThreadExchangeStreamCaptureMode(&mode);
	switch (other->what) {
	case QUERY_EVENT:
		other->result = cu.cuEventQuery(other->event);
		break;
	case SYNC_EVENT:
		other->result = cu.cuEventSynchronize(other->event);
		break;
	case QUERY_STREAM:
		other->result = cu.cuStreamQuery(other->stream);
		break;
	case SYNC_STREAM:
		other->result = cu.cuStreamSynchronize(other->stream);
		break;
	case ALLOC:
		other->result = cu.cuMemAlloc(&at, MIB);
		if (!other->result)
			cu.cuMemFree(at);
		break;
	case SYNC_CONTEXT:
		other->result = cu.cuCtxSynchronize();
		break;
	case VMM:
		other->result = do_vmm();
		break;
	case RECORD:
		other->result = cu.cuEventRecord(other->event, other->stream);
		break;
	case COPY:
		other->result = cu.cuMemcpyHtoDAsync(other->block, other->pinned, 4096, other->stream);
		break;
	}
	return NULL;
}

/* Captures a set in GLOBAL mode while another thread makes one call; did the capture survive? */
static bool survives(enum what what, bool relaxed)
{
	struct other other = {.what = what, .relaxed = relaxed};
	CUstream stream;
	CUgraph graph = NULL;
	CUresult result;
	pthread_t thread;

	ok(cu.cuMemAlloc(&other.block, 4096));
	ok(cu.cuMemHostAlloc(&other.pinned, 4096, 0));
	memset(other.pinned, 0, 4096);
	ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(cu.cuStreamCreate(&other.stream, CU_STREAM_NON_BLOCKING));
	ok(cu.cuEventCreate(&other.event, 0));
	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ok(cu.cuMemsetD8Async(other.block, 1, 4096, stream));
	pthread_create(&thread, NULL, on_another_thread, &other);
	pthread_join(thread, NULL);
	result = cu.cuStreamEndCapture(stream, &graph);
	if (result) {
		is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, result);
		assert_null(graph);
	} else {
		ok(other.result);
		ok(cu.cuGraphDestroy(graph));
	}
	ok(cu.cuCtxSynchronize());
	ok(cu.cuEventDestroy(other.event));
	ok(cu.cuStreamDestroy(other.stream));
	ok(cu.cuStreamDestroy(stream));
	ok(cu.cuMemFreeHost(other.pinned));
	ok(cu.cuMemFree(other.block));
	return !result;
}

static void unsafe_calls_of_other_threads_invalidate_a_global_capture(void **state)
{
	(void)state;
	assert_false(survives(QUERY_EVENT, false));
	assert_false(survives(SYNC_EVENT, false));
	assert_false(survives(QUERY_STREAM, false));
	assert_false(survives(SYNC_STREAM, false));
	assert_false(survives(ALLOC, false));
	assert_false(survives(SYNC_CONTEXT, false));
}

static void relaxed_threads_are_harmless_but_for_context_synchronize(void **state)
{
	(void)state;
	assert_true(survives(QUERY_EVENT, true));
	assert_true(survives(SYNC_EVENT, true));
	assert_true(survives(QUERY_STREAM, true));
	assert_true(survives(SYNC_STREAM, true));
	assert_true(survives(ALLOC, true));
	assert_false(survives(SYNC_CONTEXT, true));
}

static void mapping_recording_and_copying_never_invalidate(void **state)
{
	(void)state;
	assert_true(survives(VMM, false));
	assert_true(survives(RECORD, false));
	assert_true(survives(COPY, false));
}

/* What pending.c builds on: an event of a context comes after the work of all its streams, and needs no wait. */
static void event_of_a_context_comes_after_all_its_streams(void **state)
{
	CUdeviceptr at;
	CUstream stream[2];
	CUevent event;

	(void)state;
	ok(cu.cuMemAlloc(&at, 64 * MIB));
	ok(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (int i = 0; i < 2; i++) {
		ok(cu.cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
		for (int k = 0; k < 20; k++)
			ok(cu.cuMemsetD8Async(at + (CUdeviceptr)i * 32 * MIB, (unsigned char)k, 32 * MIB, stream[i]));
	}
	ok(cu.cuCtxRecordEvent(context, event));
	ok(cu.cuEventSynchronize(event));
	for (int i = 0; i < 2; i++) {
		ok(cu.cuStreamQuery(stream[i]));
		ok(cu.cuStreamDestroy(stream[i]));
	}
	ok(cu.cuEventDestroy(event));
	ok(cu.cuMemFree(at));
}

static void event_of_a_context_invalidates_its_captures(void **state)
{
	CUstream stream;
	CUevent event;
	CUgraph graph;

	(void)state;
	ok(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	is(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuCtxRecordEvent(context, event));
	is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &graph));
	ok(cu.cuStreamDestroy(stream));
	ok(cu.cuEventDestroy(event));
}

/* The heap keeps its blocks mapped over the end of a context. The last test: everything of the context ends here. */
static void mappings_survive_a_reset_of_the_primary_context(void **state)
{
	CUdeviceptr at = reserve(CHUNK);
	unsigned char byte = 0;

	(void)state;
	map_new(at, CHUNK, CU_MEM_LOCATION_TYPE_DEVICE);
	ok(cu.cuMemsetD8(at, 0x5c, CHUNK));
	ok(cu.cuCtxSynchronize());
	ok(cu.cuDevicePrimaryCtxReset(0));
	ok(cu.cuDevicePrimaryCtxRetain(&context, 0));
	ok(cu.cuCtxSetCurrent(context));
	ok(cu.cuMemcpyDtoH(&byte, at + CHUNK - 1, 1));
	assert_int_equal(byte, 0x5c);
	unmap_and_free(at, CHUNK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(granularity_is_two_megabytes),
	    cmocka_unit_test(mapping_part_of_a_handle_is_refused),
	    cmocka_unit_test(unmapping_part_of_a_handle_is_refused),
	    cmocka_unit_test(one_unmap_may_cover_several_handles),
	    cmocka_unit_test(mapping_over_a_mapping_is_refused),
	    cmocka_unit_test(mapping_outside_a_reservation_is_refused),
	    cmocka_unit_test(freeing_a_reservation_still_mapped_is_refused),
	    cmocka_unit_test(released_handle_lives_while_it_is_mapped),
	    cmocka_unit_test(host_numa_current_is_refused),
	    cmocka_unit_test(data_survives_remapping_to_host_memory),
	    cmocka_unit_test(copies_cross_the_border_of_device_and_host_chunks),
	    cmocka_unit_test(block_answers_like_cuMemAlloc),
	    cmocka_unit_test(mapped_memory_answers_differently),
	    cmocka_unit_test(host_chunk_without_host_access_has_no_host_pointer),
	    cmocka_unit_test(unknown_pointer_fails_alone_and_is_null_in_company),
	    cmocka_unit_test(flags_are_four_bytes_wide),
	    cmocka_unit_test(asking_for_tokens_turns_sync_memops_on),
	    cmocka_unit_test(pitch_is_a_multiple_of_512),
	    cmocka_unit_test(async_free_takes_any_block),
	    cmocka_unit_test(look_ups_hand_out_exported_addresses),
	    cmocka_unit_test(unsafe_calls_of_other_threads_invalidate_a_global_capture),
	    cmocka_unit_test(relaxed_threads_are_harmless_but_for_context_synchronize),
	    cmocka_unit_test(mapping_recording_and_copying_never_invalidate),
	    cmocka_unit_test(event_of_a_context_comes_after_all_its_streams),
	    cmocka_unit_test(event_of_a_context_invalidates_its_captures),
	    cmocka_unit_test(mappings_survive_a_reset_of_the_primary_context),
	};
	int vmm = 0, host = 0, failed;

	if (!load() || cu.cuInit(0)) {
		fprintf(stderr, "no usable libcuda.so.1: skipped\n");
		return 77;
	}
	cu.cuDeviceGetAttribute(&vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
	cu.cuDeviceGetAttribute(&host, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
	host_vmm = host;
	if (!vmm || cu.cuDevicePrimaryCtxRetain(&context, 0) || cu.cuCtxSetCurrent(context)) {
		fprintf(stderr, "no virtual memory management, or no context: skipped\n");
		return 77;
	}
	fprintf(stderr, "the driver is %s\n", simulated ? "simulated" : "real");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	cu.cuDevicePrimaryCtxRelease(0);
	return failed;
}
