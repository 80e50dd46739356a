// SPDX-License-Identifier: Apache-2.0
#include "test/preload/home.h"

/* ---- contents ---- */

static bool all_are(CUdeviceptr block, unsigned value, size_t n)
{
	const unsigned *word = home_words(block);

	for (size_t i = 0; i < n; i++)
		if (word[i] != value)
			return false;
	return true;
}

void home_serves_both_sides(CUdeviceptr block, size_t bytes)
{
	unsigned *word = home_words(block), last = (unsigned)(bytes / 4 - 1), seen = 0;
	CUdeviceptr other = child_alloc(bytes);

	MUST(driver_fill(NULL, block, 7, bytes / 4));
	MUST(cu.cuCtxSynchronize());
	CHECK(all_are(block, 7, bytes / 4));
	word[0] = 8;
	word[last] = 9;
	MUST(driver_copy(NULL, other, block, bytes / 4));
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuMemcpyDtoH_v2(&seen, other, 4));
	CHECK(seen == 8);
	MUST(cu.cuMemcpyDtoH_v2(&seen, other + 4 * (CUdeviceptr)last, 4));
	CHECK(seen == 9);
	/* And again, now that the pages are where the CPU wrote them. */
	MUST(driver_fill(NULL, block, 10, bytes / 4));
	MUST(cu.cuCtxSynchronize());
	CHECK(all_are(block, 10, bytes / 4));
	MUST(cu.cuMemFree_v2(other));
}

static void copy_rows(CUdeviceptr block, CUdeviceptr device)
{
	CUDA_MEMCPY2D rows = form_rows(device, block, 1024, 500, 100);

	rows.dstPitch = 512;
	for (unsigned i = 0; i < 100; i++)
		home_words(block)[i * 256] = i;
	MUST(cuMemcpy2D_v2(&rows));
	for (unsigned i = 0, seen; i < 100; i++) {
		MUST(cu.cuMemcpyDtoH_v2(&seen, device + i * 512, 4));
		CHECK(seen == i);
	}
	rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
	rows.srcDevice = device;
	rows.srcPitch = 512;
	rows.dstDevice = block + 512;
	rows.dstPitch = 1024;
	MUST(cuMemcpy2D_v2(&rows));
	CHECK(home_words(block)[128 + 99 * 256] == 99);
}

void home_copies_and_sets(CUdeviceptr block, size_t bytes)
{
	CUdeviceptr other = child_alloc(bytes), pooled;
	unsigned *host = malloc(bytes);
	void *pinned;

	MUST(cu.cuMemAllocAsync(&pooled, bytes, NULL));
	MUST(cu.cuMemHostAlloc(&pinned, bytes, 0));
	MUST(cu.cuMemsetD32_v2(block, 0x11, bytes / 4));
	MUST(cu.cuMemcpyDtoD_v2(other, block, bytes));
	MUST(cu.cuMemcpyDtoD_v2(pooled, other, bytes));
	MUST(cu.cuMemsetD8Async(block, 0, bytes, NULL));
	MUST(cu.cuMemcpyDtoD_v2(block, pooled, bytes));
	MUST(cu.cuMemcpyDtoHAsync_v2(pinned, block, bytes, NULL));
	MUST(cu.cuMemcpyDtoH_v2(host, block, bytes));
	CHECK(host[0] == 0x11 && host[bytes / 4 - 1] == 0x11 && !memcmp(host, pinned, bytes));
	memset(host, 5, bytes);
	MUST(cu.cuMemcpyHtoD_v2(block, host, bytes));
	MUST(cuMemcpy(other, block, bytes));
	CHECK(all_are(block, 0x05050505, bytes / 4) && driver_holds(other, 0x05050505, bytes / 4));
	copy_rows(block, other);
	MUST(cu.cuMemFree_v2(other));
	MUST(cu.cuMemFreeAsync(pooled, NULL));
	MUST(cu.cuMemFreeHost(pinned));
	free(host);
}

/* ---- answers ---- */

static void answers_for_several(CUdeviceptr at, CUdeviceptr block, size_t bytes, bool is_managed)
{
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
				       CU_POINTER_ATTRIBUTE_HOST_POINTER,     CU_POINTER_ATTRIBUTE_IS_MANAGED,
				       CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	CUdeviceptr device = 0, host = 0, start = 0;
	unsigned type = 77, managed = 77;
	size_t size = 0;
	void *data[] = {&type, &device, &host, &managed, &start, &size};

	MUST(cu.cuPointerGetAttributes(6, which, data, at));
	CHECK(type == CU_MEMORYTYPE_DEVICE && device == at && host == at);
	CHECK(managed == (is_managed ? 1 : 0) && start == block && size == bytes);
}

