// SPDX-License-Identifier: Apache-2.0
/*
 * Births and deaths (lifetimes_test.c) beside what has been submitted and has not run, or has not been read by the
 * mover: memory whose tensor died while a kernel still reads it, memory that is named after its death, births right
 * before the device is emptied, and more events than a ring has room for.
 */
#include "test/preload/torch_help.h"

CHILD_FRAME(torch_begin_moving, own_end)

/* ---- kernels that come late ---- */

/* A kernel on a side stream reads a tensor that dies right after the launch. */
static void read_late(CUstream side, bool evict)
{
	struct tensor from = tensor_new(4 * MIB, NULL), to = tensor_new(4 * MIB, side);

	tensor_fill(&from, NULL);
	tensor_fill(&to, side);
	MUST(cu.cuCtxSynchronize());
	tensor_copy_late(&to, &from, 20000, side);
	torch->record_stream(torch_cache, from.at, side);
	tensor_free(&from);
	CHECK(!torch->is_free(torch_cache, from.at));
	if (evict) /* waits for the kernel, or gives up and is repeated */
		torch_leave();
	else
		own_rounds(3);
	MUST(cu.cuStreamSynchronize(side));
	CHECK(torch->is_free(torch_cache, from.at));
	torch_evict();
	CHECK(tensor_holds(&to));
	tensor_free(&to);
}

PART_TEST(a_kernel_on_a_side_stream_reads_a_tensor_that_died_after_the_launch, torch_run(part))
{
	CUstream side = child_stream();
	for (unsigned i = 0; i < 8; i++)
		read_late(side, i % 2);
}

/* Nothing has spilled yet: no submission was tracked. */
PART_TEST(a_kernel_reads_a_dead_tensor_before_anything_has_spilled, torch_run_bare(part))
{
	torch_begin();
	CUstream side = child_stream();
	struct tensor from = tensor_new(4 * MIB, NULL), to = tensor_new(4 * MIB, side);

	tensor_fill(&from, NULL);
	MUST(cu.cuCtxSynchronize());
	tensor_copy_late(&to, &from, 100000, side);
	torch->record_stream(torch_cache, from.at, side);
	tensor_free(&from);
	scene_allocate(&own_scene);
	torch_leave();
	MUST(cu.cuCtxSynchronize());
	CHECK(tensor_holds(&to));
	own_end();
}

/* ---- named after its death ---- */

PART_TEST(what_is_named_after_its_death_is_alive_again, torch_run(part))
{
	struct tensor beside = tensor_new(4 * MIB, NULL);

	tensor_fill(&beside, NULL);
	for (unsigned i = 0; i < 10; i++) {
		struct tensor tensor = tensor_new((i % 4 + 1) * MIB, NULL);

		tensor_fill(&tensor, NULL);
		tensor_free(&tensor);
		if (i % 2)
			own_rounds(2);
		tensor_fill(&tensor, NULL);
		if (i % 3)
			own_rounds(2);
		torch_evict();
		CHECK(tensor_holds(&tensor) && tensor_holds(&beside));
	}
}

/* What was never born, behind the only tensor of a segment. */
PART_TEST(what_is_named_and_was_never_born_is_preserved, torch_run(part))
{
	struct tensor tensor = tensor_new(MIB / 2, NULL);
	CUdeviceptr behind = tensor.at + MIB;
	size_t n = MIB / 4;

	for (unsigned i = 0; i < 10; i++) {
		tensor_fill(&tensor, NULL);
		words_fill(behind, 1000 + i, n, NULL);
		own_rounds(2);
		torch_evict();
		CHECK(tensor_holds(&tensor) && words_same(behind, 1000 + i, n) == n);
	}
}

/* ---- what the mover has not read ---- */

/* Both are filled until all of them is on the device. Where moving does not pay just now, that is not so. */
static void bring_both(struct tensor *first, struct tensor *second)
{
	for (int i = 0; i < 100 && scene_moves() && !child_on_device(first->at, 6 * MIB); i++) {
		tensor_fill(first, NULL);
		tensor_fill(second, NULL);
		MUST(cu.cuStreamSynchronize(NULL));
	}
}

