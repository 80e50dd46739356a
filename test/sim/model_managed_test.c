// SPDX-License-Identifier: Apache-2.0
/*
 * model_managed_test.c: what the simulated GPU promises (model.h) about managed memory: where its pages are, what
 * brings them and what takes them away, what advice and prefetch do. Where each rule comes from says the head of
 * sim_managed.c.
 */
#include "model.h"

#define PAGE    ((size_t)64 << 10)
#define WORDS   (PAGE / 4)
#define CPU     1u
#define DEVICE  2u
#define GPU_0   ((CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE})
#define HOST    ((CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST})
#define NUMA_0  ((CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA})
#define NOWHERE ((CUmemLocation){.type = CU_MEM_LOCATION_TYPE_INVALID})

static CUdeviceptr managed(size_t bytes)
{
	CUdeviceptr at;

	ok(cuMemAllocManaged(&at, bytes, CU_MEM_ATTACH_GLOBAL));
	return at;
}

/* What has been counted since the last call. */
static struct sim_managed since(void)
{
	static struct sim_managed last;
	struct sim_managed now = sim_managed(), difference = now;

	difference.gpu_faults -= last.gpu_faults;
	difference.cpu_faults -= last.cpu_faults;
	difference.evictions -= last.evictions;
	difference.bytes_in -= last.bytes_in;
	difference.bytes_out -= last.bytes_out;
	last = now;
	return difference;
}

static size_t pages_on(CUdeviceptr at, size_t bytes, unsigned where)
{
	size_t n = 0;

	for (size_t i = 0; i < bytes; i += PAGE)
		n += sim_managed_where(at + i) == where;
	return n;
}

/* A kernel writes all of it; a kernel reads all of it (and writes to memory of its own). */
static void device_writes(CUdeviceptr at, size_t bytes, uint32_t value)
{
	ok(model_launch_fill(at, value, bytes / 4, 0));
	ok(cuCtxSynchronize());
}

static void device_reads(CUdeviceptr at, size_t bytes)
{
	unsigned char add = 0;
	CUdeviceptr out = model_alloc(bytes);

	struct model_pair pair = {(uint32_t *)at, (uint32_t *)out, (uint32_t)(bytes / 4)};
	void *args[] = {&add, &pair};
	ok(cuLaunchKernel(model_pair, 1, 1, 1, 1, 1, 1, 0, 0, args, NULL));
	ok(cuCtxSynchronize());
	ok(cuMemFree(out));
}

/* The CPU reads it, in a call of the driver that is given it as host memory. */
static void cpu_reads(CUdeviceptr at, size_t bytes)
{
	CUdeviceptr out = model_alloc(bytes);

	ok(cuMemcpyHtoD(out, (void *)at, bytes));
	ok(cuCtxSynchronize());
	ok(cuMemFree(out));
}

TEST(pages_appear_where_they_are_touched_first)
{
	CUdeviceptr at = managed(4 * PAGE);

	since();
	assert_int_equal(pages_on(at, 4 * PAGE, 0), 4);
	device_writes(at, PAGE, 1);
	cpu_reads(at + PAGE, PAGE);
	assert_int_equal(sim_managed_where(at), DEVICE);
	assert_int_equal(sim_managed_where(at + PAGE), CPU);
	assert_int_equal(sim_managed_where(at + 2 * PAGE), 0);
	struct sim_managed seen = since();
	assert_int_equal(seen.gpu_faults, 1);
	assert_int_equal(seen.cpu_faults, 1);
	assert_int_equal(seen.bytes_in + seen.bytes_out, 0);
	assert_int_equal(seen.resident, PAGE);
	ok(cuMemFree(at));
	assert_int_equal(since().resident, 0);
}

