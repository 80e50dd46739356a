// SPDX-License-Identifier: Apache-2.0
/*
 * clone_test.c: a child that no handler of fork() is told of, clone() without CLONE_VM, calls the driver. It has no
 * mover and none of our threads: a gate that is closed never opens for it, and locks that somebody else had when it was
 * made stay locked. It is passed through; the driver answers it what it likes.
 */
#include "shim/spillway.h"
#include "test/preload/scene.h"
#include "test/test.h"

#include <sys/syscall.h>

/* What a child that waits for ever is ended after. */
#define LAST_SECONDS 20

/* Does the child come to its end? */
static bool ends(struct scene *scene, CUstream stream)
{
	pid_t child = (pid_t)syscall(SYS_clone, (unsigned long)SIGCHLD, NULL, NULL, NULL, NULL);
	int status;

	if (!child) {
		/* alarm() is not inherited. */
		alarm(LAST_SECONDS);
		scene_round(scene, stream, 1);
		cu.cuMemsetD8Async(scene->block[0], 1, 4096, stream);
		cu.cuStreamSynchronize(stream);
		cu.cuStreamDestroy_v2(stream);
		cu.cuDevicePrimaryCtxReset_v2(0);
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

CHILD_TEST(a_child_that_was_cloned_is_not_held_at_the_gate, SCENE_SETTINGS())
{
	struct scene scene;

	scene_open(&scene, 0);
	CUstream stream = child_stream();
	CHECK(scene_warm_up(&scene));
	if (!scene_moves())
		return;
	MUST(scene_round(&scene, stream, 1));
	MUST(cu.cuCtxSynchronize());
	CHECK(spillway_suspend() == 0);
	CHECK(ends(&scene, stream));
	CHECK(spillway_resume() == 0);
	MUST(scene_round(&scene, stream, 1));
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&scene) && sim_broken_rules() == 0);
	MUST(cu.cuStreamDestroy_v2(stream));
	scene_close(&scene);
}
