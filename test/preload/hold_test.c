// SPDX-License-Identifier: Apache-2.0
/*
 * Nothing that runs natively may hang. Work that cannot go on until the program does something more, while the program
 * does it: each part in a process of its own with a deadline (child.h), on a job that needs twice its budget and of
 * which the library has seen enough to be moving memory (scene.h). The same parts run without the library, too.
 */
#include "test/preload/scene.h"
#include "test/slow.h"
#include "test/test.h"

#include <stdatomic.h>

enum { ROUNDS = 100, ON_MAIN = 0, ON_HELD = 1, ON_OTHER = 2, ON_THREAD = 3 }; /* lanes */

#define SETTINGS   SCENE_SETTINGS("SIM_DEVICES=2")
#define ENDS(name) CHILD_TEST(name, SETTINGS)

static struct scene scene;

static void end(CUstream one, CUstream two)
{
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&scene));
	MUST(cu.cuStreamDestroy_v2(one));
	MUST(cu.cuStreamDestroy_v2(two));
	scene_close(&scene);
}

static void rounds(CUstream stream, unsigned lane, int n)
{
	for (; n; n--) {
		MUST(scene_round(&scene, stream, lane));
		if (lane == ON_OTHER && n % 8 == 0) /* at their own pace, not all in the queue at once */
			MUST(cu.cuStreamSynchronize(stream));
	}
}

/* ---- held by a value, by a host function ---- */

ENDS(value_written_by_the_thread_after_more_launches_ends)
{
	scene_open_warm(&scene);
	CUstream held = child_stream(), other = child_stream();
	unsigned *word = child_hold(held);
	rounds(held, ON_HELD, 1);
	rounds(other, ON_OTHER, ROUNDS);
	MUST(cu.cuStreamSynchronize(other));
	rounds(held, ON_HELD, 2);
	rounds(other, ON_OTHER, ROUNDS);
	child_release(word);
	end(held, other);
}

/* The word lies in memory that may itself be spilled, and another stream writes it. */
ENDS(value_in_a_block_written_by_another_stream_ends)
{
	scene_open(&scene, 0);
	CUdeviceptr word = child_alloc(3 * MIB);
	MUST(cu.cuMemsetD32_v2(word, 0, 16));
	CHECK(scene_warm_up(&scene));
	CUstream held = child_stream(), other = child_stream();
	MUST(cuStreamWaitValue32_v2(held, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
	rounds(held, ON_HELD, 1);
	rounds(other, ON_OTHER, ROUNDS);
	MUST(cu.cuStreamSynchronize(other));
	MUST(cuStreamWriteValue32_v2(other, word, 1, 0));
	rounds(held, ON_HELD, 1);
	MUST(cu.cuStreamSynchronize(held));
	MUST(cu.cuMemFree_v2(word));
	end(held, other);
}

static pthread_mutex_t interpreter = PTHREAD_MUTEX_INITIALIZER;

static void CUDA_CB needs_the_interpreter(void *argument)
{
	pthread_mutex_lock(&interpreter);
	pthread_mutex_unlock(&interpreter);
}

ENDS(host_function_that_needs_the_lock_of_the_submitting_thread_ends)
{
	CUdeviceptr block, small;

	scene_open_warm(&scene);
	CUstream held = child_stream(), other = child_stream();
	for (int i = 0; i < 3; i++) {
		pthread_mutex_lock(&interpreter);
		rounds(held, ON_HELD, 1);
		MUST(cuLaunchHostFunc(held, needs_the_interpreter, NULL));
		rounds(held, ON_HELD, 1);
		rounds(other, ON_OTHER, ROUNDS);
		small = child_alloc(1000);
		block = child_alloc(9 * MIB);
		MUST(cu.cuMemsetD8Async(block, 1, 9 * MIB, other));
		rounds(held, ON_HELD, 1);
		MUST(cu.cuMemFreeAsync(block, other));
		MUST(cu.cuStreamSynchronize(other));
		pthread_mutex_unlock(&interpreter);
		MUST(cu.cuStreamSynchronize(held));
		MUST(cu.cuMemFree_v2(small));
	}
	end(held, other);
}

/* ---- spin kernels ---- */

enum release { BY_KERNEL, BY_COPY, BY_SET, BY_KERNEL_IN_BLOCK };

static void spin(enum release release)
{
	scene_open_warm(&scene);
	CUdeviceptr one = child_alloc(4096), word;
	CUstream held = child_stream(), other = child_stream();
	unsigned *pinned = scene_word();

	MUST(cu.cuMemsetD32_v2(one, 0, 8));
	MUST(cu.cuMemsetD32_v2(one + 64, 1, 8));
	MUST(cu.cuCtxSynchronize());
	word = release == BY_KERNEL_IN_BLOCK ? one : (CUdeviceptr)pinned;
	MUST(scene_spin(&scene, held, word, 1, 2, ON_HELD));
	rounds(held, ON_HELD, 1);
	rounds(other, ON_OTHER, ROUNDS);
	if (release == BY_COPY)
		MUST(cu.cuMemcpyDtoHAsync_v2(pinned, one + 64, 4, other));
	else if (release == BY_SET)
		MUST(cuMemsetD32Async(word, 1, 1, other));
	else
		MUST(scene_store(&scene, other, word, 1));
	rounds(held, ON_HELD, 1);
	MUST(cu.cuStreamSynchronize(held));
	MUST(cu.cuMemFree_v2(one));
	end(held, other);
}

ENDS(spin_released_by_a_kernel_ends)
{
	spin(BY_KERNEL);
}

ENDS(spin_released_by_a_copy_ends)
{
	spin(BY_COPY);
}

ENDS(spin_released_by_a_set_ends)
{
	spin(BY_SET);
}

ENDS(spin_on_a_word_in_a_block_ends)
{
	spin(BY_KERNEL_IN_BLOCK);
}

ENDS(spin_released_by_a_kernel_of_another_device_ends)
{
	static struct scene second;

	scene_open(&second, 1);
	CHECK(scene_warm_up(&second));
	CUstream there = child_stream();
	scene_open_warm(&scene);
	CUstream here = child_stream();
	unsigned *word = scene_word();
	MUST(scene_spin(&scene, here, (CUdeviceptr)word, 1, 3, ON_HELD));
	rounds(here, ON_HELD, 1);
	MUST(cu.cuCtxSetCurrent(second.context));
	for (int i = 0; i < ROUNDS; i++)
		MUST(scene_round(&second, there, ON_OTHER));
	MUST(scene_store(&second, there, (CUdeviceptr)word, 1));
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&second));
	MUST(cu.cuStreamDestroy_v2(there));
	scene_close(&second);
	MUST(cu.cuCtxSetCurrent(scene.context));
	end(here, child_stream());
}