TEST(one_address_serves_both_sides_and_pages_follow)
{
	CUdeviceptr at = managed(2 * PAGE);
	uint32_t *words = (uint32_t *)at;

	since();
	words[0] = 4711; /* not seen by the model, but there */
	device_writes(at + PAGE, PAGE, 7);
	assert_true(sim_managed_is_dirty(at + PAGE));
	assert_int_equal(words[WORDS], 7);
	assert_int_equal(words[2 * WORDS - 1], 7 + WORDS - 1);
	cpu_reads(at, 2 * PAGE);
	assert_int_equal(pages_on(at, 2 * PAGE, CPU), 2);
	assert_false(sim_managed_is_dirty(at + PAGE));
	assert_int_equal(since().bytes_out, PAGE);
	device_reads(at, 2 * PAGE);
	assert_int_equal(pages_on(at, 2 * PAGE, DEVICE), 2);
	assert_false(sim_managed_is_dirty(at));
	struct sim_managed seen = since();
	assert_int_equal(seen.gpu_faults, 2);
	assert_int_equal(seen.bytes_in, 2 * PAGE);
	device_reads(at, 2 * PAGE); /* they are there: nothing happens */
	device_writes(at, 2 * PAGE, 9);
	assert_int_equal(since().gpu_faults, 0);
	assert_true(sim_managed_is_dirty(at));
}

TEST(copies_and_sets_touch_like_kernels)
{
	uint32_t word[2] = {5, 6};
	CUdeviceptr at = managed(3 * PAGE);

	since();
	ok(cuMemsetD32(at, 3, WORDS));
	ok(cuMemcpyHtoD(at + PAGE, word, 8));
	ok(cuMemcpyDtoD(at + 2 * PAGE, at + PAGE, 8));
	ok(cuCtxSynchronize());
	assert_int_equal(since().gpu_faults, 3);
	ok(cuMemcpyDtoH(word, at, 4)); /* a read by the device, too */
	assert_int_equal(word[0], 3);
	assert_int_equal(((uint32_t *)at)[2 * WORDS + 1], 6);
	assert_int_equal(since().cpu_faults, 0);
}

TEST(memory_larger_than_the_device_works_and_the_oldest_pages_go)
{
	enum { PAGES = 64, ROOM = 16 };
	size_t is_free, total;

	sim_switch("MEMORY", ROOM * PAGE);
	CUdeviceptr at = managed(PAGES * PAGE);
	since();
	device_writes(at, PAGES * PAGE, 100);
	assert_int_equal(pages_on(at, PAGES * PAGE, CPU), PAGES - ROOM);
	assert_int_equal(pages_on(at + (PAGES - ROOM) * PAGE, ROOM * PAGE, DEVICE), ROOM);
	struct sim_managed seen = since();
	assert_int_equal(seen.gpu_faults, PAGES);
	assert_int_equal(seen.evictions, PAGES - ROOM);
	assert_int_equal(seen.bytes_out, (PAGES - ROOM) * PAGE);
	assert_int_equal(seen.bytes_in, 0);
	ok(cuMemGetInfo(&is_free, &total));
	assert_int_equal(is_free, 0);
	for (size_t i = 0; i < PAGES * WORDS; i++)
		if (((uint32_t *)at)[i] != 100 + i)
			fail_msg("word %zu is lost", i);
	sim_switch("MEMORY", 256 * MIB);
}

TEST(what_is_allocated_takes_room_from_what_is_managed)
{
	sim_switch("MEMORY", 4 * MIB);
	CUdeviceptr at = managed(4 * MIB);
	device_writes(at, 4 * MIB, 1);
	since();
	model_alloc(4 * MIB);
	struct sim_managed seen = since();
	assert_int_equal(seen.evictions, 4 * MIB / PAGE);
	assert_int_equal(seen.resident, 0);
	/* And never the other way round: the device reaches what has no room. */
	device_writes(at, 4 * MIB, 2);
	assert_int_equal(pages_on(at, 4 * MIB, CPU), 4 * MIB / PAGE);
	assert_int_equal(((uint32_t *)at)[MIB - 1], 1 + MIB);
	sim_switch("MEMORY", 256 * MIB);
}

/* ---- advice ---- */

