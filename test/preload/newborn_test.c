// SPDX-License-Identifier: Apache-2.0
/*
 * What a caching allocator reports as born (fake_torch.h) where nothing was: it is not copied as long as nobody can
 * have written there, and all is once somebody can. Each part in a process of its own, beside a job whose memory moves.
 */
#include "test/preload/torch_help.h"

/* Memory that the driver gives out again does not hold what it held. */
#define FILLED SCENE_SETTINGS(runtime, "SIM_FILL=1")

/* A tensor is born in dead memory that is on the host. Memory that is dead when a process is suspended comes back. */
static struct tensor born_on_the_host(struct tensor *before)
{
	tensor_bring(before);
	torch_evict();
	tensor_free(before);
	torch_go_on();
	struct tensor tensor = tensor_new(4 * MIB, NULL);
	CHECK(tensor.at == before->at);
	return tensor;
}

/* Has it fetched by a kernel that names it and writes nothing there. */
static void bring_to_read(const struct tensor *tensor)
{
	struct tensor copy = tensor_new(4 * MIB, NULL);

	for (int tries = 0; tries < 300 && !tensor_is_there(tensor); tries++)
		tensor_copy_late(&copy, tensor, 0, NULL);
	MUST(cu.cuCtxSynchronize());
	tensor_free(&copy);
}

/*
 * What is written where nothing announces it counts as well. sets: before anything else, something else is cleared, and
 * in some rounds the tensor itself is set.
 */
static void being_born(bool sets)
{
	uint64_t saved = 0, saved_in = 0;
	/* How often it was still away when it was born; otherwise it was fetched while it was dead. */
	unsigned seen = 0;

	torch_begin_moving();
	struct tensor whole = tensor_new(4 * MIB, NULL);
	size_t n = whole.bytes / sizeof(uint32_t);
	CUdeviceptr table = child_alloc(2 * sizeof(whole.at));
	MUST(cu.cuMemcpyHtoD_v2(table, &whole.at, sizeof(whole.at)));
	tensor_bring(&whole);
	torch_evict(); /* for the first time: what submissions named before is not known */
	for (uint32_t i = 0; i < 20; i++) {
		whole = born_on_the_host(&whole);
		uint64_t dead = torch_dead_bytes(), dead_in = torch_dead_in_bytes();
		if (sets) {
			MUST(cu.cuMemsetD8Async(table + sizeof(whole.at), 0, 4, NULL)); /* as cuBLAS does */
			MUST(cu.cuCtxSynchronize()); /* in `fast`, a set that still runs may be anything */
			usleep(20000);               /* the mover reads of it */
		}
		if (sets && i % 4 == 3) {
			MUST(cu.cuMemsetD8Async(whole.at, (unsigned char)i, whole.bytes, NULL));
			bring_to_read(&whole);
			CHECK(driver_holds(whole.at, i * 0x01010101, n));
			continue;
		}
		if (i % 2 == 0) {
			seen += !tensor_is_there(&whole);
			tensor_fill(&whole, NULL);
			tensor_bring(&whole);
			saved += torch_dead_bytes() - dead;
			saved_in += torch_dead_in_bytes() - dead_in;
			CHECK(tensor_holds(&whole));
			continue;
		}
		words_fill_hidden(table, i, n, NULL);
		MUST(cu.cuCtxSynchronize());
		bring_to_read(&whole);
		CHECK(words_same(whole.at, i, n) == n);
	}
	/* Not where moving did not pay, and the first kernel wrote to the host; or where it was on its way by then. */
	CHECK((seen < 3 || saved_in >= 4 * MIB) && saved_in <= saved);
	own_end();
}

PART_TEST(what_was_born_is_fetched_without_a_copy_until_something_may_have_written_there, torch_run(part))
{
	being_born(false);
}

PART_TEST(what_was_born_is_fetched_without_a_copy_beside_sets, torch_run(part))
{
	being_born(true);
}

/* A kernel that waits for an address in a table is told of the tensor: by a copy, or by sets. */
static void tell(CUdeviceptr table, const struct tensor *tensor, bool by_sets, CUstream stream)
{
	if (!by_sets) {
		MUST(cu.cuMemcpyHtoDAsync_v2(table, &tensor->at, sizeof(tensor->at), stream));
		return;
	}
	MUST(cuMemsetD32Async(table, (unsigned)tensor->at, 1, stream));
	MUST(cuMemsetD32Async(table + 4, (unsigned)(tensor->at >> 32), 1, stream));
}

/*
 * It leaves when nothing but a set of its own was submitted since its birth, or what tells a kernel of it, which was
 * submitted before and waits for that.
 */