void home_answers(CUdeviceptr block, size_t bytes, bool is_managed)
{
	const size_t offsets[] = {0, 1, 4096, bytes - 1};
	unsigned on = 1;
	CUipcMemHandle handle;
	CUdeviceptr base;
	size_t size;
	CUcontext current = driver_current();

	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		CUdeviceptr at = block + offsets[i];

		CHECK(driver_attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) == CU_MEMORYTYPE_DEVICE);
		CHECK(driver_attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, at) == (is_managed ? 1 : 0));
		CHECK(driver_attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at) == 0);
		CHECK(driver_attribute(CU_POINTER_ATTRIBUTE_CONTEXT, at) == (uintptr_t)current);
		MUST(cu.cuMemGetAddressRange_v2(&base, &size, at));
		CHECK(base == block && size == bytes);
		answers_for_several(at, block, bytes, is_managed);
	}
	MUST(cu.cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block + 8));
	CHECK(driver_attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block) == 1);
	MUST(cu.cuMemsetD32_v2(block, 0, bytes / 4));
	CHECK(cu.cuIpcGetMemHandle(&handle, block) == CUDA_ERROR_INVALID_VALUE);
}

/* ---- ends ---- */

static void refuses(CUdeviceptr block, size_t offset)
{
	CHECK(cu.cuMemFree_v2(block + offset) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cu.cuMemFreeAsync(block + offset, NULL) == CUDA_ERROR_INVALID_VALUE);
}

static CUdeviceptr new_block(size_t bytes, bool (*is_home)(CUdeviceptr block))
{
	CUdeviceptr block = child_alloc(bytes);

	CHECK(is_home(block));
	return block;
}

static void is_freed_once(size_t bytes, bool (*is_home)(CUdeviceptr block))
{
	CUdeviceptr block = new_block(bytes, is_home), behind = new_block(bytes, is_home);

	refuses(block, 4);
	refuses(block, bytes / 2);
	CHECK(child_is_alive(block) && child_is_alive(behind));
	MUST(cu.cuMemFree_v2(block));
	refuses(block, 0);
	CHECK(!child_is_alive(block));
	MUST(driver_fill(NULL, behind, 3, bytes / 4));
	MUST(cu.cuMemFree_v2(behind));
}

/* The block is the program's until the stream gets there, and nobody's meanwhile for whoever frees it again. */
static void is_freed_behind_a_stream(size_t bytes, bool (*is_home)(CUdeviceptr block))
{
	CUdeviceptr block = new_block(bytes, is_home);
	CUstream stream = child_stream();
	unsigned *word = child_hold(stream);

	MUST(driver_fill(stream, block, 5, bytes / 4));
	MUST(cu.cuMemFreeAsync(block, stream));
	refuses(block, 0);
	CUdeviceptr other = new_block(bytes, is_home);
	CHECK(other != block);
	child_release(word);
	MUST(cu.cuStreamSynchronize(stream));
	MUST(cu.cuMemFree_v2(other));
	MUST(cu.cuStreamDestroy_v2(stream));
	MUST(cu.cuMemFree_v2(new_block(bytes, is_home))); /* an allocation looks at what streams have passed */
	CHECK(!child_is_alive(block));
}

static void is_freed_in_a_capture(size_t bytes, bool (*is_home)(CUdeviceptr block))
{
	CUdeviceptr block = new_block(bytes, is_home);
	CUstream stream = child_stream();

	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK(cu.cuMemFreeAsync(block, stream) == CUDA_ERROR_INVALID_VALUE);
	MUST(cu.cuMemFree_v2(block));
	refuses(block, 0);
	driver_forget_capture(stream);
	MUST(cu.cuStreamDestroy_v2(stream));
	refuses(block, 0);
}

static void is_gone_with_its_context(size_t bytes, bool (*is_home)(CUdeviceptr block))
{
	CUcontext first = driver_current(), second = child_context();
	CUdeviceptr block = new_block(bytes, is_home);

	MUST(cu.cuCtxDestroy_v2(second));
	MUST(cu.cuCtxSetCurrent(first));
	CHECK(!child_is_alive(block));
	refuses(block, 0);
}

void home_frees(size_t bytes, bool (*is_home)(CUdeviceptr block))
{
	struct sim_live live[2];

	/* The first time round the heap comes, and stays; what is pending goes with the next free. */
	for (int i = 0; i < 2; i++) {
		is_freed_once(bytes, is_home);
		is_freed_behind_a_stream(bytes, is_home);
		is_freed_in_a_capture(bytes, is_home);
		is_gone_with_its_context(bytes, is_home);
		MUST(cu.cuCtxSynchronize());
		MUST(cu.cuMemFree_v2(new_block(bytes, is_home)));
		live[i] = sim_live();
		live[i].host_bytes = 0; /* child_hold() takes some each time */
		live[i].allocations -= (size_t)i;
	}
	CHECK(!memcmp(&live[0], &live[1], sizeof(live[0])));
	CHECK(sim_broken_rules() == 0);
}
