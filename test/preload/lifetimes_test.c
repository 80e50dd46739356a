// SPDX-License-Identifier: Apache-2.0
/*
 * A caching allocator that reports births and deaths of tensors (fake_torch.h): what is alive survives every eviction,
 * and what is dead is not copied. Each part in a process of its own, beside a job that needs twice its budget.
 */
#include "test/preload/torch_help.h"

#include <dlfcn.h>

CHILD_FRAME(torch_begin_moving, own_end)

#define TEXT_OF(name) #name
#define NAME_OF(name) TEXT_OF(name)

/* ---- the report itself ---- */

static bool is_last_report(const struct tensor *tensor, int64_t bytes, size_t allocated)
{
	struct fake_report last = fake_torch_reports().last;

	return last.address == (void *)(uintptr_t)tensor->at && last.bytes == bytes && last.allocated == allocated &&
	       last.reserved == torch->reserved(torch_cache) && last.device.type == FAKE_TORCH_CUDA &&
	       last.device.index == 0;
}

PART_TEST(the_original_function_is_called_with_the_same_arguments, torch_run_bare(part))
{
	torch_begin();
	struct tensor small = tensor_new(1000, NULL);
	CHECK(small.bytes == 1024 && fake_torch_reports().n == 1 && is_last_report(&small, 1024, 1024));
	struct tensor large = tensor_new(5 * MIB, NULL);
	CHECK(large.bytes == 6 * MIB && fake_torch_reports().n == 2 && torch->reserved(torch_cache) == 8 * MIB);
	CHECK(is_last_report(&large, 6 * MIB, 6 * MIB + 1024));
	tensor_free(&small);
	CHECK(fake_torch_reports().n == 3 && is_last_report(&small, -1024, 6 * MIB));
	tensor_free(&large);
	CHECK(fake_torch_reports().n == 4 && is_last_report(&large, -(int64_t)(6 * MIB), 0));
}

/* ---- what is alive ---- */

enum { TENSORS = 10 };

/* Of all sizes, so that some share a piece with others, and some have several pieces. */
static size_t size_of(unsigned i)
{
	static const size_t sizes[] = {700, 40000, 600000, MIB, 3 * MIB / 2, 2 * MIB, 3 * MIB, 5 * MIB};

	return sizes[i % (sizeof(sizes) / sizeof(sizes[0]))];
}

PART_TEST(what_is_alive_survives_any_number_of_evictions, torch_run(part))
{
	struct tensor tensors[TENSORS];

	CUstream stream = child_stream();
	for (unsigned i = 0; i < TENSORS; i++) {
		tensors[i] = tensor_new(size_of(i), stream);
		tensor_fill(&tensors[i], stream);
	}
	for (unsigned round = 0; round < 12; round++) {
		MUST(cu.cuStreamSynchronize(stream));
		own_rounds(5);
		if (round % 3 == 0)
			torch_evict();
		for (unsigned i = 0; i < TENSORS; i++)
			CHECK(tensor_holds(&tensors[i]));
		/* Some die, and their neighbours do not; what is born then has other bounds. */
		for (unsigned i = round % 3; i < TENSORS; i += 3)
			tensor_free(&tensors[i]);
		for (unsigned i = round % 3; i < TENSORS; i += 3) {
			tensors[i] = tensor_new(size_of(i + round), stream);
			tensor_fill(&tensors[i], stream);
		}
		if (round % 4 == 3)
			torch->empty_cache(torch_cache);
	}
}

/* ---- what is dead ---- */

/* Whoever else has the function reports. */
static void report(const void *at, int64_t bytes, size_t reserved, struct fake_device device)
{
	void (*function)(const void *, int64_t, size_t, size_t, struct fake_device);

	*(void **)&function = dlsym(RTLD_DEFAULT, NAME_OF(FAKE_TORCH_REPORT));
	CHECK(function);
	function(at, bytes, 0, reserved, device);
}

/* Libraries for the CPU report, too, before anything is allocated: of a file that is mapped. */
static void report_a_file(void)
{
	static char file[4096];

	report(file, sizeof(file), sizeof(file), (struct fake_device){0, 0});
}

