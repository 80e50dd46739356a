// SPDX-License-Identifier: Apache-2.0
/*
 * stack_test.c: how much of a program's stack the library takes. Threads may have little (PTHREAD_STACK_MIN is 16 KiB),
 * and whoever computed what theirs needs did not count on us. The first thing such a thread does with the driver is its
 * first allocation, which reads the policy, finds devices and heaps, and spills; then it copies, launches and frees.
 *
 * Its stack is painted, with much more room below, so that too much is measured and nothing is destroyed.
 */
#include "test/preload/folder.h"
#include "test/preload/scene.h"
#include "test/test.h"

#include <sys/mman.h>

/* What the thread may use in all: its thread-local storage and the driver's own frames are in it. */
#define STACK_BYTES     ((size_t)24 << 10)
#define OOM_RETRY_BYTES ((size_t)1 << 20)
#define PAINT           0x5a

static CUcontext context;
static CUfunction touch;
static CUdeviceptr block[SCENE_BLOCKS_MOST];

static void add_body(const struct sim_launch *launch, void **args)
{
	++*(uint32_t *)sim_pointer(*(CUdeviceptr *)args[0]);
}

SIM_MODULE(image, SIM_KERNEL("add", add_body, 8));

static void *nothing(void *argument)
{
	return argument;
}

static void *start(void *argument)
{
	driver_start(0);
	MUST(cu.cuCtxGetCurrent(&context));
	touch = driver_function(&image, "add");
	return argument;
}

static void *allocate(void *argument)
{
	MUST(cu.cuCtxSetCurrent(context));
	for (unsigned i = 0; i < SCENE_BLOCKS; i++)
		block[i] = child_alloc(SCENE_BYTES);
	return argument;
}

static void *copy(void *argument)
{
	static CUdeviceptr words[16384];

	MUST(cu.cuCtxSetCurrent(context));
	words[7] = block[1];
	for (unsigned i = 0; i < SCENE_BLOCKS; i++)
		MUST(cu.cuMemcpyHtoD_v2(block[i], words, sizeof(words) >> i));
	return argument;
}

static void *launch(void *argument)
{
	MUST(cu.cuCtxSetCurrent(context));
	for (unsigned i = 0; i < 64 * SCENE_BLOCKS; i++) {
		void *args[] = {&block[i % SCENE_BLOCKS]};

		MUST(cu.cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	}
	MUST(cu.cuCtxSynchronize());
	return argument;
}

static void *release(void *argument)
{
	MUST(cu.cuCtxSetCurrent(context));
	for (unsigned i = 0; i < SCENE_BLOCKS; i++)
		MUST(cu.cuMemFree_v2(block[i]));
	return argument;
}

/* Bytes of its stack that a thread used that ran this. */
static size_t used_by(void *(*run)(void *))
{
	unsigned char *room = mmap(NULL, OOM_RETRY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_attr_t attributes;
	pthread_t thread;
	size_t unused = 0;

	if (room == MAP_FAILED)
		abort();
	memset(room, PAINT, OOM_RETRY_BYTES);
	pthread_attr_init(&attributes);
	pthread_attr_setstack(&attributes, room, OOM_RETRY_BYTES);
	if (pthread_create(&thread, &attributes, run, NULL))
		abort();
	pthread_join(thread, NULL);
	pthread_attr_destroy(&attributes);
	while (unused < OOM_RETRY_BYTES && room[unused] == PAINT)
		unused++;
	munmap(room, OOM_RETRY_BYTES);
	return OOM_RETRY_BYTES - unused;
}

static bool is_little(const char *name, void *(*run)(void *))
{
	size_t used = used_by(run);

	printf("%s: %zu bytes of stack\n", name, used);
	return used <= STACK_BYTES;
}

static void little_stack_is_used(void)
{
	CHECK(is_little("nothing", nothing));
	CHECK(is_little("the start", start));
	CHECK(is_little("allocations", allocate));
	CHECK(is_little("copies", copy));
	CHECK(is_little("launches", launch));
	CHECK(is_little("copies again", copy));
	CHECK(is_little("frees", release));
}

/* In a folder of its own the first host memory makes the file of what processes share. */
static int run_with(const char *policy, const char *trace)
{
	static char text[160];

	snprintf(text, sizeof(text),
		 "SPILLWAY_SET=spill.mode=%s,device.budget=16MiB,host.total=96MiB,report.summary=no", scene_mode());
	const char *const settings[] = {
	    "SIM_MEMORY=256MiB", "SIM_HOST_MEMORY=512MiB", runtime, text, policy, trace, NULL};
	return child_run(settings, little_stack_is_used);
}

TEST(threads_with_small_stacks_get_on)
{
	if ((size_t)sysconf(_SC_THREAD_STACK_MIN) > STACK_BYTES)
		skip();
	assert_int_equal(run_with("SPILLWAY_POLICY=training", NULL), 0);
}

/* The policy is read from files, one of which includes another, and a trace is begun. */
TEST(so_they_do_with_a_policy_and_a_trace)
{
	char trace[64];

	if ((size_t)sysconf(_SC_THREAD_STACK_MIN) > STACK_BYTES)
		skip();
	snprintf(trace, sizeof(trace), "SPILLWAY_TRACE=/tmp/stack_test.%d.trace", (int)getpid());
	int result = run_with("SPILLWAY_POLICY=" STACK_POLICY, trace);
	unlink(strchr(trace, '=') + 1);
	assert_int_equal(result, 0);
}

EACH_TEST(folder_make, folder_remove)
