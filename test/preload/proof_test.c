// SPDX-License-Identifier: Apache-2.0
/*
 * How often an event is recorded behind a submission: seldom, while nothing moves. The blocks that are used fit the
 * budget, others that nobody uses have filled it.
 */
#include "test/preload/scene.h"
#include "test/test.h"

enum { LAUNCHES = 640, LEAST_BETWEEN = 8 };

CHILD_TEST(while_nothing_moves_few_events_are_recorded, SCENE_SETTINGS())
{
	struct scene scene;
	uint32_t n = 1, lane = 0;

	scene_open(&scene, 0);
	CUstream stream = child_stream();
	void *args[] = {&scene.block[0], &n, &lane};
	CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, NULL, 0};
	unsigned long fewest = LAUNCHES;

	/*
	 * What the sets of the blocks began to move comes to rest first, and before tracking begins there is no event.
	 */
	for (int i = 0; i < 40 && fewest > LAUNCHES / LEAST_BETWEEN; i++) {
		unsigned long before = sim_calls("cuEventRecord");

		for (int k = 0; k < LAUNCHES; k++)
			MUST(cuLaunchKernelEx(&config, scene.touch, args, NULL));
		MUST(cu.cuStreamSynchronize(stream));
		unsigned long events = sim_calls("cuEventRecord") - before;
		if (events || !scene_moves())
			fewest = events < fewest ? events : fewest;
		usleep(10000);
	}
	CHECK(fewest <= LAUNCHES / LEAST_BETWEEN);
}