TEST(preferred_on_the_host_is_reached_over_the_link)
{
	CUdeviceptr at = managed(2 * PAGE);

	ok(cuMemAdvise(at, 2 * PAGE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, HOST));
	since();
	device_writes(at, 2 * PAGE, 1);
	device_writes(at, 2 * PAGE, 2);
	assert_int_equal(pages_on(at, 2 * PAGE, CPU), 2);
	struct sim_managed seen = since();
	assert_int_equal(seen.gpu_faults, 2);
	assert_int_equal(seen.bytes_in, 0);
	ok(cuMemAdvise(at, 2 * PAGE, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, HOST));
	cpu_reads(at, 2 * PAGE);
}

TEST(a_page_not_where_it_is_preferred_migrates)
{
	CUdeviceptr at = managed(PAGE);

	device_writes(at, PAGE, 1);
	ok(cuMemAdvise(at, PAGE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, GPU_0));
	cpu_reads(at, PAGE); /* the CPU cannot map the device's memory */
	assert_int_equal(sim_managed_where(at), CPU);
	device_reads(at, PAGE);
	assert_int_equal(sim_managed_where(at), DEVICE);
}

TEST(who_is_said_to_access_maps_without_faults)
{
	CUdeviceptr at = managed(PAGE);

	cpu_reads(at, PAGE);
	ok(cuMemAdvise(at, PAGE, CU_MEM_ADVISE_SET_ACCESSED_BY, GPU_0));
	since();
	device_writes(at, PAGE, 1);
	assert_int_equal(sim_managed_where(at), CPU);
	assert_int_equal(since().gpu_faults, 0);
	ok(cuMemAdvise(at, PAGE, CU_MEM_ADVISE_UNSET_ACCESSED_BY, GPU_0));
	device_writes(at, PAGE, 2);
	assert_int_equal(sim_managed_where(at), DEVICE);
	assert_int_equal(since().gpu_faults, 1);
}

TEST(read_mostly_pages_are_duplicated_until_they_are_written)
{
	CUdeviceptr at = managed(PAGE);

	((uint32_t *)at)[0] = 8;
	cpu_reads(at, PAGE);
	ok(cuMemAdvise(at, PAGE, CU_MEM_ADVISE_SET_READ_MOSTLY, HOST));
	since();
	device_reads(at, PAGE);
	assert_int_equal(sim_managed_where(at), CPU | DEVICE);
	cpu_reads(at, PAGE);
	struct sim_managed seen = since();
	assert_int_equal(seen.gpu_faults, 1);
	assert_int_equal(seen.cpu_faults, 0);
	assert_int_equal(seen.bytes_in, PAGE);
	device_writes(at, PAGE, 1);
	assert_int_equal(sim_managed_where(at), DEVICE);
	assert_int_equal(since().gpu_faults, 1);
	cpu_reads(at, PAGE);
	assert_int_equal(sim_managed_where(at), CPU | DEVICE);
	ok(cuMemAdvise(at, PAGE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, GPU_0));
	ok(cuMemAdvise(at, PAGE, CU_MEM_ADVISE_UNSET_READ_MOSTLY, HOST));
	assert_int_equal(sim_managed_where(at), DEVICE);
}

TEST(evicting_a_duplicate_moves_nothing)
{
	sim_switch("MEMORY", 4 * MIB);
	CUdeviceptr at = managed(PAGE);
	cpu_reads(at, PAGE);
	ok(cuMemAdvise(at, PAGE, CU_MEM_ADVISE_SET_READ_MOSTLY, HOST));
	ok(cuMemPrefetchAsync(at, PAGE, GPU_0, 0, 0));
	ok(cuCtxSynchronize());
	assert_int_equal(sim_managed_where(at), CPU | DEVICE);
	since();
	model_alloc(4 * MIB);
	assert_int_equal(sim_managed_where(at), CPU);
	struct sim_managed seen = since();
	assert_int_equal(seen.evictions, 1);
	assert_int_equal(seen.bytes_out, 0);
	sim_switch("MEMORY", 256 * MIB);
}

/* ---- prefetch ---- */

