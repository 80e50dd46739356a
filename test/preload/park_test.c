// SPDX-License-Identifier: Apache-2.0
/*
 * park_test.c: the context in which the mover has its streams ends, while the mover stands still in the midst of a
 * move, or the whole process was stopped: then waits are over when it goes on, though nobody had time to do anything.
 * The mover must have let go of the context all the same, and goes on moving in another one.
 *
 * This program's own clock_gettime() comes before the C library's for everybody in the process: what it says of the
 * time makes a wait end at once, as its time has long passed by the kernel's clock.
 */
#include "test/preload/scene.h"
#include "test/test.h"

#include <stdatomic.h>

#include <sys/syscall.h>

/* Without the mend a job may stand for good: this ends it, and with it the test. */
#define LAST_SECONDS 240
#define LOOKS        5000 /* 1 ms apart: for how long the end of a context is watched */

static __thread bool is_late;
static atomic_int late_reads; /* of the clock, by that thread: more than there are in one end of a context */

int clock_gettime(clockid_t clock, struct timespec *ret)
{
	int result = (int)syscall(SYS_clock_gettime, clock, ret);

	if (!result && clock == CLOCK_MONOTONIC && is_late && atomic_fetch_sub(&late_reads, 1) > 0)
		ret->tv_sec -= ret->tv_sec / 2;
	return result;
}

static void *go_round(void *argument)
{
	struct scene *scene = argument;

	MUST(cu.cuCtxSetCurrent(scene->context));
	for (unsigned i = 0; i < 20; i++) {
		MUST(scene_round(scene, NULL, 0));
		MUST(cu.cuStreamSynchronize(NULL));
	}
	return NULL;
}

/* The first that the library hears of: the mover takes that one. Made current nowhere. */
static CUcontext context_for_the_mover(void)
{
	CUcontext popped;

	driver_open();
	MUST(cu.cuInit(0));
	CUcontext context = child_context();
	MUST(cu.cuCtxPopCurrent_v2(&popped));
	return context;
}

static atomic_bool has_ended;

static void *end_context_late(void *context)
{
	atomic_store(&late_reads, 8);
	is_late = true;
	CUresult result = cu.cuCtxDestroy_v2(context);
	is_late = false;
	atomic_store(&has_ended, true);
	return (void *)(uintptr_t)result;
}

static bool moves_go_on(struct scene *scene)
{
	unsigned long before = sim_calls("cuMemcpyDtoDAsync_v2");

	for (unsigned i = 0; i < 20000 && sim_calls("cuMemcpyDtoDAsync_v2") == before; i++) {
		MUST(scene_round(scene, NULL, 0));
		MUST(cu.cuStreamSynchronize(NULL));
	}
	return sim_calls("cuMemcpyDtoDAsync_v2") > before;
}

CHILD_TEST(the_mover_lets_go_of_a_context_before_it_ends, SCENE_SETTINGS())
{
	CUcontext context = context_for_the_mover();
	struct scene scene;
	void *result;

	alarm(LAST_SECONDS);
	scene_open_warm(&scene);
	if (!scene_moves())
		return;
	sim_stall_at("cuMemcpyDtoDAsync_v2", 1);
	pthread_t rounds = test_thread(go_round, &scene);
	UNTIL(sim_stalled());
	pthread_t end = test_thread(end_context_late, context);
	/*
	 * If the copy stalls while the mover serves a waiter, the end of the context waits for the lock that the mover
	 * holds over the copy, and reads no clock. Then it has not ended either, for as long as is looked.
	 */
	for (unsigned i = 0; i < LOOKS && !atomic_load(&has_ended) && atomic_load(&late_reads) > 0; i++)
		usleep(1000);
	/* No wait of its ended because something happened. */
	CHECK(!atomic_load(&has_ended));
	sim_go_on();
	pthread_join(end, &result);
	CHECK((uintptr_t)result == CUDA_SUCCESS);
	pthread_join(rounds, NULL);
	CHECK(sim_broken_rules() == 0);
	CHECK(moves_go_on(&scene) && scene_holds(&scene));
	scene_close(&scene);
}

/* ---- stopped and continued, again and again ---- */

enum { STOPS = 40, CONTEXTS = 3, ROUNDS = 15 };

static pid_t start_stopper(void)
{
	pid_t job = getpid(), stopper = fork();

	if (stopper)
		return stopper;
	for (unsigned i = 0; i < STOPS; i++) {
		usleep(3000 + i * 7919 % 5000);
		kill(job, SIGSTOP);
		usleep(10000);
		kill(job, SIGCONT);
	}
	_exit(0);
}

CHILD_TEST(a_job_that_is_stopped_in_the_midst_of_moves_goes_on, SCENE_SETTINGS("SIM_REUSE=1"))
{
	pid_t stopper = start_stopper();
	struct scene scene;
	int status;

	alarm(LAST_SECONDS);
	CHECK(stopper > 0);
	for (unsigned i = 0; i < CONTEXTS; i++) {
		CUcontext context = context_for_the_mover();

		scene_open_warm(&scene);
		for (unsigned round = 0; round < ROUNDS; round++)
			MUST(scene_round(&scene, NULL, 0));
		MUST(cu.cuCtxDestroy_v2(context));
		for (unsigned round = 0; round < ROUNDS; round++)
			MUST(scene_round(&scene, NULL, 0));
		MUST(cu.cuCtxSynchronize());
		CHECK(scene_holds(&scene));
		scene_close(&scene);
		MUST(cu.cuDevicePrimaryCtxReset_v2(0));
	}
	CHECK(waitpid(stopper, &status, 0) == stopper);
}