/*
 * Two tensors die, and one is born across their bounds, is filled, and the device is emptied at once: the order to do
 * so comes before the mover reads of any of it.
 */
PART_TEST(what_is_born_or_named_right_before_the_device_is_emptied_is_preserved, torch_run(part))
{
	struct tensor kept = tensor_new(MIB, NULL);
	for (unsigned i = 0; i < 30; i++) {
		struct tensor first = tensor_new(3 * MIB, NULL), second = tensor_new(3 * MIB, NULL);

		CHECK(second.at == first.at + 3 * MIB);
		bring_both(&first, &second);
		tensor_free(&first);
		tensor_free(&second);
		tensor_fill(&kept, NULL); /* both deaths count */
		MUST(cu.cuCtxSynchronize());
		usleep(20000); /* and the mover has nothing to do */
		struct tensor small = tensor_new(3 * MIB / 2, NULL), across = tensor_new(7 * MIB / 2, NULL);
		CHECK(small.at == first.at && across.at < second.at && across.at + across.bytes > second.at);
		tensor_fill(&across, NULL);
		torch_evict();
		CHECK(tensor_holds(&across) && tensor_holds(&kept));
		tensor_free(&small);
		tensor_free(&across);
	}
}

/* The same with a dead tensor that is named again. */
PART_TEST(what_is_named_right_before_the_device_is_emptied_is_preserved, torch_run(part))
{
	struct tensor kept = tensor_new(MIB, NULL);
	for (unsigned i = 0; i < 30; i++) {
		struct tensor first = tensor_new(3 * MIB, NULL), second = tensor_new(3 * MIB, NULL);

		bring_both(&first, &second);
		tensor_free(&first);
		tensor_free(&second);
		tensor_fill(&kept, NULL);
		MUST(cu.cuCtxSynchronize());
		usleep(20000);
		tensor_fill(&second, NULL);
		torch_evict();
		CHECK(tensor_holds(&second) && tensor_holds(&kept));
	}
}

/* More events than the ring has places for, with nothing submitted that would have them read. */
PART_TEST(more_events_than_a_ring_holds_lose_nothing, torch_run(part))
{
	struct tensor kept = tensor_new(MIB, NULL);

	tensor_fill(&kept, NULL);
	for (unsigned i = 0; i < 60000; i++) {
		struct tensor tensor = tensor_new(MIB / 2, NULL);

		if (i % 10000 == 0)
			tensor_fill(&tensor, NULL);
		tensor_free(&tensor);
	}
	struct tensor last = tensor_new(MIB / 2, NULL);
	tensor_fill(&last, NULL);
	torch_evict();
	CHECK(tensor_holds(&kept) && tensor_holds(&last));
}

/* The same before a mover reads. */
PART_TEST(more_events_than_a_ring_holds_lose_nothing_before_a_mover_reads, torch_run_bare(part))
{
	torch_begin();
	struct tensor kept = tensor_new(MIB, NULL);

	tensor_fill(&kept, NULL);
	for (unsigned i = 0; i < 60000; i++) {
		struct tensor tensor = tensor_new(MIB / 2, NULL);

		tensor_free(&tensor);
	}
	scene_allocate(&own_scene);
	torch_evict();
	CHECK(tensor_holds(&kept));
	own_end();
}

/* ---- what looks as if the allocator had made it ---- */

/*
 * The allocator's sum grows by the 2 MiB that it takes from somebody else's slab; the same thread has just made that
 * slab, of 6 MiB, and has just freed 4 MiB that were not the allocator's.
 */
