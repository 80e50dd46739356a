// SPDX-License-Identifier: Apache-2.0
/*
 * How long submissions wait for memory that cannot come: once for a moment, however slow the link seems to be. The link
 * looks slow when its copies had to wait for something else that the device, or the machine, did.
 */
#include "test/preload/scene.h"
#include "test/preload/slow_clock.h"
#include "test/test.h"

/*
 * By the clock of this program a copy of 4 MiB takes 64 pauses: 450 ms, less than what the library takes for a copy
 * that is stuck while it does not know the link, and so much that to bring a block of the scene, and to make room for
 * it, would take longer than the 2 s after which a submission goes without an answer.
 */
#define SLOW_PAUSE_US 7000
enum { HELD_LANE = 1, OTHER_LANE = 2, ROUNDS = 100 };

static struct scene scene;

/*
 * The held stream names all blocks, so that none can leave until the program lets it go; that it does after it has
 * submitted more. Each of some hundred launches waited for 2 s.
 */
CHILD_TEST(a_link_that_was_slow_once_does_not_hold_launches_up, SCENE_SETTINGS())
{
	scene_open(&scene, 0);
	sim_pauses(slow_clock_pass);
	sim_switch("PIECE_US", SLOW_PAUSE_US);
	CHECK(scene_warm_up(&scene));
	/*
	 * One round more, so that copies of both directions have been measured; with some more, moving no longer pays.
	 */
	MUST(scene_round(&scene, NULL, 0));
	MUST(cu.cuCtxSynchronize());
	CUstream held = child_stream();
	CUstream other = child_stream();
	unsigned *word = child_hold(held);
	MUST(scene_round(&scene, held, HELD_LANE));
	for (unsigned i = 0; i < ROUNDS; i++)
		MUST(scene_round(&scene, other, OTHER_LANE));
	child_release(word);
	MUST(cu.cuCtxSynchronize());
	CHECK(scene_holds(&scene));
	scene_close(&scene);
}
