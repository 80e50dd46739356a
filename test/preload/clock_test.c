// SPDX-License-Identifier: Apache-2.0
/*
 * clock_test.c: the time of day is set back while a job runs under load. Waits that ended by that clock would last as
 * much longer. This program's own clock_gettime() comes before the C library's for everybody in the process, and shows
 * the time of day as it was before the step: ahead of the kernel's, by which such waits end.
 */
#include "test/preload/scene.h"
#include "test/test.h"

#include <stdatomic.h>

#include <sys/syscall.h>

/* A day, so that slowness alone is never taken for a wait that got longer. */
#define STEP_SECONDS 86400
#define ROUNDS       40
/* Without the mend the job would stand for a day: this ends it, and with it the test. */
#define LAST_SECONDS 120

static atomic_bool was_set_back;
static atomic_uint n_asked;

int clock_gettime(clockid_t clock, struct timespec *ret)
{
	int result = (int)syscall(SYS_clock_gettime, clock, ret);

	if (!result && clock == CLOCK_REALTIME && atomic_load(&was_set_back)) {
		ret->tv_sec += STEP_SECONDS;
		atomic_fetch_add(&n_asked, 1);
	}
	return result;
}

CHILD_TEST(a_job_goes_on_when_the_time_of_day_is_set_back, SCENE_SETTINGS())
{
	struct scene scene;
	struct timespec seen, kernels;

	alarm(LAST_SECONDS);
	scene_open_warm(&scene);
	atomic_store(&was_set_back, true);
	/* That the step is seen at all. */
	clock_gettime(CLOCK_REALTIME, &seen);
	syscall(SYS_clock_gettime, CLOCK_REALTIME, &kernels);
	CHECK(atomic_load(&n_asked) > 0 && seen.tv_sec > kernels.tv_sec + STEP_SECONDS / 2);
	for (unsigned i = 0; i < ROUNDS; i++)
		MUST(scene_round(&scene, NULL, 0));
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&scene));
	/* So does the end of a context, which waits for those who are in it. */
	MUST(cu.cuCtxDestroy_v2(child_context()));
	MUST(cu.cuCtxSetCurrent(scene.context));
	scene_close(&scene);
}
