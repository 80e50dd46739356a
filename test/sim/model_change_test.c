// SPDX-License-Identifier: Apache-2.0
/*
 * model_change_test.c: what the simulated GPU promises (model.h) to those who change mappings while it works: two
 * addresses of one memory, copies that take their time, and what becomes of work whose mapping goes.
 */
#include "model.h"
#include "test/slow.h"

#define CHUNK (2 * MIB)

/* ---- kernels of this file ---- */

/* Both touch memory until the gate opens: where their parameter points, and where the address at it does. */
static void touch_body(const struct sim_launch *launch, void **args)
{
	for (uint32_t i = 0; !atomic_load(&model_gate); i++)
		__atomic_store_n(*(uint32_t **)args[0], i, __ATOMIC_RELAXED);
}

static void touch_hidden_body(const struct sim_launch *launch, void **args)
{
	CUdeviceptr at = **(CUdeviceptr **)args[0];

	for (uint32_t i = 0; !atomic_load(&model_gate); i++)
		__atomic_store_n((uint32_t *)sim_pointer(at), i, __ATOMIC_RELAXED);
}

static void assert_body(const struct sim_launch *launch, void **args)
{
	sim_assert_fails();
}

SIM_MODULE(image, SIM_KERNEL("touch", touch_body, 8), SIM_KERNEL("touch_hidden", touch_hidden_body, 8),
	   SIM_KERNEL("assert", assert_body, 8));

static CUresult launch(const char *name, CUdeviceptr at, CUstream stream)
{
	void *args[] = {&at};
	CUfunction function;
	CUmodule module;

	ok(cuModuleLoadData(&module, &image));
	ok(cuModuleGetFunction(&function, module, name));
	return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
}

/* ---- mappings ---- */