/*
 * Nothing beside the tensors, whose memory fits: all that is not on the device is so because it was sent out. Each
 * figure is exact.
 */
PART_TEST(what_is_dead_is_not_copied, if (scene_moves()) torch_run_bare(part))
{
	report_a_file();
	torch_begin();
	struct tensor whole = tensor_new(4 * MIB, NULL), in_part = tensor_new(MIB / 2, NULL),
		      beside = tensor_new(MIB / 2, NULL);

	tensor_fill(&whole, NULL);
	tensor_fill(&in_part, NULL);
	tensor_fill(&beside, NULL);
	torch_evict();
	CHECK(torch_bytes_out() == 6 * MIB && torch_dead_bytes() == MIB); /* where nothing was ever born */
	CHECK(tensor_holds(&whole) && tensor_holds(&in_part) && tensor_holds(&beside));
	/* At the same places. */
	tensor_free(&beside);
	tensor_free(&in_part);
	tensor_free(&whole);
	whole = tensor_new(4 * MIB, NULL);
	in_part = tensor_new(MIB / 2, NULL);
	beside = tensor_new(MIB / 2, NULL);
	tensor_fill(&beside, NULL);
	for (unsigned i = 0; i < 3; i++) {
		tensor_bring(&whole);
		tensor_bring(&in_part);
		if (i == 1)
			tensor_free(&beside);
		if (i == 2)
			tensor_free(&whole);
		tensor_fill(&in_part, NULL);
		/* This thread has submitted, and reports again: something that changes nothing. */
		tensor_free(&in_part);
		CHECK(tensor_new(MIB / 2, NULL).at == in_part.at);
		MUST(cu.cuCtxSynchronize());
		usleep(20000); /* the mover reads of it */
		uint64_t out = torch_bytes_out(), dead = torch_dead_bytes();
		/* While it is away; what comes back counts, too. */
		int status = -EBUSY;
		for (int tries = 0; tries < 50 && status == -EBUSY; tries++)
			status = spillway_suspend();
		CHECK(status == 0);
		CHECK(torch_bytes_out() - out == 6 * MIB);
		CHECK(torch_dead_bytes() - dead == MIB + (i >= 1 ? MIB / 2 : 0) + (i >= 2 ? 4 * MIB : 0));
		CHECK(spillway_resume() == 0);
		CHECK(tensor_holds(&in_part) && (i == 2 || tensor_holds(&whole)) && (i >= 1 || tensor_holds(&beside)));
	}
}

/* A piece is dead, and one in part: what is left behind is not what was written. */
PART_TEST(what_is_dead_beside_a_job_is_not_copied, if (scene_moves()) torch_run(part))
{
	struct tensor in_part = tensor_new(MIB, NULL), beside = tensor_new(MIB / 2, NULL),
		      whole = tensor_new(4 * MIB, NULL);

	for (unsigned i = 0; i < 10; i++) {
		tensor_fill(&beside, NULL);
		tensor_bring(&in_part);
		tensor_bring(&whole);
		tensor_free(&whole);
		tensor_free(&in_part);
		torch_go_on();
		torch_evict();
		CHECK(tensor_holds(&beside));
		in_part = tensor_new(MIB, NULL);
		whole = tensor_new(4 * MIB, NULL);
	}
	CHECK(torch_dead_bytes() >= 4 * MIB); /* at least once all of the whole one was dead when it left */
}

/* Memory that the driver gives out again does not hold what it held. */
PART_TEST(what_is_dead_does_not_come_back, if (scene_moves()) child_passes(SCENE_SETTINGS(runtime, "SIM_FILL=1"), part))
{
	unsigned lost = 0;

	for (unsigned i = 0; i < 20; i++) {
		struct tensor tensor = tensor_new(4 * MIB, NULL);

		/* Other contents first: they may be what host memory still holds. */
		tensor_bring(&tensor);
		tensor_fill(&tensor, NULL);
		tensor_free(&tensor);
		torch_go_on();
		torch_evict();
		lost += tensor_same(&tensor) < tensor.bytes / 4;
	}
	CHECK(lost > 0);
}

