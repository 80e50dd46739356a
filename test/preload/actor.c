// SPDX-License-Identifier: Apache-2.0
/*
 * actor: a program that does one thing, named by its first argument, and ends; actor_test.c and others start it with
 * and without the library and look at what it prints, leaves behind and returns.
 */
#include "test/preload/driver.h"

#include <dlfcn.h>
#include <stdatomic.h>

static CUdeviceptr alloc(size_t bytes)
{
	CUdeviceptr block;

	MUST(cu.cuMemAlloc_v2(&block, bytes));
	return block;
}

/* Live blocks on both sides of a budget of 32 MiB, and work under way. */
static void live(void)
{
	driver_start(0);
	for (unsigned i = 0; i < 4; i++)
		MUST(driver_fill(NULL, alloc(12 * MIB), i, 3 * MIB));
	alloc(100);
}

/* ---- ends ---- */

static int ends_from_main(void)
{
	live();
	return 7;
}

/* Two places, which differ in what the CPU does after the GPU. */
static int uses_managed_memory(void)
{
	CUdeviceptr left, back;
	void *pinned;

	driver_start(0);
	MUST(cu.cuMemAllocManaged(&left, MIB, CU_MEM_ATTACH_GLOBAL));
	MUST(cu.cuMemAllocManaged(&back, MIB, CU_MEM_ATTACH_GLOBAL));
	MUST(driver_fill(NULL, left, 7, MIB / 4));
	MUST(driver_fill(NULL, back, 7, MIB / 4));
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuMemHostAlloc(&pinned, MIB, 0));
	MUST(cu.cuMemcpyHtoD_v2((CUdeviceptr)pinned, (void *)back, MIB));
	return 7;
}

static void *exit_here(void *argument)
{
	exit(7);
}

static int ends_from_a_thread(void)
{
	live();
	test_beside(exit_here, NULL);
	return 1;
}

static void last_words(void)
{
	CUdeviceptr block = alloc(100);

	MUST(cu.cuMemFree_v2(block));
	exit(7);
}

static int ends_in_an_exit_handler(void)
{
	live();
	atexit(last_words);
	return 1;
}

/* A static destructor of the program that runs after ours: late frees pass through and do no harm. */
static CUdeviceptr late;

__attribute__((destructor(101))) static void free_late(void)
{
	if (late)
		cu.cuMemFree_v2(late);
}

static int frees_in_a_destructor(void)
{
	live();
	late = alloc(5 * MIB);
	return 7;
}

static int ends_at_once(void)
{
	live();
	_exit(7);
}

/* The same, but the program knows us and has the summary said first. */
static int ends_at_once_but_says_so(void)
{
	int (*say)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "spillway_checkpoint_stats");

	if (!say || say() != -ENOTSUP)
		_exit(1);
	live();
	_exit(say() == 0 ? 7 : 1);
}

static int aborts(void)
{
	live();
	abort();
}

static int is_terminated(void)
{
	live();
	raise(SIGTERM);
	return 1;
}

static int is_interrupted(void)
{
	live();
	raise(SIGINT);
	return 1;
}

static int is_killed(void)
{
	live();
	raise(SIGKILL);
	return 1;
}

/* Its figures can be looked at from outside until a line comes. */
static int ends_when_told(void)
{
	live();
	while (getchar() != '\n')
		;
	return 7;
}

/* Under a budget of 32 MiB and spill.limit: 25%, the fourth block is refused, and so are all later ones. */
static int asks_beyond_the_limit(void)
{
	CUdeviceptr block;

	driver_start(0);
	for (int i = 0; i < 3; i++)
		alloc(12 * MIB);
	for (int i = 0; i < 3; i++)
		if (cu.cuMemAlloc_v2(&block, 12 * MIB) != CUDA_ERROR_OUT_OF_MEMORY)
			return 1;
	return 7;
}

/* ---- silence ---- */

static int does_nothing(void)
{
	puts("hello");
	return dlsym(RTLD_DEFAULT, "malloc") ? 0 : 1;
}

static int only_asks(void)
{
	size_t total;
	void *address;

	driver_start(0);
	MUST(cu.cuDeviceTotalMem_v2(&total, 0));
	MUST(cuGetProcAddress_v2("cuMemAlloc", &address, 12000, 0, NULL));
	puts("hello");
	return 0;
}