/* ---- more than one thread ---- */

static atomic_bool stop;
static atomic_uint turns;

static void *synchronize_again_and_again(void *argument)
{
	MUST(cu.cuCtxSetCurrent(scene.context));
	while (!atomic_load(&stop)) {
		atomic_fetch_add(&turns, 1);
		MUST(cu.cuCtxSynchronize());
	}
	return NULL;
}

/* It stands in cuCtxSynchronize for work that the main thread lets go on only after more launches. */
ENDS(one_thread_synchronizes_while_another_submits_ends)
{
	scene_open_warm(&scene);
	CUstream held = child_stream(), other = child_stream();
	pthread_t thread = test_thread(synchronize_again_and_again, NULL);
	for (int i = 0; i < 4; i++) {
		unsigned *word = child_hold(held);

		rounds(held, ON_HELD, 1);
		for (int j = 0; j < 1000; j++) /* it is most likely in there by now; either way must end */
			sched_yield();
		rounds(other, ON_OTHER, ROUNDS);
		MUST(cu.cuStreamSynchronize(other));
		child_release(word);
		MUST(cu.cuStreamSynchronize(held));
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	end(held, other);
}

static void *allocate_and_launch(void *argument)
{
	MUST(cu.cuCtxSetCurrent(scene.context));
	CUstream stream = child_stream();
	for (int i = 0; i < 6; i++) {
		CUdeviceptr block = child_alloc(5 * MIB);

		MUST(cu.cuMemsetD8Async(block, 1, 5 * MIB, stream));
		rounds(stream, ON_THREAD, 2);
		MUST(cu.cuMemFree_v2(block));
	}
	MUST(cu.cuStreamSynchronize(stream));
	MUST(cu.cuStreamDestroy_v2(stream));
	return NULL;
}

ENDS(capture_open_while_another_thread_allocates_and_launches_ends)
{
	pthread_t thread;

	scene_open_warm(&scene);
	CUstream stream = child_stream();
	for (int i = 0; i < 3; i++) {
		MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
		rounds(stream, ON_MAIN, 1);
		CHECK(!pthread_create(&thread, NULL, allocate_and_launch, NULL));
		rounds(stream, ON_MAIN, 1);
		pthread_join(thread, NULL);
		CUgraphExec exec = driver_captured(stream);
		for (int j = 0; j < 5; j++)
			MUST(cu.cuGraphLaunch(exec, stream));
		for (unsigned b = 0; b < SCENE_BLOCKS; b++)
			scene.count[b][ON_MAIN] += 2 * 4; /* the captured two were counted once */
		MUST(cu.cuStreamSynchronize(stream));
		MUST(cu.cuGraphExecDestroy(exec));
	}
	end(stream, child_stream());
}

/* ---- exit and fork in the middle ---- */

static void *launch_for_ever(void *argument)
{
	unsigned lane = (unsigned)(uintptr_t)argument;
	CUstream stream;

	if (cu.cuCtxSetCurrent(scene.context) || cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
		return NULL;
	while (!atomic_load(&stop) && scene_round(&scene, stream, lane) == CUDA_SUCCESS) {
		atomic_fetch_add(&turns, 1);
		if (cu.cuStreamSynchronize(stream))
			break;
	}
	return NULL;
}

static void start_launching(pthread_t *threads, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		CHECK(!pthread_create(&threads[i], NULL, launch_for_ever, (void *)(uintptr_t)(ON_THREAD + i)));
	UNTIL(atomic_load(&turns) >= 10);
}

ENDS(exits_in_the_middle_ends)
{
	pthread_t threads[2];

	scene_open_warm(&scene);
	CUstream held = child_stream();
	start_launching(threads, 2);
	child_hold(held);
	rounds(held, ON_HELD, 1);
	rounds(NULL, ON_MAIN, 3);
	exit(0);
}

ENDS(exits_while_a_kernel_spins_and_a_thread_synchronizes_ends)
{
	scene_open_warm(&scene);
	CUstream held = child_stream(), other = child_stream();
	MUST(scene_spin(&scene, held, (CUdeviceptr)scene_word(), 1, 0, ON_HELD));
	test_thread(synchronize_again_and_again, NULL);
	rounds(other, ON_OTHER, ROUNDS);
	exit(0);
}

/*
 * Streams share queues of the hardware: the copies of a move may lie behind what waits for this thread. Natively
 * launches wait for nothing then.
 */
ENDS(copies_that_lie_behind_held_work_ends)
{
	scene_open_warm(&scene);
	CUstream one = child_stream(), two = child_stream();
	for (int i = 0; i < 30; i++) {
		rounds(one, ON_MAIN, 1 + i % 3);
		sim_hold();
		rounds(two, ON_OTHER, 3);
		rounds(one, ON_MAIN, 1);
		sim_release();
		MUST(cu.cuCtxSynchronize());
	}
	/* It goes on moving. */
	CHECK(scene_warm_up(&scene));
	end(one, two);
}

/* Until that stream is done, or it is all held. */
static void wait_or_held(CUstream stream)
{
	CUevent event;

	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	MUST(cuEventRecord(event, stream));
	while (!sim_is_held() && cuEventQuery(event) == CUDA_ERROR_NOT_READY)
		usleep(20);
	MUST(cuEventDestroy_v2(event));
}

/*
 * The same of copies by which the library measures something with the first piece that moves (beside kernels: in a gap
 * nothing can be held). They begin after that many calls of a function that little else calls: by any of them there is
 * something else under way.
 */
static void copies_that_measure_behind_held_work(void)
{
	bool beside = !strcmp(scene_mode(), "fast");

	scene_open(&scene, 0);
	CUstream one = child_stream(), two = child_stream();
	if (beside)
		sim_hold_at(getenv("HOLD_AT"), (unsigned)atoi(getenv("HOLD_CALL")));
	for (int i = 0; beside && i < 20000 && !sim_is_held(); i++) {
		rounds(one, ON_MAIN, 1);
		wait_or_held(one);
	}
	CHECK(!beside || sim_is_held());
	rounds(two, ON_OTHER, 3);
	rounds(one, ON_MAIN, 1);
	/* Kernels write while the copies are made: it must not be where these go. */
	sim_switch("PIECE_US", 2000);
	sim_release();
	MUST(cu.cuCtxSynchronize());
	sim_switch("PIECE_US", 0);
	CHECK(scene_warm_up(&scene));
	end(one, two);
}

TEST(copies_that_measure_behind_held_work_ends)
{
	static const char *const names[] = {"cuMemAddressReserve", "cuStreamQuery"};
	static const char *const calls[] = {"1", "2", "3", "8", "17"};

	for (unsigned i = 0; i < 2 + 5; i++) {
		setenv("HOLD_AT", names[i >= 2], 1);
		setenv("HOLD_CALL", calls[i < 2 ? i : i - 2], 1);
		child_passes(SETTINGS, copies_that_measure_behind_held_work);
	}
	unsetenv("HOLD_AT");
}

static void child_of_fork(int number)
{
	CUdeviceptr block;

	alarm(20 * TEST_SLOWNESS);
	/* CUDA is lost to the child of a process that had used it; that must be said, not hung in. */
	if (number % 2 && cu.cuMemAlloc_v2(&block, MIB) == CUDA_SUCCESS)
		_exit(1);
	if (number % 4 == 2) {
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	if (number % 4 == 0)
		exit(0);
	_exit(0);
}

ENDS(forks_in_the_middle_ends)
{
	pthread_t threads[2];

	scene_open_warm(&scene);
	CUstream one = child_stream(), two = child_stream();
	start_launching(threads, 2);
	for (int i = 0; i < 16; i++) {
		int status;

		rounds(one, ON_MAIN, 1);
		fflush(NULL);
		pid_t pid = fork();
		if (!pid)
			child_of_fork(i);
		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	end(one, two);
}