/* ---- memory that was not made by the allocator ---- */

/* The allocator has the middle third of a slab; the rest has contents of which it reports nothing. */
static void check_slab(CUdeviceptr slab, size_t third)
{
	size_t n = third / 4;

	words_fill(slab, 71, n, NULL);
	words_fill(slab + 2 * third, 72, n, NULL);
	unsigned pool = torch->new_pool(torch_cache, slab + third, third);
	struct tensor dead = tensor_new_in(pool, third / 2, NULL), alive = tensor_new_in(pool, third / 4, NULL);
	CHECK(dead.at >= slab + third && alive.at + alive.bytes <= slab + 2 * third);
	for (unsigned i = 0; i < 4; i++) {
		tensor_fill(&dead, NULL);
		tensor_fill(&alive, NULL);
		MUST(cu.cuStreamSynchronize(NULL));
		tensor_free(&dead);
		words_fill(slab, 71, 16, NULL);
		torch_evict();
		CHECK(words_same(slab, 71, n) == n && words_same(slab + 2 * third, 72, n) == n);
		CHECK(tensor_holds(&alive));
		CHECK(tensor_holds(&dead)); /* whoever made the slab may look at all of it */
		dead = tensor_new_in(pool, third / 2, NULL);
	}
	tensor_free(&dead);
	tensor_free(&alive);
	torch->drop_pool(torch_cache, pool);
	MUST(cu.cuMemFree_v2(slab));
}

PART_TEST(a_slab_that_the_allocator_uses_a_part_of_is_preserved, torch_run(part))
{
	check_slab(child_alloc(6 * MIB), 2 * MIB);
	struct tensor tensor = tensor_new(MIB, NULL);
	check_slab(child_alloc(6 * MIB), 2 * MIB);
	tensor_free(&tensor);
	/* The slab has taken the place of something else. */
	CUdeviceptr other = child_alloc(4 * MIB);
	tensor = tensor_new(3 * MIB, NULL);
	MUST(cu.cuMemFree_v2(other));
	check_slab(child_alloc(6 * MIB), 2 * MIB);
	torch->empty_cache(torch_cache);
	check_slab(child_alloc(6 * MIB), 2 * MIB);
}

/* ---- memory of graphs ---- */

/* out = what `in` holds at the launch, by way of two tensors of the pool that are not needed in between. */
static CUgraphExec capture(CUstream stream, unsigned pool, const struct tensor *in, struct tensor *ret_out)
{
	torch_capture(stream, pool);
	struct tensor between = tensor_new(in->bytes, stream);
	tensor_copy_late(&between, in, 0, stream);
	struct tensor again = tensor_new(in->bytes, stream);
	tensor_copy_late(&again, &between, 0, stream);
	tensor_free(&between);
	*ret_out = tensor_new(in->bytes, stream);
	tensor_copy_late(ret_out, &again, 0, stream);
	tensor_free(&again);
	return torch_end_capture(stream);
}

PART_TEST(the_pool_of_a_graph_is_preserved_across_evictions_and_replays, torch_run(part))
{
	CUstream stream = child_stream();
	struct tensor in = tensor_new(MIB, stream), out;
	unsigned pool = torch->new_pool(torch_cache, 0, 0);
	CUgraphExec exec = capture(stream, pool, &in, &out);

	for (unsigned i = 0; i < 12; i++) {
		tensor_fill(&in, stream);
		MUST(cu.cuGraphLaunch(exec, stream));
		out.salt = in.salt;
		MUST(cu.cuStreamSynchronize(stream));
		own_rounds(3);
		torch_evict();
		CHECK(tensor_holds(&out) && tensor_holds(&in));
	}
	/* The input is dead, its block is not used again, and the graph still names it: its output stays. */
	tensor_free(&in);
	own_rounds(3);
	torch_evict();
	CHECK(tensor_holds(&out));
	MUST(cu.cuGraphExecDestroy(exec));
	tensor_free(&out);
	torch->drop_pool(torch_cache, pool);
	torch->empty_cache(torch_cache);
}

