// SPDX-License-Identifier: Apache-2.0
/*
 * Births in memory that is mapped nowhere: in `fast`, what is dead leaves without a copy, and is not mapped on the host
 * before there is time for it. Nobody can write there until it comes back, so that takes no copy either.
 */
#include "test/preload/torch_help.h"

#define TRIES 400

/* Of another tensor; it says nothing of where the new ones are. */
static void submit_something(struct tensor *other)
{
	tensor_fill(other, NULL);
	MUST(cu.cuCtxSynchronize());
}

/* The tensor dies on the device, and the job beside it takes its place. Returns whether it is mapped nowhere then. */
static bool die_and_leave(const struct tensor *tensor, struct tensor *other)
{
	tensor_free(tensor);
	submit_something(other);
	struct tensor small = tensor_new(1024, NULL); /* the thread reports again: the death counts */
	tensor_free(&small);
	for (unsigned round = 0; round < 4 && sim_where(tensor->at) == 'D'; round++)
		own_rounds(1);
	return sim_where(tensor->at) == 0;
}

PART_TEST(what_is_born_where_nothing_is_mapped_comes_without_a_copy, torch_run(part))
{
	uint64_t skipped = 0;

	torch_begin_moving();
	struct tensor other = tensor_new(4 * MIB, NULL), tensor = tensor_new(4 * MIB, NULL);

	for (unsigned i = 0; i < TRIES && skipped < 4 * MIB; i++) {
		tensor_fill(&tensor, NULL);
		MUST(cu.cuCtxSynchronize());
		bool is_nowhere = die_and_leave(&tensor, &other);
		tensor = tensor_new(4 * MIB, NULL);
		submit_something(&other);
		/* The mover may have mapped it since. */
		is_nowhere &= sim_where(tensor.at) == 0;
		uint64_t before = torch_dead_in_bytes();
		tensor_fill(&tensor, NULL);
		MUST(cu.cuCtxSynchronize());
		if (is_nowhere)
			skipped += torch_dead_in_bytes() - before;
		CHECK(tensor_holds(&tensor) && tensor_holds(&other));
	}
	CHECK(skipped >= 4 * MIB);
	own_end();
}

EACH_TEST(folder_make, folder_remove)