TEST(a_prefetch_moves_in_its_turn_and_spares_the_faults)
{
	CUdeviceptr at = managed(4 * PAGE);
	CUstream stream = model_stream();

	cpu_reads(at, 2 * PAGE);
	since();
	ok(model_launch_gate(stream));
	ok(cuMemPrefetchAsync(at, 4 * PAGE, GPU_0, 0, stream));
	assert_int_equal(pages_on(at, 4 * PAGE, DEVICE), 0);
	atomic_store(&model_gate, true);
	ok(cuStreamSynchronize(stream));
	assert_int_equal(pages_on(at, 4 * PAGE, DEVICE), 4);
	device_writes(at, 4 * PAGE, 1);
	struct sim_managed seen = since();
	assert_int_equal(seen.gpu_faults, 0);
	assert_int_equal(seen.bytes_in, 2 * PAGE); /* the others were nowhere */
	ok(cuMemPrefetchAsync(at, PAGE, HOST, 0, stream));
	ok(cuStreamSynchronize(stream));
	assert_int_equal(sim_managed_where(at), CPU);
	assert_int_equal(since().bytes_out, PAGE);
}

static CUresult (*old_prefetch)(CUdeviceptr, size_t, CUdevice, CUstream);
static CUresult (*old_advise)(CUdeviceptr, size_t, CUmem_advise, CUdevice);

static void look_up_the_old_spellings(void)
{
	ok(cuGetProcAddress("cuMemPrefetchAsync", (void **)&old_prefetch, 8000, 0, NULL));
	ok(cuGetProcAddress("cuMemAdvise", (void **)&old_advise, 8000, 0, NULL));
	assert_ptr_not_equal(old_prefetch, &cuMemPrefetchAsync);
}

TEST(the_spellings_of_cuda_8_name_devices)
{
	CUdeviceptr at = managed(PAGE);
	int value[2];

	look_up_the_old_spellings();
	ok(old_prefetch(at, PAGE, 0, 0));
	ok(cuCtxSynchronize());
	assert_int_equal(sim_managed_where(at), DEVICE);
	ok(old_prefetch(at, PAGE, CU_DEVICE_CPU, 0));
	ok(old_advise(at, PAGE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
	ok(old_advise(at, PAGE, CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
	ok(cuCtxSynchronize());
	assert_int_equal(sim_managed_where(at), CPU);
	ok(cuMemRangeGetAttribute(value, 4, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, at, PAGE));
	assert_int_equal(value[0], CU_DEVICE_CPU);
	ok(cuMemRangeGetAttribute(value, 8, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, at, PAGE));
	assert_int_equal(value[0], 0);
	assert_int_equal(value[1], CU_DEVICE_INVALID);
	is(CUDA_ERROR_INVALID_DEVICE, old_prefetch(at, PAGE, 7, 0));
	is(CUDA_ERROR_INVALID_DEVICE, old_advise(at, PAGE, CU_MEM_ADVISE_SET_ACCESSED_BY, 7));
	ok(old_advise(at, PAGE, CU_MEM_ADVISE_SET_READ_MOSTLY, 7)); /* the device is ignored */
}

/* ---- questions, errors ---- */

TEST(a_range_has_what_all_its_pages_have)
{
	CUdeviceptr at = managed(2 * PAGE);
	int value, type;
	void *data[] = {&value, &type};
	size_t sizes[] = {4, 4};
	CUmem_range_attribute which[] = {CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
					 CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE};

	ok(cuMemAdvise(at, PAGE, CU_MEM_ADVISE_SET_READ_MOSTLY, HOST));
	ok(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at, PAGE));
	assert_int_equal(value, 1);
	ok(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at, 2 * PAGE));
	assert_int_equal(value, 0);
	ok(cuMemPrefetchAsync(at, PAGE, GPU_0, 0, 0));
	ok(cuMemRangeGetAttributes(data, sizes, which, 2, at, PAGE));
	assert_int_equal(value, 0);
	assert_int_equal(type, CU_MEM_LOCATION_TYPE_DEVICE);
	ok(cuMemRangeGetAttributes(data, sizes, which, 2, at, 2 * PAGE));
	assert_int_equal(value, CU_DEVICE_INVALID);
	assert_int_equal(type, CU_MEM_LOCATION_TYPE_INVALID);
	is(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(&value, 8, which[0], at, PAGE));
	is(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(&value, 4, which[0], at, 3 * PAGE));
	ok(cuCtxSynchronize());
}

TEST(only_managed_memory_takes_advice)
{
	void *own = malloc(PAGE);
	CUdeviceptr at = managed(PAGE), block = model_alloc(PAGE);

	is(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(block, PAGE, CU_MEM_ADVISE_SET_READ_MOSTLY, HOST));
	is(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(block, PAGE, GPU_0, 0, 0));
	is(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync((CUdeviceptr)own, PAGE, GPU_0, 0, 0));
	is(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(at, PAGE + 1, GPU_0, 0, 0));
	is(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(at, 0, GPU_0, 0, 0));
	is(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(at, PAGE, GPU_0, 1, 0));
	is(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(at, PAGE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, NOWHERE));
	is(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(at, PAGE, CU_MEM_ADVISE_SET_ACCESSED_BY, NUMA_0));
	is(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(at, PAGE, (CUmem_advise)77, HOST));
	sim_switch("PAGEABLE", 1);
	ok(cuMemPrefetchAsync((CUdeviceptr)own, PAGE, GPU_0, 0, 0));
	ok(cuMemAdvise((CUdeviceptr)own, PAGE, CU_MEM_ADVISE_SET_READ_MOSTLY, HOST));
	is(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(4096, PAGE, GPU_0, 0, 0));
	is(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(block, PAGE, GPU_0, 0, 0));
	ok(cuCtxSynchronize());
	sim_switch("PAGEABLE", 0);
	free(own);
}

TEST(a_device_with_pageable_access_reaches_what_the_process_has)
{
	uint32_t *own = calloc(WORDS, 4), word = 0;
	int value;

	ok(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0));
	assert_int_equal(value, 0);
	is(CUDA_ERROR_INVALID_VALUE, cuMemsetD32((CUdeviceptr)own, 3, WORDS));
	sim_switch("PAGEABLE", 1);
	ok(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0));
	assert_int_equal(value, 1);
	ok(cuMemsetD32((CUdeviceptr)own, 3, WORDS));
	ok(cuMemcpyDtoH(&word, (CUdeviceptr)own, 4));
	assert_int_equal(word, 3);
	ok(model_launch_fill((CUdeviceptr)own, 9, WORDS, 0));
	ok(cuCtxSynchronize());
	assert_int_equal(own[1], 10);
	sim_switch("PAGEABLE", 0);
	free(own);
}

