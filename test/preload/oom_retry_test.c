// SPDX-License-Identifier: Apache-2.0
/*
 * The device is full, with live memory of the heap and what another process has taken: what the driver has no memory
 * for is served all the same, where memory moves, and every word of the heap stays what it was. Each part in a process
 * of its own, in each mode; in `static` the driver's answer stands.
 */
#include "test/preload/figures_help.h"
#include "test/preload/scene.h"
#include "test/preload/slow_clock.h"
#include "test/test.h"

enum { DEVICES = 2, BLOCKS = 16, FEW = 6, THREADS = 8 };

static size_t block_bytes;
static CUdeviceptr held[DEVICES][BLOCKS];

static unsigned value_of(int device, int block)
{
	return 0x1000u * (unsigned)(device + 1) + (unsigned)block;
}

/*
 * Blocks of the heap, written, and all the rest of the device taken as another process would. From then on the
 * library's patience with a busy machine has no end: it must not be why there is no room. Copies take the time that
 * their pauses say, about 3 GB/s, for the library measures them.
 */
static void fill(int device, size_t bytes, int n, size_t others)
{
	__typeof__(&cuMemAlloc_v2) native = (__typeof__(native))driver_native("cuMemAlloc_v2");
	CUdeviceptr rest;

	block_bytes = bytes;
	driver_start(device);
	sim_pauses(slow_clock_pass);
	for (int i = 0; i < n; i++) {
		held[device][i] = child_alloc(bytes);
		MUST(driver_fill(NULL, held[device][i], value_of(device, i), bytes / 4));
	}
	MUST(cu.cuCtxSynchronize());
	for (int i = 0; i < n; i++)
		CHECK(child_on_device(held[device][i], bytes));
	sim_switch("LARGE", 0); /* nobody touches that */
	MUST(native(&rest, others));
	sim_switch("LARGE", 1);
	slow_clock_begin();
}

/* 64 MiB each of the heap and of others. */
static void fill_small(int device)
{
	fill(device, 4 * MIB, BLOCKS, 64 * MIB);
}

static bool some_left(int device)
{
	for (int i = 0; i < BLOCKS && held[device][i]; i++)
		if (!child_on_device(held[device][i], block_bytes))
			return true;
	return false;
}

/* With the usual patience: all of it is right, and 64 MiB of each device can be used as before. */
static void end(void)
{
	int n_used = (int)(64 * MIB / block_bytes);

	slow_clock_end();
	for (int device = 0; device < DEVICES; device++) {
		if (!held[device][0])
			continue;
		driver_start(device);
		for (int i = 0; i < BLOCKS && held[device][i]; i++)
			CHECK(driver_holds(held[device][i], value_of(device, i), block_bytes / 4));
		for (int i = 0; i < n_used && held[device][i]; i++)
			MUST(driver_fill(NULL, held[device][i], 7, block_bytes / 4));
		for (int i = 0; i < n_used && held[device][i]; i++)
			CHECK(driver_holds(held[device][i], 7, block_bytes / 4));
	}
}

