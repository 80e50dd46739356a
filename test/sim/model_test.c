/*
 * model_test.c: what the simulated GPU promises, beyond what a real one can be asked (rules_test.c). Linked directly
 * against it, no shim in between.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "sim.h"

#define MIB         ((size_t)1 << 20)
#define ok(call)    assert_int_equal((call), CUDA_SUCCESS)
#define is(e, call) assert_int_equal((call), (e))

/* ---- kernels ---- */

static void fill_body(const struct sim_launch *launch, void **args)
{
	uint32_t *at = *(uint32_t **)args[0], value = *(uint32_t *)args[1];
	size_t n = *(size_t *)args[2];

	(void)launch;
	for (size_t i = 0; i < n; i++)
		at[i] = value + (uint32_t)i;
}

/* Follows a pointer that lies in device memory. */
static void chase_body(const struct sim_launch *launch, void **args)
{
	CUdeviceptr *table = *(CUdeviceptr **)args[0];

	(void)launch;
	*(uint32_t *)sim_pointer(table[0]) = 77;
}

struct pair {
	uint32_t *a, *b;
	uint32_t n;
};

static void pair_body(const struct sim_launch *launch, void **args)
{
	struct pair *pair = args[1];

	(void)launch;
	for (uint32_t i = 0; i < pair->n; i++)
		pair->b[i] = pair->a[i] + *(unsigned char *)args[0];
}

static atomic_bool gate;

static void gate_body(const struct sim_launch *launch, void **args)
{
	(void)launch;
	(void)args;
	while (!atomic_load(&gate))
		usleep(100);
}

static const size_t fill_bytes[] = {8, 4, 8}, chase_bytes[] = {8}, pair_bytes[] = {1, sizeof(struct pair)};
static const struct sim_kernel kernels[] = {{"fill", fill_body, 3, fill_bytes},
					    {"chase", chase_body, 1, chase_bytes},
					    {"pair", pair_body, 2, pair_bytes},
					    {"gate", gate_body, 0, NULL}};
static const struct sim_module image = {SIM_MODULE_MAGIC, 4, kernels};
static CUcontext context;
static CUfunction fill, chase, pair_kernel, gate_kernel;

static int set_up(void **state)
{
	CUmodule module;

	(void)state;
	ok(cuInit(0));
	ok(cuCtxCreate(&context, NULL, 0, 0));
	ok(cuModuleLoadData(&module, &image));
	ok(cuModuleGetFunction(&fill, module, "fill"));
	ok(cuModuleGetFunction(&chase, module, "chase"));
	ok(cuModuleGetFunction(&pair_kernel, module, "pair"));
	ok(cuModuleGetFunction(&gate_kernel, module, "gate"));
	atomic_store(&gate, false);
	return 0;
}

static int tear_down(void **state)
{
	struct sim_live live;

	(void)state;
	atomic_store(&gate, true);
	sim_release();
	ok(cuCtxDestroy(context));
	live = sim_live();
	if (sim_leaks(stderr) || live.device_bytes || live.host_bytes)
		return 1;
	return 0;
}

static CUresult launch_fill(CUdeviceptr at, uint32_t value, size_t n, CUstream stream)
{
	void *args[] = {&at, &value, &n};

	return cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, stream, args, NULL);
}

static CUresult launch_gate(CUstream stream)
{
	return cuLaunchKernel(gate_kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static void expect(CUdeviceptr at, uint32_t value, size_t n)
{
	uint32_t *got = malloc(n * 4);

	ok(cuMemcpyDtoH(got, at, n * 4));
	for (size_t i = 0; i < n; i++)
		assert_int_equal(got[i], value + i);
	free(got);
}

/* ---- virtual memory management ---- */

static CUmemAllocationProp on(CUmemLocationType type)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};

	prop.location.type = type;
	return prop;
}

static void give_access(CUdeviceptr at, size_t bytes, CUmemAccess_flags flags)
{
	CUmemAccessDesc desc = {.flags = flags};

	desc.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	ok(cuMemSetAccess(at, bytes, &desc, 1));
}

static CUdeviceptr map_new(size_t bytes, CUmemLocationType type)
{
	CUmemAllocationProp prop = on(type);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;

	ok(cuMemAddressReserve(&at, bytes, 0, 0, 0));
	ok(cuMemCreate(&handle, bytes, &prop, 0));
	ok(cuMemMap(at, bytes, 0, handle, 0));
	ok(cuMemRelease(handle));
	return at;
}

static void unmap_all(CUdeviceptr at, size_t bytes)
{
	ok(cuMemUnmap(at, bytes));
	ok(cuMemAddressFree(at, bytes));
}

