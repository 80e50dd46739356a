// SPDX-License-Identifier: Apache-2.0
/*
 * A program is suspended: what leaves without a copy does so while the rest is copied.
 */
#include "test/preload/torch_help.h"

static void *suspend_aside(void *argument)
{
	child_suspend();
	return argument;
}

/* While nothing that was submitted ends, so no copy does: what takes no copy leaves all the same. */
PART_TEST(what_is_dead_leaves_while_the_rest_is_copied, torch_run(part))
{
	torch_begin();
	struct tensor alive = tensor_new(4 * MIB, NULL), dead = tensor_new(6 * MIB, NULL);
	tensor_fill(&alive, NULL);
	tensor_fill(&dead, NULL);
	tensor_free(&dead);
	tensor_fill(&alive, NULL); /* the death counts */
	MUST(cu.cuCtxSynchronize());
	CHECK(sim_live().device_bytes == 10 * MIB && torch_bytes_out() == 0);
	sim_hold_at("cuMemcpyDtoDAsync_v2", 1);
	pthread_t thread = test_thread(suspend_aside, NULL);
	for (unsigned tries = 0; tries < 10000 && sim_live().device_bytes > 4 * MIB; tries++)
		usleep(1000);
	CHECK(sim_is_held() && sim_live().device_bytes == 4 * MIB);
	sim_release();
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(sim_live().device_bytes == 0);
	CHECK(spillway_resume() == 0);
	CHECK(tensor_holds(&alive));
}

EACH_TEST(folder_make, folder_remove)