PART_TEST(a_slab_is_not_taken_for_a_segment_because_something_was_freed, torch_run(part))
{
	CUdeviceptr old = child_alloc(4 * MIB);
	struct tensor tensor = tensor_new(MIB, NULL);

	MUST(cu.cuMemFree_v2(old));
	CUdeviceptr slab = child_alloc(6 * MIB);
	for (int i = 0; i < 300 && (!i || (scene_moves() && !child_on_device(slab, 6 * MIB))); i++) {
		words_fill(slab, 81, 2 * MIB / 4, NULL);
		words_fill(slab + 4 * MIB, 82, 2 * MIB / 4, NULL);
		own_rounds(1);
	}
	struct tensor part = tensor_new_in(torch->new_pool(torch_cache, slab + 2 * MIB, 2 * MIB), MIB, NULL);
	CHECK(part.at == slab + 2 * MIB);
	for (unsigned i = 0; i < 4; i++) {
		tensor_fill(&part, NULL);
		own_rounds(3);
		usleep(20000); /* the mover has read of it */
		torch_evict();
	}
	CHECK(words_same(slab, 81, 2 * MIB / 4) == 2 * MIB / 4);
	CHECK(words_same(slab + 4 * MIB, 82, 2 * MIB / 4) == 2 * MIB / 4);
	tensor_free(&tensor);
}

/* ---- memory that changes hands ---- */

/* A pool whose segments are one slab, made for it alone; then the pool is gone, and somebody else has the slab. */
PART_TEST(a_slab_that_is_given_on_is_kept, torch_run(part))
{
	struct tensor tensor = tensor_new(MIB, NULL);
	CUdeviceptr slab = child_alloc(8 * MIB);
	unsigned pool = torch->new_pool(torch_cache, slab, 8 * MIB);

	struct tensor a = tensor_new_in(pool, 2 * MIB, NULL), b = tensor_new_in(pool, 2 * MIB, NULL);
	tensor_fill(&a, NULL);
	tensor_fill(&b, NULL);
	tensor_free(&a);
	tensor_free(&b);
	MUST(cu.cuCtxSynchronize());
	torch->drop_pool(torch_cache, pool);
	for (int i = 0; i < 100 && (!i || (scene_moves() && !child_on_device(slab, 8 * MIB))); i++) {
		words_fill(slab, 81, 8 * MIB / 4, NULL);
		own_rounds(1);
	}
	tensor_free(&tensor);
	usleep(20000);
	torch_evict();
	CHECK(words_same(slab, 81, 8 * MIB / 4) == 8 * MIB / 4);
}

static CUcontext context;
static struct tensor of_another;

static void *submit_and_evict(void *unused)
{
	MUST(cu.cuCtxSetCurrent(context));
	tensor_fill(&of_another, NULL);
	MUST(cu.cuCtxSynchronize());
	usleep(20000);
	torch_leave();
	return NULL;
}

static void let_another_thread_submit(void)
{
	test_beside(submit_and_evict, NULL);
}

PART_TEST(a_restored_pool_is_kept_though_another_thread_submits_meanwhile, torch_run(part))
{
	MUST(cu.cuCtxGetCurrent(&context));
	of_another = tensor_new(MIB, NULL);
	unsigned pool = torch->new_pool(torch_cache, 0, 0);
	struct tensor tensor = tensor_new_in(pool, 6 * MIB, NULL);
	for (int i = 0; i < 50 && (!i || (scene_moves() && !child_on_device(tensor.at, 6 * MIB))); i++) {
		tensor_fill(&tensor, NULL);
		MUST(cu.cuCtxSynchronize());
	}
	usleep(20000);
	torch->checkpoint(torch_cache, pool, let_another_thread_submit);
	CHECK(tensor_holds(&tensor));
}

/* Where nothing was born, by its address, before anything has spilled. */
PART_TEST(what_was_written_before_anything_spilled_is_kept, torch_run_bare(part))
{
	torch_begin();
	struct tensor tensor = tensor_new(3 * MIB, NULL), before = tensor_new(4 * MIB, NULL);
	CUdeviceptr fresh = tensor.at + tensor.bytes;
	size_t n = (fresh % (2 * MIB) ? 2 * MIB - fresh % (2 * MIB) : 0) / 4;

	tensor_fill(&before, NULL);
	words_fill(fresh, 77, n, NULL);
	scene_allocate(&own_scene);
	own_rounds(2);
	torch_evict();
	CHECK(words_same(fresh, 77, n) == n);
	own_end();
}

int main(void)
{
	if (folder_make(NULL))
		return 1;
	int failed = test_run();
	folder_remove(NULL);
	return failed;
}