static void data_survives_a_move_to_host_memory(void **state)
{
	CUmemAllocationProp prop = on(CU_MEM_LOCATION_TYPE_HOST);
	CUmemGenericAllocationHandle host;
	CUdeviceptr at = map_new(2 * MIB, CU_MEM_LOCATION_TYPE_DEVICE), other;

	(void)state;
	give_access(at, 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(launch_fill(at, 5, 1000, 0));
	ok(cuMemAddressReserve(&other, 2 * MIB, 0, 0, 0));
	ok(cuMemCreate(&host, 2 * MIB, &prop, 0));
	ok(cuMemMap(other, 2 * MIB, 0, host, 0));
	give_access(other, 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(cuMemcpyDtoD(other, at, 2 * MIB));
	ok(cuCtxSynchronize());
	assert_int_equal(sim_where(at), 'D');
	ok(cuMemUnmap(at, 2 * MIB));
	assert_int_equal(sim_where(at), 0);
	assert_int_equal(sim_live().device_bytes, 0);
	ok(cuMemMap(at, 2 * MIB, 0, host, 0));
	give_access(at, 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	assert_int_equal(sim_where(at), 'H');
	expect(at, 5, 1000);
	ok(cuMemRelease(host));
	unmap_all(at, 2 * MIB);
	unmap_all(other, 2 * MIB);
}

static void over_capacity_is_out_of_memory(void **state)
{
	CUmemAllocationProp prop = on(CU_MEM_LOCATION_TYPE_DEVICE);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;
	size_t left, total;

	(void)state;
	ok(cuMemGetInfo(&left, &total));
	assert_int_equal(total, 256 * MIB);
	is(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, 258 * MIB, &prop, 0));
	is(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&at, 257 * MIB));
	ok(cuMemAlloc(&at, 200 * MIB));
	is(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, 58 * MIB, &prop, 0));
	ok(cuMemGetInfo(&left, NULL));
	assert_int_equal(left, 56 * MIB);
	ok(cuMemFree(at));
}

static void host_access_is_a_broken_rule(void **state)
{
	CUdeviceptr at = map_new(2 * MIB, CU_MEM_LOCATION_TYPE_HOST);
	CUmemAccessDesc desc = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	unsigned long before = sim_broken_rules();

	(void)state;
	desc.location.type = CU_MEM_LOCATION_TYPE_HOST;
	ok(cuMemSetAccess(at, 2 * MIB, &desc, 1));
	assert_int_equal(sim_broken_rules(), before + 1);
	unmap_all(at, 2 * MIB);
}

