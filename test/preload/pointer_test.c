// SPDX-License-Identifier: Apache-2.0
/*
 * What the driver says of an address: a heap block and a cuMemAlloc block of the same driver, side by side
 * (two_homes.yaml gives requests of exactly 4 MiB to the driver).
 */
#include "test/preload/driver.h"
#include "test/test.h"

#define NATIVE_BYTES (4 * MIB)
#define HEAP_BYTES   (6 * MIB)

static CUcontext context;
static CUdeviceptr native, heap;

BEFORE_ALL
{
	context = driver_start(0);
	assert_int_equal(cu.cuMemAlloc_v2(&native, NATIVE_BYTES), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemAlloc_v2(&heap, HEAP_BYTES), CUDA_SUCCESS);
	assert_false(driver_is_heap(native));
	assert_true(driver_is_heap(heap));
}

/* An answer: the result, how many bytes were written, and their value with what differs by nature replaced. */
struct answer {
	CUresult result;
	size_t width;
	unsigned long long value;
};

#define ADDRESS 0xaddaddadd0ull /* the address asked about */
#define BASE    0xba5eba5e0ull
#define SIZE    0x512e512e0ull
#define NUMBER  0x1d1d1d1d0ull

static struct answer ask(CUpointer_attribute attribute, CUdeviceptr block, size_t bytes, size_t offset, bool several)
{
	unsigned char first[16], second[16], *data;
	struct answer answer = {0};

	memset(first, 0x55, sizeof(first));
	memset(second, 0xaa, sizeof(second));
	for (int i = 0; i < 2; i++) {
		void *out = data = i ? second : first;

		answer.result = several ? cu.cuPointerGetAttributes(1, &attribute, &out, block + offset)
					: cu.cuPointerGetAttribute(data, attribute, block + offset);
	}
	/* Written is what is the same over both paddings. */
	while (answer.width < sizeof(first) && first[answer.width] == second[answer.width])
		answer.width++;
	memcpy(&answer.value, first, answer.width < 8 ? answer.width : 8);
	if (answer.value == block + offset && offset)
		answer.value = ADDRESS;
	else if (answer.value == block)
		answer.value = BASE;
	else if (answer.value == bytes)
		answer.value = SIZE;
	else if (answer.result == CUDA_SUCCESS && answer.value &&
		 (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID || attribute == CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID))
		answer.value = NUMBER;
	return answer;
}

/* Where a heap block cannot or must not be like a cuMemAlloc block (docs/facts.md, Pointer queries). */
static bool may_differ(CUpointer_attribute attribute)
{
	return attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE ||
	       attribute == CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE ||
	       attribute == CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
}

static void compare_all(bool several)
{
	/* Asking for P2P_TOKENS turns SYNC_MEMOPS on where there are any: not asked before the others. */
	for (int attribute = -1; attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE + 2; attribute++) {
		for (size_t offset = 0; offset <= 4096; offset += 4096) {
			if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
				continue;
			struct answer driver = ask(attribute, native, NATIVE_BYTES, offset, several);
			struct answer ours = ask(attribute, heap, HEAP_BYTES, offset, several);

			if (may_differ(attribute)) {
				if (ours.width != driver.width)
					fail_msg("attribute %d is %zu bytes wide, the driver's %zu", attribute,
						 ours.width, driver.width);
				continue;
			}
			if (ours.result != driver.result || ours.width != driver.width || ours.value != driver.value)
				fail_msg("attribute %d at offset %zu%s: result %d, %zu bytes, %#llx; the driver's %d, "
					 "%zu, %#llx",
					 attribute, offset, several ? " (several)" : "", ours.result, ours.width,
					 ours.value, driver.result, driver.width, driver.value);
		}
	}
}

TEST(every_attribute_is_as_of_a_driver_block)
{
	compare_all(false);
}

TEST(every_attribute_asked_for_with_others_is_as_of_a_driver_block)
{
	compare_all(true);
}

/* Measured on an H200, driver 580.159. */
TEST(answers_are_those_of_a_real_driver)
{
	unsigned word = 7;
	void *host = &word;
	CUcontext of = NULL;
	CUpointer_attribute unknown = (CUpointer_attribute)99;
	void *data = &word;

	for (int i = 0; i < 2; i++) {
		CUdeviceptr block = i ? heap : native;

		assert_int_equal(cu.cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block), 0);
		assert_int_equal(word, 0);
		assert_int_equal(cu.cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MAPPED, block), 0);
		assert_int_equal(word, 1);
		assert_int_equal(cu.cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block), 0);
		assert_int_equal(word, CU_MEMORYTYPE_DEVICE);
		assert_int_equal(cu.cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, block), 0);
		assert_ptr_equal(of, context);
		host = &word;
		assert_int_equal(cu.cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, block),
				 CUDA_ERROR_INVALID_VALUE);
		assert_null(host);
		assert_int_equal(cu.cuPointerGetAttributes(1, &unknown, &data, block), CUDA_ERROR_INVALID_VALUE);
		assert_int_equal(cu.cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MAPPED, block),
				 CUDA_ERROR_INVALID_VALUE);
	}
}