static int allocates_nothing_in_a_child(void)
{
	int status;

	live();
	pid_t pid = fork();
	if (!pid) {
		execl("/proc/self/exe", "actor", "does_nothing", NULL);
		_exit(1);
	}
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

static int frees_everything_with_stderr_closed(void)
{
	close(STDERR_FILENO);
	driver_start(0);
	CUdeviceptr first = alloc(30 * MIB), second = alloc(30 * MIB), third;
	if (cu.cuMemAlloc_v2(&third, (size_t)1 << 40) != CUDA_ERROR_OUT_OF_MEMORY)
		return 1;
	MUST(cu.cuMemFree_v2(first));
	MUST(cu.cuMemFree_v2(second));
	return 7;
}

/* ---- fork ---- */

static int child_of(pid_t pid)
{
	int status = 0;

	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

/* A child of a process that had not used CUDA is a process like any other. */
static int forks_before(void)
{
	pid_t pid = fork();

	driver_start(0);
	CUdeviceptr block = alloc(40 * MIB);
	MUST(driver_fill(NULL, block, 1, 10 * MIB));
	bool right = driver_is_heap(block) && driver_holds(block, 1, 10 * MIB);
	MUST(cu.cuMemFree_v2(block));
	if (!pid)
		exit(right ? 0 : 1);
	return right ? child_of(pid) : 1;
}

/* CUDA does not survive a fork: the child gets the driver's own answer, the parent goes on unhurt. */
static int forks_after(void)
{
	CUdeviceptr block[20], other = 0;
	size_t free, total;

	driver_start(0);
	for (unsigned i = 0; i < 20; i++) {
		block[i] = alloc(3 * MIB);
		MUST(driver_fill(NULL, block[i], i, 3 * MIB / 4));
	}
	pid_t pid = fork();
	if (!pid) {
		bool refused = cu.cuMemAlloc_v2(&other, 100) && cu.cuMemFree_v2(block[0]) &&
			       cu.cuMemFree_v2(block[1]) && cu.cuMemFreeAsync(block[2], NULL) &&
			       cu.cuMemGetInfo_v2(&free, &total) && !other;
		exit(refused ? 0 : 1);
	}
	int child = child_of(pid);
	for (unsigned i = 0; i < 20; i++) {
		if (!driver_holds(block[i], i, 3 * MIB / 4))
			return 2;
		MUST(cu.cuMemFree_v2(block[i]));
	}
	MUST(cu.cuMemFree_v2(alloc(90 * MIB)));
	return child;
}

static atomic_bool stop;

static void *churn(void *argument)
{
	MUST(cu.cuCtxSetCurrent(argument));
	while (!stop) {
		CUdeviceptr block;

		MUST(cu.cuMemAlloc_v2(&block, 5000));
		MUST(cu.cuMemFree_v2(block));
		MUST(cu.cuMemAlloc_v2(&block, 3 * MIB));
		MUST(cu.cuMemFree_v2(block));
	}
	return NULL;
}

/* No lock is left taken in a child, whatever other threads were doing. */
static int forks_while_threads_allocate(void)
{
	CUcontext context = driver_start(0);
	pthread_t thread[3];
	int failed = 0;

	for (int i = 0; i < 3; i++)
		pthread_create(&thread[i], NULL, churn, context);
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();

		if (!pid) {
			CUdeviceptr block = 0;

			_exit(cu.cuMemAlloc_v2(&block, 100) != CUDA_SUCCESS && cu.cuMemFree_v2(1) != CUDA_SUCCESS ? 0
														  : 1);
		}
		failed |= child_of(pid);
	}
	stop = true;
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	MUST(cu.cuMemFree_v2(alloc(90 * MIB)));
	return failed;
}

/* ---- failures ordered from outside (SIM_FAIL) ---- */

static CUresult first_failure;

static bool done(CUresult result)
{
	if (result != CUDA_SUCCESS && first_failure == CUDA_SUCCESS)
		first_failure = result;
	return result == CUDA_SUCCESS;
}

/* Allocate, use, free; what fails is left out, as a careful program does. */
static bool round_trip(void)
{
	static const size_t sizes[] = {2 * MIB, 100 * 1024, 3 * MIB, 2 * MIB, 512};
	CUdeviceptr block[5];
	bool right = true;

	for (unsigned i = 0; i < 5; i++) {
		block[i] = 0;
		if (done(cu.cuMemAlloc_v2(&block[i], sizes[i])))
			right = right && driver_fill(NULL, block[i], i + 1, sizes[i] / 4) == CUDA_SUCCESS;
		else
			right = right && !block[i];
	}
	for (unsigned i = 0; i < 5; i++)
		right = right && (!block[i] || driver_holds(block[i], i + 1, sizes[i] / 4));
	for (unsigned i = 0; i < 5; i++) {
		if (!block[i])
			continue;
		bool freed = done(i % 2 ? cu.cuMemFreeAsync(block[i], NULL) : cu.cuMemFree_v2(block[i]));
		/* A refused free either happened or did not: the second try says which, and never crashes. */
		if (!freed)
			cu.cuMemFree_v2(block[i]);
	}
	return right;
}

/*
 * Prints the first error the program saw. Status 3: the ordered failure never came. 4: wrong data. 5: afterwards not
 * all of the memory could be had.
 */
static int survives(void)
{
	size_t free, total;

	driver_start(0);
	if (!round_trip() || !round_trip())
		return 4;
	done(cu.cuMemGetInfo_v2(&free, &total));
	printf("%d\n", first_failure);
	if (sim_fail_pending())
		return 3;
	MUST(cu.cuCtxSynchronize());
	CUdeviceptr all;
	if (cu.cuMemAlloc_v2(&all, 12 * MIB) != CUDA_SUCCESS)
		return 5;
	MUST(driver_fill(NULL, all, 9, 3 * MIB));
	if (!driver_holds(all, 9, 3 * MIB))
		return 4;
	MUST(cu.cuMemFree_v2(all));
	return round_trip() ? 0 : 4;
}

/* ---- how much fits ---- */

/* Blocks of 8 MiB until out of memory, all checked afterwards; prints how many and where they are. */
static int fills_up(void)
{
	CUdeviceptr block[64];
	char where[65] = {0};
	unsigned n = 0;

	driver_start(0);
	while (n < 64 && cu.cuMemAlloc_v2(&block[n], 8 * MIB) == CUDA_SUCCESS) {
		MUST(driver_fill(NULL, block[n], n, 10000));
		n++;
	}
	for (unsigned i = 0; i < n; i++) {
		if (!driver_holds(block[i], i, 10000))
			return 4;
		where[i] = driver_is_heap(block[i]) ? sim_where(block[i]) : 'd';
	}
	printf("%u %s\n", n, where);
	for (unsigned i = 0; i < n; i++)
		MUST(cu.cuMemFree_v2(block[i]));
	return n ? 0 : 6;
}

static int first_allocation(void)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr block;
	size_t pitch;

	driver_start(0);
	printf("%d\n", cu.cuMemAlloc_v2(&block, 4096));
	printf("%d\n", cu.cuMemAlloc_v2(&block, 4096));
	printf("%d\n", cu.cuMemAllocPitch_v2(&block, &pitch, 100, 100, 4));
	printf("%d\n", driver_create(&handle, 0, 2 * MIB));
	return 0;
}

