// SPDX-License-Identifier: Apache-2.0
/*
 * A program for trace_test.c: does what its first argument says, and prints what a trace of it must hold.
 */
#include "shim/spillway.h"
#include "test/preload/scene.h"
#include "tools/trace/trace_read.h"

#include <sys/resource.h>
#include <sys/syscall.h>

static struct scene scene;

/* Six blocks are made and set, touched in rounds, and freed. */
static void work(unsigned rounds)
{
	scene_open(&scene, 0);
	for (unsigned i = 0; i < rounds; i++) {
		MUST(scene_round(&scene, NULL, 0));
		MUST(cu.cuStreamSynchronize(NULL));
	}
}

static void tell(unsigned rounds)
{
	for (unsigned i = 0; i < SCENE_BLOCKS; i++)
		printf("block %llx %zu\n", (unsigned long long)scene.block[i], SCENE_BYTES);
	printf("submits %u\n", SCENE_BLOCKS * (1 + rounds));
	fflush(stdout);
}

static int rounds(unsigned n)
{
	work(n);
	tell(n);
	scene_close(&scene);
	return 0;
}

/* What it has is there until its end. */
static int kept(unsigned n)
{
	work(n);
	tell(n);
	return 0;
}

/* The program lends the GPU and takes it back. */
static int suspended(unsigned n)
{
	work(n);
	printf("suspended %d\n", spillway_suspend());
	printf("resumed %d\n", spillway_resume());
	MUST(scene_round(&scene, NULL, 0));
	tell(n + 1);
	scene_close(&scene);
	return 0;
}

/* It goes on when the file is there: there was hardly anything to tell when it was made. */
static int late(unsigned n)
{
	driver_start(0);
	CUdeviceptr block = driver_managed(MIB);
	MUST(cu.cuMemFree_v2(block));
	for (unsigned i = 0; i < 6000 && access(getenv("SPILLWAY_TRACE"), F_OK); i++)
		usleep(1000);
	return rounds(n);
}

/* ---- killed ---- */

static size_t submits_in_file(void)
{
	struct trace trace;
	size_t n = 0;

	if (trace_read_file(getenv("SPILLWAY_TRACE"), &trace) == 0)
		for (size_t i = 0; i < trace.n_rows; i++)
			n += trace.rows[i].event.kind == TRACE_submit;
	trace_free(&trace);
	return n;
}

/* Once the file has all of it; the process goes on in the meantime. */
static int killed(unsigned n)
{
	work(n);
	tell(n);
	for (unsigned i = 0; i < 6000 && submits_in_file() < SCENE_BLOCKS * (1 + n); i++)
		usleep(10000);
	kill(getpid(), SIGKILL);
	return 1;
}

static void *kill_later(void *argument)
{
	usleep((useconds_t)(uintptr_t)argument);
	kill(getpid(), SIGKILL);
	return NULL;
}

static int killed_sometime(unsigned us)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, kill_later, (void *)(uintptr_t)us))
		return 1;
	work(UINT32_MAX);
	return 1;
}

/* ---- processes ---- */

static int forked(unsigned n)
{
	work(n);
	pid_t child = fork();
	if (!child) {
		CUdeviceptr block;

		/* The driver does not survive a fork; the child's end is an ordinary one. */
		cu.cuMemAlloc_v2(&block, MIB);
		scene_round(&scene, NULL, 0);
		exit(0);
	}
	waitpid(child, NULL, 0);
	tell(n);
	scene_close(&scene);
	return 0;
}

/* A child that no handler of fork() is told of. */
static int cloned(unsigned n)
{
	work(n);
	fflush(NULL);
	pid_t child = (pid_t)syscall(SYS_clone, (unsigned long)SIGCHLD, NULL, NULL, NULL, NULL);
	if (!child)
		exit(0);
	waitpid(child, NULL, 0);
	tell(n);
	scene_close(&scene);
	return 0;
}

/* Two children that use CUDA, the parent does not. */
static int two_children(unsigned n)
{
	for (unsigned i = 0; i < 2; i++)
		if (!fork())
			exit(rounds(n));
	while (wait(NULL) > 0)
		;
	return 0;
}

/* The limit is for the simulated GPU's memory, too: it has all it needs before. */
static int may_write(unsigned bytes)
{
	const struct rlimit limit = {bytes, bytes};

	scene_open(&scene, 0);
	if (setrlimit(RLIMIT_FSIZE, &limit))
		return 1;
	for (unsigned i = 0; i < 1000; i++)
		MUST(scene_round(&scene, NULL, 0));
	MUST(cu.cuCtxSynchronize());
	scene_close(&scene);
	return 0;
}