TEST(ids_tell_blocks_apart)
{
	unsigned long long ids[3];
	CUdeviceptr other;

	assert_int_equal(cu.cuMemAlloc_v2(&other, 4096), CUDA_SUCCESS);
	assert_int_equal(cu.cuPointerGetAttribute(&ids[0], CU_POINTER_ATTRIBUTE_BUFFER_ID, heap), 0);
	assert_int_equal(cu.cuPointerGetAttribute(&ids[1], CU_POINTER_ATTRIBUTE_BUFFER_ID, other), 0);
	assert_int_equal(cu.cuPointerGetAttribute(&ids[2], CU_POINTER_ATTRIBUTE_BUFFER_ID, native), 0);
	assert_true(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
	assert_int_equal(cu.cuMemFree_v2(other), CUDA_SUCCESS);
	/* The same address, another allocation: another id; frameworks have caches keyed by it. */
	assert_int_equal(cu.cuMemAlloc_v2(&other, 4096), CUDA_SUCCESS);
	assert_int_equal(cu.cuPointerGetAttribute(&ids[2], CU_POINTER_ATTRIBUTE_BUFFER_ID, other), 0);
	assert_true(ids[2] != ids[1]);
	assert_int_equal(cu.cuMemFree_v2(other), CUDA_SUCCESS);
}

/* A stranger: success; HOST_POINTER is the address, DEVICE_ORDINAL -2, ranges untouched, the rest zero (H200). */
static void must_be_a_stranger(CUdeviceptr address)
{
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_HOST_POINTER,     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				       CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
				       CU_POINTER_ATTRIBUTE_CONTEXT,          CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				       CU_POINTER_ATTRIBUTE_DEVICE_POINTER,   CU_POINTER_ATTRIBUTE_BUFFER_ID,
				       CU_POINTER_ATTRIBUTE_IS_MANAGED,       CU_POINTER_ATTRIBUTE_MAPPED};
	unsigned long long value[10] = {7, 7, 7, 7, 7, 7, 7, 7, 7, 7};
	void *data[10];
	unsigned word = 0;

	for (int i = 0; i < 10; i++)
		data[i] = &value[i];
	assert_int_equal(cu.cuPointerGetAttributes(10, which, data, address), CUDA_SUCCESS);
	assert_int_equal(value[0], address);
	assert_int_equal((int)value[1], -2);
	assert_int_equal(value[2], 7);
	assert_int_equal(value[3], 7);
	for (int i = 4; i < 10; i++)
		assert_int_equal((unsigned)value[i], 0);
	assert_int_equal(cu.cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
			 CUDA_ERROR_INVALID_VALUE);
}

TEST(unknown_addresses_are_strangers_wherever_they_lie)
{
	int variable;

	must_be_a_stranger((CUdeviceptr)&variable);
	must_be_a_stranger(heap + (CUdeviceptr)64 * MIB); /* in the heap's address space, nothing there */
	must_be_a_stranger(heap + HEAP_BYTES);
}

TEST(a_freed_block_is_a_stranger)
{
	CUdeviceptr block;

	assert_int_equal(cu.cuMemAlloc_v2(&block, 10 * MIB), CUDA_SUCCESS);
	assert_int_equal(cu.cuMemFree_v2(block), CUDA_SUCCESS);
	must_be_a_stranger(block);
	must_be_a_stranger(block + 5 * MIB);
}

/* Peers get no tokens for memory that may move: a clear refusal, and nothing written. */
TEST(p2p_tokens_are_refused)
{
	unsigned char tokens[32] = {0}, nothing[32] = {0};

	assert_int_not_equal(cu.cuPointerGetAttribute(tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, heap), CUDA_SUCCESS);
	assert_memory_equal(tokens, nothing, sizeof(tokens));
}

TEST(sync_memops_can_be_set_and_nothing_else)
{
	unsigned on = 1, off = 0, word = 7;

	for (int i = 0; i < 2; i++) {
		CUdeviceptr block = i ? heap : native;

		assert_int_equal(cu.cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block), CUDA_SUCCESS);
		assert_int_equal(cu.cuMemsetD32_v2(block, 7, 100), CUDA_SUCCESS);
		assert_int_equal(cu.cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block), 0);
		assert_int_equal(word, 1);
		assert_int_equal(cu.cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block), CUDA_SUCCESS);
		assert_int_equal(cu.cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block),
				 CUDA_ERROR_INVALID_VALUE);
		assert_int_equal(cu.cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block),
				 CUDA_ERROR_INVALID_VALUE);
	}
}