static CUdeviceptr map_at_new_address(CUmemGenericAllocationHandle handle, size_t bytes)
{
	CUdeviceptr at = model_map(handle, bytes);

	model_set_access(at, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	return at;
}

static CUdeviceptr map_new(CUmemLocationType type, size_t bytes)
{
	CUdeviceptr at = model_map_new(type, bytes);

	model_set_access(at, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	return at;
}

/* Until the word at this address is the value, seen from outside. */
static void wait_for(CUdeviceptr at, bool same, uint32_t value)
{
	uint32_t now;

	do {
		assert_true(sim_peek(at, &now, sizeof(now)));
		usleep(50);
	} while ((now == value) != same);
}

/* ---- two addresses of one memory ---- */

TEST(one_handle_at_two_addresses_is_one_memory)
{
	static const CUmemLocationType types[] = {CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_HOST};

	for (int i = 0; i < 2; i++) {
		CUmemGenericAllocationHandle handle = model_handle(types[i], CHUNK);
		CUdeviceptr one = map_at_new_address(handle, CHUNK), two = map_at_new_address(handle, CHUNK);

		ok(cuMemRelease(handle));
		ok(model_launch_fill(one, 3, 1000, 0));
		model_expect(two, 3, 1000);
		ok(model_launch_fill(two, 4, 1000, 0));
		model_expect(one, 4, 1000);
		ok(cuMemUnmap(one, CHUNK));
		model_expect(two, 4, 1000);
		ok(cuMemMap(one, CHUNK, 0, model_handle(types[1 - i], CHUNK), 0));
		model_set_access(one, CHUNK, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
		ok(model_launch_fill(one, 5, 1000, 0));
		model_expect(two, 4, 1000);
		ok(cuMemRetainAllocationHandle(&handle, (void *)one));
		ok(cuMemRelease(handle));
		ok(cuMemRelease(handle));
		model_unmap(one, CHUNK);
		model_unmap(two, CHUNK);
	}
}

TEST(copies_go_both_ways_at_once_between_device_and_host_handles)
{
	CUdeviceptr device = map_new(CU_MEM_LOCATION_TYPE_DEVICE, 2 * CHUNK);
	CUdeviceptr host = map_new(CU_MEM_LOCATION_TYPE_HOST_NUMA, 2 * CHUNK);
	CUstream out = model_stream(), in = model_stream();

	ok(model_launch_fill(device, 100, CHUNK / 4, 0));
	ok(model_launch_fill(host + CHUNK, 200, CHUNK / 4, 0));
	ok(cuCtxSynchronize());
	sim_hold();
	ok(cuMemcpyAsync(host, device, CHUNK, out));
	ok(cuMemcpyDtoDAsync(device + CHUNK, host + CHUNK, CHUNK, in));
	is(CUDA_ERROR_NOT_READY, cuStreamQuery(out));
	is(CUDA_ERROR_NOT_READY, cuStreamQuery(in));
	sim_release();
	ok(cuCtxSynchronize());
	model_expect(host, 100, CHUNK / 4);
	model_expect(device + CHUNK, 200, CHUNK / 4);
	model_unmap(device, 2 * CHUNK);
	model_unmap(host, 2 * CHUNK);
}

TEST(a_copy_that_a_kernel_overtakes_is_torn)
{
	CUdeviceptr from = map_new(CU_MEM_LOCATION_TYPE_DEVICE, CHUNK), to = map_new(CU_MEM_LOCATION_TYPE_HOST, CHUNK);
	CUstream copying = model_stream(), computing = model_stream();
	size_t last = CHUNK / 4 - 1;

	ok(model_launch_fill(from, 1, CHUNK / 4, 0));
	ok(cuMemsetD8(to, 0, CHUNK));
	ok(cuCtxSynchronize());
	sim_switch("PIECE_US", 20000);
	ok(cuMemcpyAsync(to, from, CHUNK, copying));
	wait_for(to, true, 1);
	ok(model_launch_fill(from, 5000000, CHUNK / 4, computing));
	ok(cuStreamSynchronize(computing));
	is(CUDA_ERROR_NOT_READY, cuStreamQuery(copying));
	sim_switch("PIECE_US", 0);
	ok(cuStreamSynchronize(copying));
	model_expect(to, 1, 1000);
	model_expect(to + 4 * last, (uint32_t)(5000000 + last), 1);
	model_unmap(from, CHUNK);
	model_unmap(to, CHUNK);
}

/* ---- changes beside work, and under it ---- */

TEST(mapping_calls_do_not_wait_for_kernels)
{
	CUdeviceptr used = map_new(CU_MEM_LOCATION_TYPE_DEVICE, CHUNK), other;
	CUstream stream = model_stream();

	ok(cuMemsetD32(used, 0, 1));
	ok(cuCtxSynchronize()); /* the stream does not wait for the set, and neither does the unmapping at the end */
	ok(launch("touch", used, stream));
	wait_for(used, false, 0);
	other = map_new(CU_MEM_LOCATION_TYPE_HOST, CHUNK);
	model_set_access(other, CHUNK, CU_MEM_ACCESS_FLAGS_PROT_READ);
	model_unmap(other, CHUNK);
	is(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
	atomic_store(&model_gate, true);
	ok(cuStreamSynchronize(stream));
	model_unmap(used, CHUNK);
}

/* The context is dead, what waits behind the work is not done, memory management goes on. */
static void expect_dead(CUdeviceptr untouched, CUstream stream)
{
	uint32_t word = 0;
	size_t left;

	is(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, model_launch_fill(untouched, 1, 1, stream));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemGetInfo(&left, NULL));
	assert_true(sim_peek(untouched, &word, sizeof(word)));
	assert_int_equal(word, 7);
}

/* Here and not in the tear-down, where cmocka handles faults: the work that was killed may not have met its own yet. */
static void bury(void)
{
	atomic_store(&model_gate, true);
	ok(cuCtxDestroy(model_context));
	ok(cuCtxCreate(&model_context, NULL, 0, 0));
}

static void kill_by(void (*change)(CUdeviceptr at, size_t bytes), const char *kernel)
{
	CUdeviceptr used = map_new(CU_MEM_LOCATION_TYPE_DEVICE, CHUNK);
	CUdeviceptr table = map_new(CU_MEM_LOCATION_TYPE_DEVICE, CHUNK);
	CUstream stream = model_stream();
	unsigned long before = sim_broken_rules();

	ok(cuMemsetD32(used, 0, 1));
	ok(cuMemcpyHtoD(table, &used, sizeof(used)));
	ok(cuMemsetD32(table + 1024, 7, 1));
	ok(cuCtxSynchronize());
	ok(launch(kernel, kernel[5] ? table : used, stream));
	ok(model_launch_fill(table + 1024, 100, 1, stream));
	wait_for(used, false, 0);
	change(used, CHUNK);
	expect_dead(table + 1024, stream);
	assert_true(sim_broken_rules() > before);
	bury();
	model_unmap(table, CHUNK);
	ok(cuMemAddressFree(used, CHUNK));
}

static void unmap(CUdeviceptr at, size_t bytes)
{
	ok(cuMemUnmap(at, bytes));
}

/* And map it again at once: of the kernel's next access alone nobody would notice. */
static void exchange(CUdeviceptr at, size_t bytes)
{
	CUmemGenericAllocationHandle handle = model_handle(CU_MEM_LOCATION_TYPE_HOST, bytes);

	ok(cuMemUnmap(at, bytes));
	ok(cuMemMap(at, bytes, 0, handle, 0));
	model_set_access(at, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(cuMemRelease(handle));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	atomic_store(&model_gate, true);
	ok(cuMemUnmap(at, bytes));
}

static void protect(CUdeviceptr at, size_t bytes)
{
	model_set_access(at, bytes, CU_MEM_ACCESS_FLAGS_PROT_READ);
	is(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	ok(cuMemUnmap(at, bytes));
}

TEST(unmapping_under_a_kernel_kills_the_context)
{
	kill_by(unmap, "touch");
}

TEST(unmapping_what_a_kernel_found_in_memory_kills_the_context)
{
	kill_by(unmap, "touch_hidden");
}

TEST(exchanging_the_mapping_under_a_kernel_kills_the_context)
{
	kill_by(exchange, "touch");
}

TEST(changing_the_protection_under_a_kernel_kills_the_context)
{
	kill_by(protect, "touch");
}

TEST(unmapping_under_a_copy_kills_the_context)
{
	CUdeviceptr from = map_new(CU_MEM_LOCATION_TYPE_DEVICE, CHUNK), to = map_new(CU_MEM_LOCATION_TYPE_HOST, CHUNK);

	ok(cuMemsetD32(from, 7, CHUNK / 4));
	ok(cuMemsetD32(to, 0, CHUNK / 4));
	ok(cuCtxSynchronize());
	sim_switch("PIECE_US", 20000);
	ok(cuMemcpyAsync(to, from, CHUNK, 0));
	wait_for(to, true, 7);
	model_unmap(from, CHUNK);
	sim_switch("PIECE_US", 0);
	is(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	bury();
	model_unmap(to, CHUNK);
}

/* As the driver does (an H200, driver 580; an H100 also after an assertion): context_died_of() rests on it. */
TEST(a_dead_context_gives_its_error_for_the_range_of_priorities)
{
	static const struct {
		const char *kernel;
		CUresult error;
	} ways[] = {{"touch", CUDA_ERROR_ILLEGAL_ADDRESS}, {"assert", CUDA_ERROR_ASSERT}};
	CUdeviceptr nowhere;

	ok(cuMemAddressReserve(&nowhere, CHUNK, 0, 0, 0));
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		int least = 7, greatest = 7;

		ok(cuCtxGetStreamPriorityRange(NULL, NULL));
		ok(launch(ways[i].kernel, nowhere, NULL));
		is(ways[i].error, cuCtxSynchronize());
		is(ways[i].error, cuCtxGetStreamPriorityRange(&least, &greatest));
		is(ways[i].error, cuCtxGetStreamPriorityRange(NULL, NULL));
		assert_true(least == 7 && greatest == 7);
		bury();
		atomic_store(&model_gate, false);
	}
	ok(cuMemAddressFree(nowhere, CHUNK));
}

/* ---- what holds a stream ---- */

TEST(a_value_that_another_stream_writes_releases_a_stream)
{
	CUdeviceptr word = map_new(CU_MEM_LOCATION_TYPE_DEVICE, CHUNK);
	CUstream held = model_stream(), other = model_stream();

	ok(cuMemsetD32(word, 0, 2));
	ok(cuCtxSynchronize());
	ok(cuStreamWaitValue32(held, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
	ok(model_launch_fill(word + 4, 9, 1, held));
	ok(model_launch_fill(word + 1024, 1, 10, other));
	ok(cuStreamSynchronize(other));
	is(CUDA_ERROR_NOT_READY, cuStreamQuery(held));
	ok(cuStreamWriteValue32(other, word, 1, 0));
	ok(cuStreamSynchronize(held));
	model_expect(word + 4, 9, 1);
	model_unmap(word, CHUNK);
}

static void take_and_leave(void *lock)
{
	pthread_mutex_lock(lock);
	pthread_mutex_unlock(lock);
}

TEST(a_host_function_holds_its_stream_alone)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	CUdeviceptr at = map_new(CU_MEM_LOCATION_TYPE_DEVICE, CHUNK);
	CUstream held = model_stream(), other = model_stream();

	ok(cuMemsetD32(at, 0, 1));
	ok(cuCtxSynchronize());
	pthread_mutex_lock(&lock);
	ok(cuLaunchHostFunc(held, take_and_leave, &lock));
	ok(model_launch_fill(at, 9, 1, held));
	ok(model_launch_fill(at + 1024, 1, 10, other));
	ok(cuStreamSynchronize(other));
	is(CUDA_ERROR_NOT_READY, cuStreamQuery(held));
	model_expect(at, 0, 1);
	pthread_mutex_unlock(&lock);
	ok(cuStreamSynchronize(held));
	model_expect(at, 9, 1);
	model_unmap(at, CHUNK);
}

EACH_TEST(model_set_up, model_tear_down)

START(alarm(60 * TEST_SLOWNESS))