/* ---- threads ---- */

enum { THREADS = 8, SETS = 500 };

static void *set_often(void *argument)
{
	MUST(cu.cuCtxSetCurrent(argument));
	CUdeviceptr block = child_alloc(MIB);
	for (unsigned i = 0; i < SETS; i++)
		MUST(cu.cuMemsetD32_v2(block, i, MIB / 4));
	MUST(cu.cuMemFree_v2(block));
	return NULL;
}

/* Twice as many threads as there are at a time. */
static int threads(unsigned turns)
{
	CUcontext context = driver_start(0);
	pthread_t thread[THREADS];

	for (unsigned turn = 0; turn < turns; turn++) {
		for (unsigned i = 0; i < THREADS; i++)
			if (pthread_create(&thread[i], NULL, set_often, context))
				return 1;
		for (unsigned i = 0; i < THREADS; i++)
			pthread_join(thread[i], NULL);
	}
	printf("threads %u\nsubmits %u\n", turns * THREADS, turns * THREADS * SETS);
	return 0;
}

/* ---- frees ---- */

/* Of memory that the driver does not let go of (SIM_FAIL), and by the functions for PyTorch. */
static int frees(unsigned n)
{
	driver_start(0);
	CUdeviceptr managed = driver_managed(n * MIB);
	if (cu.cuMemFree_v2(managed) != CUDA_ERROR_UNKNOWN)
		return 1;
	void *block = spillway_torch_alloc((ssize_t)(n * MIB), 0, NULL);
	if (!block)
		return 1;
	spillway_torch_free(block, (ssize_t)(n * MIB), 0, NULL);
	return 0;
}

/* Managed memory that the driver has none of (SIM_FAIL), and then has. */
static int refused(unsigned n)
{
	CUdeviceptr managed;

	driver_start(0);
	if (cu.cuMemAllocManaged(&managed, n * MIB, CU_MEM_ATTACH_GLOBAL) != CUDA_ERROR_OUT_OF_MEMORY)
		return 1;
	MUST(cu.cuMemAllocManaged(&managed, n * MIB, CU_MEM_ATTACH_GLOBAL));
	return 0;
}

/* ---- nothing ---- */

/* The library has come to life, and nothing has happened. */
static int asks(unsigned n)
{
	size_t free, total;

	driver_start(0);
	while (n--)
		MUST(cu.cuMemGetInfo_v2(&free, &total));
	return 0;
}

/* ---- page faults ---- */

/* Of two devices one has them. */
static int faults(unsigned n)
{
	void *pinned;

	driver_start(0);
	MUST(cu.cuMemHostAlloc(&pinned, MIB, 0));
	CUdeviceptr managed = driver_managed(n * MIB);
	MUST(driver_fill(NULL, managed, 7, n * MIB / 4));
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuMemcpyHtoD_v2((CUdeviceptr)pinned, (void *)managed, MIB));
	printf("gpu %llu\ncpu %llu\n", (unsigned long long)sim_managed().gpu_faults,
	       (unsigned long long)sim_managed().cpu_faults);
	return 0;
}

/* ---- more than a ring holds ---- */

static int too_many_names(unsigned n)
{
	CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	CUdeviceptr *to = malloc(n * sizeof(*to)), *from = malloc(n * sizeof(*from));
	size_t *sizes = malloc(n * sizeof(*sizes)), first = 0, failed;

	scene_open(&scene, 0);
	CUstream stream = child_stream();
	for (unsigned i = 0; i < n; i++) {
		to[i] = scene.block[0];
		from[i] = scene.block[1];
		sizes[i] = 4;
	}
	MUST(cuMemcpyBatchAsync(to, from, sizes, n, &attributes, &first, 1, &failed, stream));
	MUST(cu.cuStreamSynchronize(stream));
	tell(0);
	scene_close(&scene);
	return 0;
}

static const struct {
	const char *name;
	int (*run)(unsigned argument);
} modes[] = {
    {"rounds", rounds},
    {"kept", kept},
    {"suspended", suspended},
    {"killed", killed},
    {"killed_sometime", killed_sometime},
    {"forked", forked},
    {"cloned", cloned},
    {"children", two_children},
    {"may_write", may_write},
    {"threads", threads},
    {"frees", frees},
    {"refused", refused},
    {"late", late},
    {"asks", asks},
    {"faults", faults},
    {"too_many_names", too_many_names},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 3 && i < sizeof(modes) / sizeof(modes[0]); i++)
		if (!strcmp(argv[1], modes[i].name))
			return modes[i].run((unsigned)strtoul(argv[2], NULL, 10));
	return 2;
}