/*
 * A tensor of a graph's pool dies, but the graph still writes to it, through a pointer that nothing announces, and what
 * it writes is of use: so do graphs that share a pool. early: both tensors are born before the capture, and the graph
 * names one of them.
 */
static void write_unannounced(CUstream stream, CUdeviceptr table, uint32_t salt, bool early)
{
	unsigned pool = torch->new_pool(torch_cache, 0, 0);
	struct tensor kept = tensor_new(MIB / 2, stream), named, dead;

	for (int capturing = 0; capturing <= 1; capturing++) {
		if (capturing)
			torch_capture(stream, pool);
		else
			torch->use_pool(torch_cache, pool, false);
		if (capturing != early) {
			named = tensor_new(MIB / 2, stream);
			dead = tensor_new(MIB / 2, stream);
		}
	}
	words_fill_hidden(table, salt, dead.bytes / 4, stream);
	if (early)
		words_fill(named.at, salt, 1, stream);
	CUgraphExec exec = torch_end_capture(stream);
	MUST(cu.cuMemcpyHtoD_v2(table, &dead.at, sizeof(dead.at)));
	if (scene_moves())
		tensor_bring(&dead);
	tensor_free(&dead);
	tensor_fill(&kept, stream);
	MUST(cu.cuGraphLaunch(exec, stream));
	MUST(cu.cuStreamSynchronize(stream));
	usleep(20000); /* the mover reads of it */
	torch_evict();
	CHECK(words_same(dead.at, salt, dead.bytes / 4) == dead.bytes / 4);
	MUST(cu.cuGraphExecDestroy(exec));
	tensor_free(&named);
	tensor_free(&kept);
	torch->drop_pool(torch_cache, pool);
	torch->empty_cache(torch_cache);
}

/* In `fast` all that is used must be announced. */
PART_TEST(what_a_graph_writes_unannounced_to_its_pool_is_preserved, if (strcmp(scene_mode(), "fast")) torch_run(part))
{
	CUstream stream = child_stream();
	CUdeviceptr table = child_alloc(4096);
	for (unsigned i = 0; i < 6; i++)
		write_unannounced(stream, table, 900 + i, i % 2);
}

static void evict_between(void)
{
	usleep(20000); /* the mover reads of the deaths */
	torch_leave();
}

/* Every second time the device is emptied between the deaths and the births, too. */
PART_TEST(what_a_checkpoint_restores_is_preserved, torch_run(part))
{
	struct tensor tensors[3];

	unsigned pool = torch->new_pool(torch_cache, 0, 0);
	for (unsigned i = 0; i < 3; i++) {
		tensors[i] = tensor_new_in(pool, (i + 1) * MIB, NULL);
		tensor_fill(&tensors[i], NULL);
	}
	for (unsigned i = 0; i < 12; i++) {
		/* All of it is on the device. */
		for (unsigned j = 0; j < 3 && scene_moves(); j++)
			tensor_bring(&tensors[j]);
		MUST(cu.cuCtxSynchronize());
		torch->checkpoint(torch_cache, pool, i % 4 < 2 ? evict_between : NULL);
		if (i % 2)
			own_rounds(3);
		torch_evict();
		for (unsigned j = 0; j < 3; j++)
			CHECK(tensor_holds(&tensors[j]));
	}
}

/* The block of the job beside is discarded, so that what is born is looked for. */
PART_TEST(what_is_reported_beyond_all_memory_ends_nobody_and_loses_nothing, torch_run(part))
{
	static const int64_t sizes[] = {(int64_t)1 << 40, INT64_MAX, INT64_MIN};
	struct tensor tensor;

	CUdeviceptr block = child_alloc(4 * MIB);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		tensor = tensor_new(4 * MIB, NULL);
		tensor_fill(&tensor, NULL);
		CHECK(spillway_discard(own_pointer(block), 4 * MIB) == 0);
		report(own_pointer(tensor.at), sizes[i], torch->reserved(torch_cache),
		       (struct fake_device){FAKE_TORCH_CUDA, 0});
		torch_evict();
		CHECK(tensor_holds(&tensor));
	}
}

EACH_TEST(folder_make, folder_remove)