static void switched_off_vmm_is_not_supported(void **state)
{
	CUmemAllocationProp prop = on(CU_MEM_LOCATION_TYPE_HOST);
	CUmemGenericAllocationHandle handle;
	int has;

	(void)state;
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

static void host_access_to_device_memory_faults(void **state)
{
	CUdeviceptr at;
	int status;
	pid_t child;

	(void)state;
	ok(cuMemAlloc(&at, MIB));
	child = fork();
	if (!child) {
		signal(SIGSEGV, SIG_DFL);
		*(volatile int *)at = 1;
		_exit(0);
	}
	waitpid(child, &status, 0);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	ok(cuMemFree(at));
}

static void kernel_on_unmapped_address_kills_the_context(void **state)
{
	CUdeviceptr at = map_new(2 * MIB, CU_MEM_LOCATION_TYPE_DEVICE);
	unsigned long before = sim_broken_rules();
	size_t left;

	(void)state;
	ok(launch_fill(at, 1, 10, 0)); /* mapped, but no access was set */
	is(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	is(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemGetInfo(&left, NULL));
	assert_int_equal(sim_broken_rules(), before + 1);
	unmap_all(at, 2 * MIB);
}

static void write_to_read_only_memory_kills_the_context(void **state)
{
	CUdeviceptr at = map_new(2 * MIB, CU_MEM_LOCATION_TYPE_DEVICE);

	(void)state;
	give_access(at, 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READ);
	ok(launch_fill(at, 1, 10, 0));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(0));
	unmap_all(at, 2 * MIB);
}

static void copy_of_unmapped_memory_is_refused(void **state)
{
	CUdeviceptr at;
	char bytes[16] = {0};

	(void)state;
	ok(cuMemAlloc(&at, 2 * MIB));
	is(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(at + 2 * MIB, bytes, 16));
	is(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(at + MIB, 0, 2 * MIB));
	ok(cuMemFree(at));
	is(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(bytes, at, 16));
}

static void new_memory_is_garbage(void **state)
{
	CUdeviceptr at;
	unsigned char byte;

	(void)state;
	ok(cuMemAlloc(&at, 4 * MIB));
	assert_true(sim_peek(at + MIB, &byte, 1));
	assert_int_equal(byte, 0xA5);
	ok(cuMemFree(at));
	assert_false(sim_peek(at, &byte, 1));
}

/* ---- kernels ---- */

static void pointers_inside_struct_parameters_are_translated(void **state)
{
	CUdeviceptr a, b;
	unsigned char add = 3;
	struct pair pair;
	void *args[] = {&add, &pair};
	size_t offset, bytes;

	(void)state;
	ok(cuMemAlloc(&a, 4000));
	ok(cuMemAlloc(&b, 4000));
	ok(launch_fill(a, 100, 1000, 0));
	pair = (struct pair){(uint32_t *)a, (uint32_t *)b, 1000};
	ok(cuLaunchKernel(pair_kernel, 1, 1, 1, 1, 1, 1, 0, 0, args, NULL));
	expect(b, 103, 1000);
	ok(cuFuncGetParamInfo(pair_kernel, 1, &offset, &bytes));
	assert_int_equal(offset, 8);
	assert_int_equal(bytes, sizeof(pair));
	is(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(pair_kernel, 2, &offset, &bytes));
	ok(cuMemFree(a));
	ok(cuMemFree(b));
}

static void pointer_read_from_device_memory_works_through_sim_pointer(void **state)
{
	CUdeviceptr table, target;
	void *args[] = {&table};
	uint32_t got;

	(void)state;
	ok(cuMemAlloc(&table, 8));
	ok(cuMemAlloc(&target, 4));
	ok(cuMemcpyHtoD(table, &target, 8));
	ok(cuLaunchKernel(chase, 1, 1, 1, 1, 1, 1, 0, 0, args, NULL));
	ok(cuMemcpyDtoH(&got, target, 4));
	assert_int_equal(got, 77);
	ok(cuMemFree(table));
	ok(cuMemFree(target));
}

static void foreign_image_is_invalid(void **state)
{
	static const char ptx[] = ".version 8.0";
	CUmodule module;

	(void)state;
	is(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, ptx));
}

/* ---- streams ---- */