/* What the program must get where the driver has nothing. */
static CUresult expected(void)
{
	return scene_moves() ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CHILD_FRAME(NULL, end)

static void run_with(const char *memory, size_t budget, void (*part)(void))
{
	char set[200];
	const char *settings[] = {
	    "SIM_FILL=0", memory, "SIM_HOST_MEMORY=3GiB", "SIM_DEVICES=2", "SIM_PIECE_US=20", runtime, set, NULL};

	snprintf(set, sizeof(set),
		 "SPILLWAY_SET=spill.mode=%s,device.budget=%zuMiB,host.budget=1500MiB,async.use=driver,"
		 "report.summary=no",
		 scene_mode(), budget / MIB);
	child_passes(settings, part);
}

static void run_small(void (*part)(void))
{
	run_with("SIM_MEMORY=128MiB", 100 * MIB, part);
}

/* ---- one request ---- */

static CUresult create(int device, size_t bytes)
{
	CUmemGenericAllocationHandle handle;

	return driver_create(&handle, device, bytes);
}

PART_TEST(live_memory_is_spilled_for_what_the_driver_has_no_memory_for, run_small(part))
{
	fill_small(0);
	CHECK(create(0, 16 * MIB) == expected());
	CHECK(some_left(0) == scene_moves());
}

PART_TEST(live_memory_is_spilled_for_an_array, run_small(part))
{
	const CUDA_ARRAY_DESCRIPTOR about = {
	    .Width = 2048, .Height = 2048, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUarray array;

	fill_small(0);
	CHECK(cuArrayCreate_v2(&array, &about) == expected());
	CHECK(some_left(0) == scene_moves());
}

PART_TEST(live_memory_is_spilled_for_a_pool_of_the_driver, run_small(part))
{
	CUdeviceptr block;

	fill_small(0);
	CHECK(cu.cuMemAllocAsync(&block, 16 * MIB, NULL) == expected());
	CHECK(some_left(0) == scene_moves());
}

PART_TEST(nothing_is_spilled_for_more_than_the_device_has, run_small(part))
{
	fill_small(0);
	unsigned long calls = sim_calls("cuMemCreate");
	CHECK(create(0, 130 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(sim_calls("cuMemCreate") == calls + 1);
	CHECK(!some_left(0));
}

PART_TEST(a_request_that_room_was_made_for_is_a_rescue, run_small(part))
{
	fill_small(0);
	fill_small(1);
	CHECK(create(0, 16 * MIB) == expected());
	CHECK(create(1, 16 * MIB) == expected());
	/* What was refused is not counted, what was served is. */
	CHECK(create(0, 130 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(page_there()->counter[STAT_rescues] == (scene_moves() ? 2 : 0));
}

/* ---- what takes the driver's memory by the way ---- */

static void add_body(const struct sim_launch *launch, void **args)
{
	uint32_t *at = *(uint32_t **)args[0], n = *(uint32_t *)args[1];

	for (uint32_t i = 0; i < n; i++)
		at[i]++;
}

SIM_MODULE(image, SIM_KERNEL("room_add", add_body, 8, 4));

/* Made while there was memory. */
static CUmodule module;
static CUlibrary library;
static CUkernel kernel;
static CUfunction add;
static CUgraph graph;
static CUgraphExec instance;
static CUstream stream;
static uint32_t n_words;
static void *add_args[] = {&held[0][3], &n_words};

static void prepare(void)
{
	driver_start(0);
	n_words = MIB;
	MUST(cu.cuModuleLoadData(&module, &image));
	MUST(cu.cuModuleGetFunction(&add, module, "room_add"));
	MUST(cuLibraryLoadData(&library, &image, NULL, NULL, 0, NULL, NULL, 0));
	MUST(cuLibraryGetKernel(&kernel, library, "room_add"));
	stream = child_stream();
	fill(0, 4 * MIB, FEW, 128 * MIB - FEW * 4 * MIB);
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(cu.cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, add_args, NULL));
	MUST(cu.cuStreamEndCapture(stream, &graph));
	MUST(cu.cuGraphInstantiateWithFlags(&instance, graph, 0));
}

/* Each is called by the name that it has in the simulated driver. */
#define CALLS(ROW)                                                                                                     \
	ROW(cuModuleLoadData, (&(CUmodule){0}, &image))                                                                \
	ROW(cuModuleLoadDataEx, (&(CUmodule){0}, &image, 0, NULL, NULL))                                               \
	ROW(cuModuleLoadFatBinary, (&(CUmodule){0}, &image))                                                           \
	ROW(cuModuleGetFunction, (&(CUfunction){0}, module, "room_add"))                                               \
	ROW(cuLibraryLoadData, (&(CUlibrary){0}, &image, NULL, NULL, 0, NULL, NULL, 0))                                \
	ROW(cuLibraryGetKernel, (&(CUkernel){0}, library, "room_add"))                                                 \
	ROW(cuLibraryGetModule, (&(CUmodule){0}, library))                                                             \
	ROW(cuKernelGetFunction, (&(CUfunction){0}, kernel))                                                           \
	ROW(cuFuncLoad, (add))                                                                                         \
	ROW(cuStreamCreate, (&(CUstream){0}, CU_STREAM_NON_BLOCKING))                                                  \
	ROW(cuStreamCreateWithPriority, (&(CUstream){0}, CU_STREAM_NON_BLOCKING, 0))                                   \
	ROW(cuGraphInstantiateWithFlags, (&(CUgraphExec){0}, graph, 0))                                                \
	ROW(cuGraphUpload, (instance, stream))                                                                         \
	ROW(cuCtxCreate_v2, (&(CUcontext){0}, 0, 0))                                                                   \
	ROW(cuDevicePrimaryCtxRetain, (&(CUcontext){0}, 0))                                                            \
	ROW(cuLaunchKernel, (add, 1, 1, 1, 1, 1, 1, 0, stream, add_args, NULL))                                        \
	ROW(cuGraphLaunch, (instance, stream))

#define CALL(name, args)                                                                                               \
	static CUresult call_##name(void)                                                                              \
	{                                                                                                              \
		return name args;                                                                                      \
	}
CALLS(CALL)
#undef CALL

static const struct by_the_way {
	const char *name;
	CUresult (*call)(void);
} by_the_way[] = {
#define CALL(name, args) {#name, call_##name},
    CALLS(CALL)
#undef CALL
};

static const struct by_the_way *now;

/* What ran ran once. */
static void check_result(void)
{
	bool runs = scene_moves() && (now->call == call_cuLaunchKernel || now->call == call_cuGraphLaunch);

	MUST(cu.cuStreamSynchronize(stream));
	CHECK(driver_holds(held[0][3], value_of(0, 3) + runs, n_words));
	MUST(driver_fill(NULL, held[0][3], value_of(0, 3), n_words));
}

static void is_called_in_need(void)
{
	prepare();
	unsigned long calls = sim_calls(now->name);
	sim_fail(now->name, 1, CUDA_ERROR_OUT_OF_MEMORY);
	/* Contexts are made where none is current, too. */
	if (now->call == call_cuCtxCreate_v2)
		MUST(cu.cuCtxSetCurrent(NULL));
	CHECK(now->call() == expected());
	CHECK(sim_calls(now->name) >= calls + (scene_moves() ? 2 : 1));
	CHECK(some_left(0) == scene_moves());
	driver_start(0);
	check_result();
}

TEST(what_takes_the_drivers_memory_by_the_way_is_called_again)
{
	for (unsigned i = 0; i < sizeof(by_the_way) / sizeof(*by_the_way); i++) {
		now = &by_the_way[i];
		print_message("%s\n", now->name);
		run_small(is_called_in_need);
	}
}

/* The memory that a set names is on its way at first; then there is no memory for the instance. */
PART_TEST(an_instance_is_made_though_its_memory_moved_and_there_was_none, run_small(part))
{
	CUDA_MEMSET_NODE_PARAMS set = {.elementSize = 4, .height = 1, .value = 9};
	CUgraphNode node;
	CUgraphExec exec;
	CUgraph sets;

	prepare();
	set.dst = held[0][3];
	set.width = n_words;
	MUST(cuGraphCreate(&sets, 0));
	CUcontext context = driver_current();
	MUST(cuGraphAddMemsetNode(&node, sets, NULL, 0, &set, context));
	unsigned long calls = sim_calls("cuGraphInstantiateWithFlags");
	sim_fail_next("cuGraphInstantiateWithFlags", 1, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(cu.cuGraphInstantiateWithFlags(&exec, sets, 0) == expected());
	CHECK(!sim_fail_pending() && sim_calls("cuGraphInstantiateWithFlags") == calls + (scene_moves() ? 3 : 2));
	CHECK(some_left(0) == scene_moves());
	if (scene_moves()) {
		MUST(cu.cuGraphLaunch(exec, stream));
		MUST(cu.cuStreamSynchronize(stream));
		CHECK(driver_holds(held[0][3], 9, n_words));
		MUST(driver_fill(NULL, held[0][3], value_of(0, 3), n_words));
	}
}

PART_TEST(nothing_is_spilled_while_a_capture_is_open, run_small(part))
{
	CUgraph captured;

	prepare();
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	sim_fail("cuStreamCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(call_cuStreamCreate() == CUDA_ERROR_OUT_OF_MEMORY);
	sim_fail("cuLaunchKernel", 1, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(call_cuLaunchKernel() == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(create(0, 16 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(!some_left(0) && !sim_fail_pending());
	MUST(call_cuLaunchKernel());
	MUST(cu.cuStreamEndCapture(stream, &captured));
	CHECK(captured != NULL);
}

/* ---- several at once ---- */

static pthread_barrier_t meet;
static CUcontext contexts[DEVICES];
static struct asker {
	int device;
	size_t bytes;
	CUresult result;
	pthread_t thread;
} askers[THREADS];

static void *ask(void *argument)
{
	struct asker *asker = argument;

	MUST(cu.cuCtxSetCurrent(contexts[asker->device]));
	pthread_barrier_wait(&meet);
	asker->result = create(asker->device, asker->bytes);
	return NULL;
}

/* By turns of all devices. */
static void ask_at_once(unsigned n, int devices, size_t bytes)
{
	for (int device = 0; device < devices; device++)
		contexts[device] = driver_start(device);
	pthread_barrier_init(&meet, NULL, n);
	for (unsigned i = 0; i < n; i++) {
		askers[i] = (struct asker){.device = (int)i % devices, .bytes = bytes};
		CHECK(!pthread_create(&askers[i].thread, NULL, ask, &askers[i]));
	}
	for (unsigned i = 0; i < n; i++) {
		pthread_join(askers[i].thread, NULL);
		if (askers[i].result != expected())
			printf("thread %u: %d\n", i, askers[i].result);
		CHECK(askers[i].result == expected());
	}
	for (int device = 0; device < devices; device++)
		CHECK(some_left(device) == scene_moves());
}

PART_TEST(two_threads_that_ask_at_once_are_all_served, run_small(part))
{
	fill_small(0);
	ask_at_once(2, 1, 8 * MIB);
}

PART_TEST(threads_that_ask_at_once_are_all_served, run_small(part))
{
	fill_small(0);
	ask_at_once(THREADS, 1, 8 * MIB);
}

PART_TEST(devices_do_not_refuse_for_each_other, run_small(part))
{
	fill_small(0);
	fill_small(1);
	ask_at_once(2, 2, 16 * MIB);
}

/* ---- more than is spilled for who has not said how much he needs ---- */

static void fill_large(void)
{
	fill(0, 64 * MIB, 14, 128 * MIB);
}

static void run_large(void (*part)(void))
{
	run_with("SIM_MEMORY=1GiB", 1000 * MIB, part);
}

PART_TEST(as_much_is_spilled_as_is_asked_for, run_large(part))
{
	fill_large();
	CHECK(create(0, 700 * MIB) == expected());
	if (scene_moves()) {
		/* Not all has left. */
		CHECK(child_on_device(held[0][0], block_bytes) || child_on_device(held[0][13], block_bytes));
	}
}

/* Half a GiB leaves for the first of them, and is not enough for both. */
PART_TEST(what_left_for_one_request_does_not_have_to_do_for_two, run_large(part))
{
	fill_large();
	ask_at_once(2, 1, 400 * MIB);
}

EACH_TEST(folder_make, folder_remove)
