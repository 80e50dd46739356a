// SPDX-License-Identifier: Apache-2.0
/*
 * peer_shut_test.c: while a heap is shut (device.h) whoever opens it to another GPU waits, for that once and no longer.
 */
#include "test/core/core.h"

enum { OWNER = 0, OTHER = 1, POOL = 1, STILL_MS = 100, DEADLINE_MS = 20000 };

static atomic_bool opened;

static void *open_to_other(void *argument)
{
	CHECK(peer_pool_opened(POOL, OWNER, OTHER) == CUDA_SUCCESS);
	atomic_store(&opened, true);
	return argument;
}

static bool is_open_within(unsigned ms)
{
	for (; ms && !atomic_load(&opened); ms--)
		usleep(1000);
	return atomic_load(&opened);
}

TEST(who_opens_waits_for_one_gap_though_the_next_follows_at_once)
{
	const uint64_t owner = UINT64_C(1) << OWNER, both = owner | UINT64_C(1) << OTHER;

	assert_true(peer_shut(OWNER, owner));
	pthread_t thread = test_thread(open_to_other, NULL);
	UNTIL(peer_may_reach(OWNER) != owner);
	assert_false(is_open_within(STILL_MS));
	assert_false(peer_reaches(OTHER, OWNER));
	/* The next one has that GPU stand still, too. */
	peer_unshut(OWNER);
	assert_false(peer_shut(OWNER, owner));
	assert_true(peer_shut(OWNER, both));
	assert_true(is_open_within(DEADLINE_MS));
	assert_true(peer_reaches(OTHER, OWNER));
	peer_unshut(OWNER);
	pthread_join(thread, NULL);
}

BEFORE_ALL
{
	setenv("SIM_DEVICES", "2", 1);
	core_driver();
}