static int asks_for_an_ipc_handle(void)
{
	CUipcMemHandle handle;

	driver_start(0);
	printf("%d\n", cu.cuIpcGetMemHandle(&handle, alloc(4096)));
	printf("%d\n", cu.cuIpcGetMemHandle(&handle, alloc(4 * MIB)));
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*act)(void);
	} acts[] = {
#define ACT(name) {#name, name}
	    ACT(ends_from_main),
	    ACT(uses_managed_memory),
	    ACT(ends_from_a_thread),
	    ACT(ends_in_an_exit_handler),
	    ACT(frees_in_a_destructor),
	    ACT(ends_at_once),
	    ACT(ends_at_once_but_says_so),
	    ACT(aborts),
	    ACT(is_terminated),
	    ACT(is_interrupted),
	    ACT(is_killed),
	    ACT(ends_when_told),
	    ACT(asks_beyond_the_limit),
	    ACT(does_nothing),
	    ACT(only_asks),
	    ACT(allocates_nothing_in_a_child),
	    ACT(frees_everything_with_stderr_closed),
	    ACT(forks_before),
	    ACT(forks_after),
	    ACT(forks_while_threads_allocate),
	    ACT(survives),
	    ACT(fills_up),
	    ACT(first_allocation),
	    ACT(asks_for_an_ipc_handle),
	};

	for (size_t i = 0; argc > 1 && i < sizeof(acts) / sizeof(acts[0]); i++) {
		if (strcmp(argv[1], acts[i].name))
			continue;
		if (acts[i].act != does_nothing && acts[i].act != forks_before)
			driver_open();
		return acts[i].act();
	}
	return 99;
}