static void work_is_asynchronous_and_in_order(void **state)
{
	CUstream one, two;
	CUevent event;
	CUdeviceptr at;

	(void)state;
	ok(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	ok(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
	ok(cuEventCreate(&event, 0));
	ok(cuMemAlloc(&at, 4096));
	ok(launch_gate(one));
	ok(launch_fill(at, 9, 1024, one));
	ok(cuEventRecord(event, one));
	ok(cuStreamWaitEvent(two, event, 0));
	ok(cuMemsetD8Async(at, 0, 4, two));
	is(CUDA_ERROR_NOT_READY, cuEventQuery(event));
	is(CUDA_ERROR_NOT_READY, cuStreamQuery(two));
	atomic_store(&gate, true);
	ok(cuStreamSynchronize(two));
	ok(cuEventQuery(event));
	expect(at + 4, 10, 1023);
	ok(cuStreamDestroy(one));
	ok(cuStreamDestroy(two));
	ok(cuEventDestroy(event));
	ok(cuMemFree(at));
}

static void legacy_stream_waits_for_blocking_streams_alone(void **state)
{
	CUstream blocking, free_stream;
	CUdeviceptr at;

	(void)state;
	ok(cuMemAlloc(&at, 4096));
	ok(cuStreamCreate(&blocking, 0));
	ok(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
	ok(launch_gate(blocking));
	ok(launch_fill(at, 1, 10, 0));
	ok(launch_fill(at + 2048, 1, 10, free_stream));
	ok(cuStreamSynchronize(free_stream));
	is(CUDA_ERROR_NOT_READY, cuStreamQuery(0));
	atomic_store(&gate, true);
	ok(cuStreamSynchronize(0));
	ok(cuStreamDestroy(blocking));
	ok(cuStreamDestroy(free_stream));
	ok(cuMemFree(at));
}

static void *open_gate_later(void *argument)
{
	usleep(30000);
	atomic_store((atomic_bool *)argument, true);
	atomic_store(&gate, true);
	return NULL;
}

static void free_waits_for_submitted_work(void **state)
{
	atomic_bool opened = false;
	pthread_t thread;
	CUstream stream;
	CUdeviceptr at;

	(void)state;
	ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(cuMemAlloc(&at, 4096));
	ok(launch_gate(stream));
	pthread_create(&thread, NULL, open_gate_later, &opened);
	ok(cuMemFree(at));
	assert_true(atomic_load(&opened));
	pthread_join(thread, NULL);
	ok(cuStreamDestroy(stream));
}

static void destroyed_stream_finishes_its_work(void **state)
{
	CUstream stream;
	CUdeviceptr at;

	(void)state;
	ok(cuMemAlloc(&at, 4096));
	ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(launch_gate(stream));
	ok(launch_fill(at, 3, 100, stream));
	ok(cuStreamDestroy(stream));
	is(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
	atomic_store(&gate, true);
	ok(cuCtxSynchronize());
	expect(at, 3, 100);
	ok(cuMemFree(at));
}

static void held_work_stands_until_released(void **state)
{
	CUstream stream;
	CUdeviceptr at;

	(void)state;
	ok(cuMemAlloc(&at, 4096));
	ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	sim_hold();
	ok(launch_fill(at, 3, 100, stream));
	is(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
	sim_release();
	ok(cuStreamSynchronize(stream));
	ok(cuStreamDestroy(stream));
	ok(cuMemFree(at));
}

static void stream_waits_for_a_value(void **state)
{
	CUdeviceptr device;
	CUstream stream;
	uint32_t *flag;

	(void)state;
	ok(cuMemHostAlloc((void **)&flag, 4096, 0));
	__atomic_store_n(flag, 0, __ATOMIC_RELEASE);
	ok(cuMemHostGetDevicePointer(&device, flag, 0));
	ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(cuStreamWaitValue32(stream, device, 1, CU_STREAM_WAIT_VALUE_GEQ));
	ok(cuStreamWriteValue32(stream, device + 4, 5, 0));
	is(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	ok(cuStreamSynchronize(stream));
	assert_int_equal(flag[1], 5);
	ok(cuStreamDestroy(stream));
	ok(cuMemFreeHost(flag));
}

static void stream_ordered_free_returns_memory_in_its_turn(void **state)
{
	CUstream stream;
	CUdeviceptr at;
	char byte;

	(void)state;
	ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(cuMemAllocAsync(&at, 8 * MIB, stream));
	ok(launch_gate(stream));
	ok(launch_fill(at, 1, 100, stream));
	ok(cuMemFreeAsync(at, stream));
	is(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(at, stream));
	assert_true(sim_peek(at, &byte, 1));
	atomic_store(&gate, true);
	ok(cuStreamSynchronize(stream));
	assert_false(sim_peek(at, &byte, 1));
	assert_int_equal(sim_live().device_bytes, 0);
	ok(cuMemAlloc(&at, 100));
	ok(cuMemFreeAsync(at, stream));
	ok(cuStreamDestroy(stream));
	ok(cuCtxSynchronize());
}

/* ---- capture and graphs ---- */

static void captured_work_runs_at_each_launch(void **state)
{
	CUstream stream, side;
	CUgraphExec exec;
	CUevent fork_event, join_event;
	CUgraph graph;
	CUdeviceptr at;
	size_t n = 0;

	(void)state;
	ok(cuMemAlloc(&at, 4096));
	ok(cuMemsetD8(at, 0, 4096));
	ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	ok(cuEventCreate(&fork_event, 0));
	ok(cuEventCreate(&join_event, 0));
	ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(launch_fill(at, 8, 100, stream));
	ok(cuEventRecord(fork_event, stream));
	ok(cuStreamWaitEvent(side, fork_event, 0));
	ok(launch_fill(at + 2048, 9, 100, side));
	ok(cuEventRecord(join_event, side));
	ok(cuStreamWaitEvent(stream, join_event, 0));
	ok(cuStreamEndCapture(stream, &graph));
	ok(cuGraphGetNodes(graph, NULL, &n));
	assert_int_equal(n, 2);
	ok(cuGraphInstantiate(&exec, graph, 0));
	ok(cuGraphDestroy(graph));
	for (int i = 0; i < 2; i++) {
		ok(cuMemsetD8(at, 0, 4096));
		ok(cuCtxSynchronize());
		ok(cuGraphLaunch(exec, stream));
		ok(cuStreamSynchronize(stream));
		expect(at, 8, 100);
		expect(at + 2048, 9, 100);
	}
	ok(cuGraphExecDestroy(exec));
	ok(cuEventDestroy(fork_event));
	ok(cuEventDestroy(join_event));
	ok(cuStreamDestroy(stream));
	ok(cuStreamDestroy(side));
	ok(cuMemFree(at));
}

struct other {
	CUevent event;
	bool relaxed, sync;
	CUresult result;
};

static void *ask_on_another_thread(void *argument)
{
	struct other *other = argument;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	cuCtxSetCurrent(context);
	if (other->relaxed)
		cuThreadExchangeStreamCaptureMode(&mode);
	other->result = other->sync ? cuCtxSynchronize() : cuEventQuery(other->event);
	return NULL;
}

/* Captures in GLOBAL mode while another thread calls; gives the result of the end of the capture. */
static CUresult capture_while(struct other *other)
{
	CUstream stream;
	CUgraph graph;
	CUresult result;
	pthread_t thread;

	ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(cuEventCreate(&other->event, 0));
	ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	pthread_create(&thread, NULL, ask_on_another_thread, other);
	pthread_join(thread, NULL);
	if (other->result)
		is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, launch_gate(stream));
	result = cuStreamEndCapture(stream, &graph);
	if (!result)
		ok(cuGraphDestroy(graph));
	else
		assert_null(graph);
	ok(cuEventDestroy(other->event));
	ok(cuStreamDestroy(stream));
	return result;
}

static void event_query_from_another_thread_invalidates_a_global_capture(void **state)
{
	struct other other = {0};

	(void)state;
	is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, capture_while(&other));
	is(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, other.result);
}

static void relaxed_thread_leaves_the_capture_alone(void **state)
{
	struct other other = {.relaxed = true};

	(void)state;
	ok(capture_while(&other));
	ok(other.result);
}

static void context_synchronize_invalidates_even_from_a_relaxed_thread(void **state)
{
	struct other other = {.relaxed = true, .sync = true};

	(void)state;
	is(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, capture_while(&other));
	is(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, other.result);
}

/* ---- controls ---- */

static void nth_call_fails_once(void **state)
{
	unsigned long before = sim_calls("cuMemAlloc_v2");
	CUdeviceptr a, b;

	(void)state;
	sim_fail("cuMemAlloc_v2", 2, CUDA_ERROR_OUT_OF_MEMORY);
	ok(cuMemAlloc(&a, 16));
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

static void resolver_hands_out_exports_by_version(void **state)
{
	CUdriverProcAddressQueryResult status;
	void *at;

	(void)state;
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

static void forked_child_is_not_initialized(void **state)
{
	int status;
	pid_t child = fork();
	CUdeviceptr at;

	(void)state;
	if (!child)
		_exit(cuMemAlloc(&at, 16) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
	waitpid(child, &status, 0);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void context_takes_its_memory_with_it(void **state)
{
	CUcontext other;
	CUdeviceptr at;
	void *host;

	(void)state;
	ok(cuCtxCreate(&other, NULL, 0, 0));
	ok(cuMemAlloc(&at, 100));
	ok(cuMemHostAlloc(&host, 100, 0));
	assert_int_equal(sim_live().allocations, 2);
	ok(cuCtxDestroy(other));
	assert_int_equal(sim_live().allocations, 0);
}

static void pitched_copies_copy_rows(void **state)
{
	CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST, .dstMemoryType = CU_MEMORYTYPE_DEVICE};
	unsigned char rows[4][100], got[100];
	CUdeviceptr at;
	size_t pitch;

	(void)state;
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
	ok(cuMemFree(at));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(data_survives_a_move_to_host_memory),
	    TEST(over_capacity_is_out_of_memory),
	    TEST(host_access_is_a_broken_rule),
	    TEST(switched_off_vmm_is_not_supported),
	    TEST(host_access_to_device_memory_faults),
	    TEST(kernel_on_unmapped_address_kills_the_context),
	    TEST(write_to_read_only_memory_kills_the_context),
	    TEST(copy_of_unmapped_memory_is_refused),
	    TEST(new_memory_is_garbage),
	    TEST(pointers_inside_struct_parameters_are_translated),
	    TEST(pointer_read_from_device_memory_works_through_sim_pointer),
	    TEST(foreign_image_is_invalid),
	    TEST(work_is_asynchronous_and_in_order),
	    TEST(legacy_stream_waits_for_blocking_streams_alone),
	    TEST(free_waits_for_submitted_work),
	    TEST(destroyed_stream_finishes_its_work),
	    TEST(held_work_stands_until_released),
	    TEST(stream_waits_for_a_value),
	    TEST(stream_ordered_free_returns_memory_in_its_turn),
	    TEST(captured_work_runs_at_each_launch),
	    TEST(event_query_from_another_thread_invalidates_a_global_capture),
	    TEST(relaxed_thread_leaves_the_capture_alone),
	    TEST(context_synchronize_invalidates_even_from_a_relaxed_thread),
	    TEST(nth_call_fails_once),
	    TEST(resolver_hands_out_exports_by_version),
	    TEST(forked_child_is_not_initialized),
	    TEST(context_takes_its_memory_with_it),
	    TEST(pitched_copies_copy_rows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