CHILD_TEST(what_is_written_before_it_leaves_is_kept, FILLED)
{
	torch_begin();
	CUstream side = child_stream(), stream = child_stream(); /* the default stream would wait for the kernel */
	struct tensor tensor = tensor_new(4 * MIB, NULL);
	size_t n = tensor.bytes / sizeof(uint32_t);
	CUdeviceptr tables = child_alloc(4096);
	tensor_fill(&tensor, NULL);
	torch_evict();
	for (unsigned i = 1; i < 7; i++) {
		/*
		 * Each time another one: a kernel that gets a table names what is known to have been copied to it
		 * before.
		 */
		CUdeviceptr before = tensor.at, table = tables + 512 * i;

		tensor_bring(&tensor);
		tensor_free(&tensor);
		torch_go_on();
		MUST(cu.cuMemsetD8Async(table, 0, sizeof(tensor.at), side));
		MUST(cu.cuStreamSynchronize(side));
		if (i % 3)
			words_fill_hidden(table, i, n, side);
		tensor = tensor_new(4 * MIB, NULL);
		CHECK(tensor.at == before);
		if (i % 3)
			tell(table, &tensor, i % 3 == 2, stream);
		else
			MUST(cu.cuMemsetD8Async(tensor.at, (unsigned char)i, tensor.bytes, stream));
		MUST(cu.cuCtxSynchronize());
		usleep(20000); /* the mover reads of it */
		own_empty_device();
		CHECK(i % 3 ? words_same(tensor.at, i, n) == n : driver_holds(tensor.at, i * 0x01010101, n));
	}
}

/* Again and again: discarded, born, and written by a kernel that finds the address in memory. by_torch: who says so. */
static void being_reborn(bool by_torch)
{
	torch_begin();
	CUdeviceptr table = child_alloc(4096);
	struct tensor tensor = {.at = by_torch ? 0 : child_alloc(4 * MIB), .bytes = 4 * MIB};
	size_t n = tensor.bytes / sizeof(uint32_t);

	if (by_torch)
		tensor = tensor_new(4 * MIB, NULL);
	MUST(cu.cuMemcpyHtoD_v2(table, &tensor.at, sizeof(tensor.at)));
	own_empty_device(); /* submissions are tracked from now on: before that nothing is discarded */
	for (uint32_t i = 0; i < 4; i++) {
		CUdeviceptr before = tensor.at;

		tensor_bring(&tensor);
		CHECK(spillway_discard(own_pointer(tensor.at), tensor.bytes) == 0);
		if (by_torch) {
			tensor_free(&tensor);
			tensor = tensor_new(4 * MIB, NULL);
			CHECK(tensor.at == before);
		} else {
			CHECK(spillway_born(own_pointer(tensor.at), tensor.bytes) == 0);
		}
		words_fill_hidden(table, i, n, NULL);
		MUST(cu.cuCtxSynchronize());
		usleep(20000); /* the mover reads of it */
		own_empty_device();
		CHECK(words_same(tensor.at, i, n) == n);
	}
}

/* In `fast` all that is used must be announced. */
PART_TEST(a_birth_ends_a_discard, if (strcmp(scene_mode(), "fast")) child_passes(FILLED, part))
{
	being_reborn(false);
}

PART_TEST(a_birth_of_an_allocator_ends_a_discard, if (strcmp(scene_mode(), "fast")) child_passes(FILLED, part))
{
	being_reborn(true);
}

/* Before anything in them is born, segments are filled; whether or not submissions were tracked by then. */
CHILD_TEST(what_an_allocator_has_filled_is_kept, FILLED)
{
	const unsigned word = 0x5a5a5a5a;

	torch_begin();
	CUdeviceptr other = child_alloc(4096);
	torch->fill(torch_cache, word);
	struct tensor first = tensor_new(2 * MIB, NULL);
	own_empty_device();
	CHECK(driver_holds(first.at, word, first.bytes / 4));
	MUST(cu.cuMemsetD8Async(other, 1, 4096, NULL)); /* the first one that is tracked */
	MUST(cu.cuCtxSynchronize());
	/* A part of the segment that was there, and one of its own. */
	for (unsigned i = 0; i < 2; i++) {
		struct tensor tensor = tensor_new(i ? 4 * MIB : 2 * MIB, NULL);

		CHECK(torch->is_filled(torch_cache, tensor.at));
		usleep(20000); /* the mover reads of it */
		own_empty_device();
		CHECK(driver_holds(tensor.at, word, tensor.bytes / 4));
	}
}

EACH_TEST(folder_make, folder_remove)