TEST(without_concurrent_access_it_is_device_memory)
{
	CUdeviceptr at;
	int value;

	sim_switch("CONCURRENT_MANAGED", 0);
	ok(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
	assert_int_equal(value, 0);
	is(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocManaged(&at, 257 * MIB, CU_MEM_ATTACH_GLOBAL));
	at = managed(MIB);
	assert_int_equal(sim_live().device_bytes, MIB);
	since();
	device_writes(at, MIB, 4);
	assert_int_equal(((uint32_t *)at)[5], 9);
	assert_int_equal(since().gpu_faults, 0);
	is(CUDA_ERROR_INVALID_DEVICE, cuMemPrefetchAsync(at, MIB, GPU_0, 0, 0));
	is(CUDA_ERROR_INVALID_DEVICE, cuMemPrefetchAsync(at, MIB, HOST, 0, 0));
	is(CUDA_ERROR_INVALID_DEVICE, cuMemAdvise(at, MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, GPU_0));
	ok(cuMemAdvise(at, MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, HOST));
	sim_switch("CONCURRENT_MANAGED", 1);
}

TEST(what_is_freed_is_gone_for_kernels)
{
	CUdeviceptr at = managed(2 * PAGE), word = model_alloc(8);

	ok(cuMemcpyHtoD(word, &at, 8));
	ok(cuMemFree(at));
	void *args[] = {&word};
	ok(cuLaunchKernel(model_chase, 1, 1, 1, 1, 1, 1, 0, 0, args, NULL));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

EACH_TEST(model_set_up, model_tear_down)
