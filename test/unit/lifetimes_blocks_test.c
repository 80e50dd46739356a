// SPDX-License-Identifier: Apache-2.0
/*
 * lifetimes_blocks_test.c: which blocks are reported, by an allocator or by the program itself, and which are
 * distrusted.
 */
#include "test/unit/lifetimes_help.h"

static const struct live_now late = {.done = UINT64_MAX, .unfinished = true};
static struct live_map *map;

static int begin(void **state)
{
	lifetimes_begin(state);
	map = lifetimes_map(lifetimes);
	return 0;
}

/* ---- which blocks are reported ---- */

TEST(a_block_is_reported_whose_bytes_the_allocator_has_just_reserved)
{
	allocated_and_told(2 * MIB, 20 * MIB, 20 * MIB);
	assert_true(is_reported_at(2 * MIB));
	assert_true(is_reported_at(21 * MIB));
	assert_false(is_reported_at(22 * MIB));
	assert_int_equal(live_map_sums(map).alive, MIB);
	/* A second one, beside memory that this thread has allocated for something else. */
	allocated(BASE + 100 * MIB, 8 * MIB, 0);
	allocated_and_told(40 * MIB, 6 * MIB, 26 * MIB);
	assert_true(is_reported_at(40 * MIB));
	assert_false(is_reported_at(100 * MIB));
}

TEST(a_part_of_what_somebody_else_has_allocated_is_not)
{
	allocated_and_told(0, 64 * MIB, 20 * MIB);
	assert_false(is_reported_at(0));
	tell(20 * MIB, MIB, true, 40 * MIB);
	assert_false(is_reported_at(20 * MIB));
	/* Nor is it when the allocator reports the next time. */
	allocated(BASE + 64 * MIB, 20 * MIB, 0);
	tell(MIB, MIB, true, 40 * MIB);
	tell(3 * MIB, MIB, true, 60 * MIB);
	assert_false(is_reported_at(0));
	assert_false(is_reported_at(64 * MIB));
	/* As many bytes for something else, while the allocator gets that many from elsewhere. */
	allocated(BASE + 96 * MIB, 20 * MIB, 0);
	tell(40 * MIB, MIB, true, 80 * MIB);
	assert_int_equal(live_map_sums(map).reported, 0);
	assert_false(is_reported_at(96 * MIB));
}

static void *submit_elsewhere(void *call)
{
	stats_call(*(const enum hook_id *)call);
	return NULL;
}

static void *allocate_elsewhere(void *unused)
{
	allocated(BASE, 20 * MIB, 0);
	return NULL;
}

TEST(nor_what_another_library_has_asked_for)
{
	allocated_for(&other, BASE, 20 * MIB, 0);
	tell(0, MIB, true, 20 * MIB);
	allocated_for(NULL, BASE + 20 * MIB, 20 * MIB, 0);
	tell(20 * MIB, MIB, true, 40 * MIB);
	assert_false(is_reported_at(0) || is_reported_at(20 * MIB));
	/* Nor parts that it has placed before or behind the allocator's. */
	allocated_for(&allocator, BASE + 40 * MIB, 4 * MIB, BASE + 40 * MIB);
	allocated_for(&other, BASE + 44 * MIB, 4 * MIB, BASE + 40 * MIB);
	tell(44 * MIB, MIB, true, 48 * MIB);
	assert_false(is_reported_at(40 * MIB) || is_reported_at(44 * MIB));
	allocated_and_told(60 * MIB, 20 * MIB, 68 * MIB);
	assert_true(is_reported_at(60 * MIB));
}

/* As PyTorch maps them, when a tensor is born over a range of which a part in the middle is mapped. */
TEST(parts_on_both_sides_of_others_count_as_one_block)
{
	allocated(BASE + 20 * MIB, 20 * MIB, BASE);
	tell_both(20 * MIB, 20 * MIB, 20 * MIB);
	allocated(BASE, 20 * MIB, BASE);
	allocated(BASE + 40 * MIB, 20 * MIB, BASE);
	tell(0, 50 * MIB, true, 60 * MIB);
	assert_true(is_reported_at(0) && is_reported_at(20 * MIB) && is_reported_at(40 * MIB));
	assert_true(live_map_is_dead(map, 50 * MIB, 60 * MIB, late));
	/* Not if nothing is born in one of them: what else it is for is not known. */
	allocated(BASE + 80 * MIB, 4 * MIB, BASE);
	allocated(BASE + 64 * MIB, 4 * MIB, BASE);
	tell(64 * MIB, MIB, true, 68 * MIB);
	assert_false(is_reported_at(80 * MIB) || is_reported_at(64 * MIB));
}

TEST(if_the_sum_is_another_one_with_a_new_block_nothing_is_trusted)
{
	allocated_and_told(0, 20 * MIB, 20 * MIB);
	tell(0, MIB, false, 20 * MIB);
	/* As much was given to somebody else meanwhile. */
	allocated_and_told(32 * MIB, 20 * MIB, 20 * MIB);
	assert_false(is_reported_at(0) || is_reported_at(32 * MIB));
	/* What comes then counts, as before. */
	allocated_and_told(64 * MIB, 20 * MIB, 40 * MIB);
	assert_true(is_reported_at(64 * MIB));
}

TEST(memory_elsewhere_does_not_change_what_the_sum_says)
{
	allocated_and_told(0, 20 * MIB, 20 * MIB);
	tell(2 * BYTES, MIB, true, 30 * MIB); /* in no heap */
	allocated_and_told(32 * MIB, 20 * MIB, 50 * MIB);
	assert_true(is_reported_at(0) && is_reported_at(32 * MIB));
	tell(2 * BYTES, MIB, false, 10 * MIB);
	assert_false(is_reported_at(0) || is_reported_at(32 * MIB));
}

TEST(an_allocator_that_does_not_report_everything_is_never_trusted_again)
{
	static const bool births[] = {true, false};

	for (unsigned i = 0; i < 2; i++) {
		allocated_and_told(0, 20 * MIB, 20 * MIB);
		tell(2 * MIB, MIB, true, 20 * MIB);
		assert_true(is_reported_at(0));
		hide(MIB, births[i]);
		tell(3 * MIB, MIB, i, 20 * MIB);
		assert_false(is_reported_at(0));
		allocated_and_told(32 * MIB, 20 * MIB, 40 * MIB);
		assert_false(is_reported_at(32 * MIB));
		lifetimes_end(state);
		begin(state);
	}
	/* What is in no heap counts. */
	tell(2 * BYTES, MIB, true, 2 * MIB);
	allocated_and_told(0, 20 * MIB, 22 * MIB);
	assert_true(is_reported_at(0));
}

/* By whatever call, and whichever thread: the block may have been filled. */
TEST(a_block_is_alive_as_a_whole_if_anything_was_submitted_since_it_was_made)
{
	static enum hook_id calls[] = {HOOK_cuMemcpyHtoD_v2, HOOK_cuMemsetD2D32Async_ptsz, HOOK_cuGraphLaunch,
				       HOOK_cuMemcpyBatchAsync};
	uint64_t at = 0, reserved = 0;

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++, at += 20 * MIB) {
		allocated_and_told(at, 8 * MIB, reserved += 8 * MIB);
		assert_true(is_reported_at(at));
		assert_true(live_map_is_dead(map, at + MIB, at + 8 * MIB, late));
		allocated(BASE + at + 8 * MIB, 8 * MIB, 0);
		test_beside(submit_elsewhere, &calls[i]);
		tell(at + 8 * MIB, MIB, true, reserved += 8 * MIB);
		assert_true(is_reported_at(at + 8 * MIB));
		assert_int_equal(live_map_dead_share(map, at + 8 * MIB, at + 16 * MIB, late, 8), 0);
	}
	/* What is born and dies there is dead. */
	tell_both(14 * MIB, 2 * MIB, reserved);
	read_all();
	assert_true(live_map_is_dead(map, 14 * MIB, 16 * MIB, late));
	assert_false(live_map_is_dead(map, 12 * MIB, 14 * MIB, late));
}

TEST(what_another_thread_has_allocated_is_not)
{
	test_beside(allocate_elsewhere, NULL);
	tell(0, MIB, true, 20 * MIB);
	assert_false(is_reported_at(0));
}

TEST(blocks_freed_since_do_not_hide_a_new_one)
{
	allocated_and_told(0, 20 * MIB, 20 * MIB);
	tell(0, MIB, false, 20 * MIB);
	lifetimes_freed(lifetimes, BASE, 20 * MIB);
	allocated_and_told(32 * MIB, 30 * MIB, 30 * MIB);
	assert_false(is_reported_at(0));
	assert_true(is_reported_at(32 * MIB));
	/* And what was freed before it was reported is nobody's. */
	allocated(BASE + 64 * MIB, 4 * MIB, 0);
	lifetimes_freed(lifetimes, BASE + 64 * MIB, 4 * MIB);
	tell(33 * MIB, MIB, true, 34 * MIB);
	assert_false(is_reported_at(64 * MIB));
}

TEST(if_the_allocator_has_less_and_freed_nothing_it_is_not_trusted)
{
	allocated_and_told(0, 20 * MIB, 20 * MIB);
	allocated_and_told(20 * MIB, 6 * MIB, 26 * MIB);
	/* Freed by any thread. */
	lifetimes_freed(lifetimes, BASE + 20 * MIB, 6 * MIB);
	tell(2 * MIB, MIB, true, 20 * MIB);
	assert_true(is_reported_at(0));
	/* Memory that is not its own does not count. */
	lifetimes_freed(lifetimes, BASE + 40 * MIB, 4 * MIB);
	tell(3 * MIB, MIB, true, 16 * MIB);
	assert_false(is_reported_at(0));
}

TEST(what_is_placed_where_something_was_unmapped_is_not_new)
{
	allocated(BASE, 4 * MIB, BASE);
	tell(0, MIB, true, 4 * MIB);
	assert_true(is_reported_at(0));
	lifetimes_freed(lifetimes, BASE, 4 * MIB);
	allocated(BASE, 4 * MIB, BASE);
	tell(MIB, MIB, true, 4 * MIB);
	assert_false(is_reported_at(0));
}

TEST(what_is_placed_where_a_graph_may_use_everything_is_not_reported)
{
	allocated_and_told(100 * MIB, 20 * MIB, 20 * MIB);
	lifetimes_reserved(lifetimes, BASE);
	allocated(BASE, 8 * MIB, BASE);
	tell(0, MIB, true, 28 * MIB);
	assert_true(is_reported_at(0));
	lifetimes_distrust(lifetimes, BASE + 6 * MIB, BASE, 64 * MIB);
	assert_false(is_reported_at(0));
	/* Nor when it is unmapped and mapped again. */
	for (unsigned i = 0; i < 2; i++) {
		allocated(BASE + 8 * MIB, 8 * MIB, BASE);
		tell(8 * MIB, MIB, true, 36 * MIB);
		assert_false(is_reported_at(8 * MIB));
		assert_false(lifetimes_is_reported(lifetimes, BASE + 8 * MIB, 8 * MIB));
		lifetimes_freed(lifetimes, BASE + 8 * MIB, 8 * MIB);
		tell(2 * MIB, MIB, true, 28 * MIB);
	}
	/* The allocator has given back what was its own: the others are trusted. */
	assert_true(is_reported_at(100 * MIB));
	lifetimes_freed(lifetimes, BASE, 8 * MIB);
	tell(101 * MIB, MIB, true, 20 * MIB);
	lifetimes_reserved(lifetimes, BASE);
	allocated(BASE + 8 * MIB, 8 * MIB, BASE);
	tell(8 * MIB, MIB, true, 28 * MIB);
	assert_true(is_reported_at(8 * MIB) && is_reported_at(100 * MIB));
}

TEST(a_graph_finds_the_rest_of_a_space_by_what_is_not_reported_there)
{
	lifetimes_reserved(lifetimes, BASE);
	allocated(BASE, 4 * MIB, BASE);
	tell(0, MIB, true, 4 * MIB);
	allocated(BASE + 4 * MIB, 4 * MIB, BASE);
	tell(4 * MIB, MIB, true, 8 * MIB);
	lifetimes_freed(lifetimes, BASE, 4 * MIB);
	allocated(BASE, 4 * MIB, BASE);
	tell(MIB, MIB, true, 8 * MIB);
	assert_true(!is_reported_at(0) && is_reported_at(4 * MIB));
	lifetimes_distrust(lifetimes, BASE, BASE, 64 * MIB);
	assert_false(is_reported_at(4 * MIB));
}

TEST(parts_that_follow_each_other_count_together)
{
	for (uint64_t i = 0; i < 50; i++)
		allocated(BASE + 2 * MIB * i, 2 * MIB, BASE);
	tell(0, MIB, true, 100 * MIB);
	assert_true(is_reported_at(0));
	assert_true(is_reported_at(99 * MIB));
}

TEST(a_block_used_in_a_capture_is_distrusted)
{
	allocated_and_told(0, 20 * MIB, 20 * MIB);
	assert_true(is_reported_at(0));
	hide(MIB, false);
	lifetimes_tell(&(struct lifetimes_report){.address = BASE,
						  .bytes = MIB,
						  .reserved = 20 * MIB,
						  .reporter = &allocator,
						  .block = BASE,
						  .block_bytes = 20 * MIB});
	assert_false(is_reported_at(0));
	assert_false(live_map_is_dead(map, 2 * MIB, 4 * MIB, late));
	lifetimes_freed(lifetimes, BASE, 20 * MIB);
	allocated_and_told(0, 20 * MIB, 20 * MIB);
	assert_true(is_reported_at(0));
	lifetimes_distrust(lifetimes, BASE + MIB, BASE, 20 * MIB);
	assert_false(is_reported_at(0));
}

/* A thread that has marked a block, and is held up before it writes so into the ring. */
static _Atomic bool is_held;
static _Atomic unsigned n_held;

struct lifetimes_record *__real_lifetimes_begin_write(struct lifetimes *lifetimes, uint64_t *ret_at);
struct lifetimes_record *__wrap_lifetimes_begin_write(struct lifetimes *lifetimes, uint64_t *ret_at);

struct lifetimes_record *__wrap_lifetimes_begin_write(struct lifetimes *of, uint64_t *ret_at)
{
	bool first = atomic_load(&is_held) && atomic_fetch_add(&n_held, 1) == 0;

	while (first && atomic_load(&is_held))
		sched_yield();
	return __real_lifetimes_begin_write(of, ret_at);
}

/* Begins a thread that is held up. */
static pthread_t hold(void *(*routine)(void *))
{
	atomic_store(&n_held, 0);
	atomic_store(&is_held, true);
	pthread_t thread = test_thread(routine, NULL);
	UNTIL(atomic_load(&n_held));
	return thread;
}

static void release(pthread_t thread)
{
	atomic_store(&is_held, false);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void *distrust_slowly(void *unused)
{
	lifetimes_distrust(lifetimes, BASE, BASE, 20 * MIB);
	return NULL;
}

TEST(whoever_distrusts_a_block_while_another_thread_does_is_read_too)
{
	allocated_and_told(0, 20 * MIB, 20 * MIB);
	pthread_t thread = hold(distrust_slowly);
	lifetimes_distrust(lifetimes, BASE + 3 * MIB, BASE, 20 * MIB);
	assert_false(is_reported_at(0));
	release(thread);
	/* Afterwards nothing is written for it any more. */
	read_all();
	lifetimes_distrust(lifetimes, BASE + 3 * MIB, BASE, 20 * MIB);
	assert_true(lifetimes_is_read(lifetimes, 0));
}

static void *make_slowly(void *unused)
{
	allocated_and_told(0, 8 * MIB, 8 * MIB);
	return NULL;
}

/* It is read after all that is known to be lost has been accounted for. */
TEST(a_block_that_a_graph_named_unseen_before_its_first_report_is_alive)
{
	const struct lifetimes_report part = {.address = BASE + 64 * MIB, .bytes = MIB, .born = true};
	struct lifetimes_event event;

	lifetimes_own(lifetimes, BASE + 64 * MIB, 2 * MIB);
	lifetimes_take_over(lifetimes, &position);
	pthread_t thread = hold(make_slowly);
	while (!atomic_load(&lifetimes->lost))
		lifetimes_own_tell(lifetimes, &part);
	lifetimes_distrust(lifetimes, BASE + MIB, BASE, 8 * MIB);
	read_all();
	release(thread);
	while (lifetimes_read(lifetimes, 0, &event))
		assert_false(live_map_is_reported(map, 0));
	assert_false(is_reported_at(0));
}

/* ---- what the program itself says ---- */

static void declare(uint64_t at, uint64_t bytes, bool born, uint64_t block, uint64_t block_bytes)
{
	lifetimes_declare(&(struct lifetimes_report){.address = BASE + at, .bytes = bytes, .born = born, .number = 3},
			  BASE + block, block_bytes);
}

static void declare_both(uint64_t at, uint64_t bytes, uint64_t block, uint64_t block_bytes)
{
	declare(at, bytes, true, block, block_bytes);
	declare(at, bytes, false, block, block_bytes);
}

/* A pool of somebody else, in memory that the library divides, of which the allocator was given a part. */
TEST(what_the_allocator_does_in_blocks_of_the_librarys_own_does_not_count)
{
	const struct lifetimes_report part = {
	    .address = BASE + 4 * MIB, .bytes = 8 * MIB, .born = true, .number = 1, .own = 1};

	lifetimes_own(lifetimes, BASE, 20 * MIB);
	lifetimes_own_tell(lifetimes, &part);
	tell_both(6 * MIB, 2 * MIB, 2 * MIB);
	assert_true(is_reported_at(6 * MIB));
	assert_false(live_map_is_dead(map, 6 * MIB, 8 * MIB, late));
	assert_int_equal(live_map_sums(map).alive, 8 * MIB);
}

TEST(of_a_block_the_program_may_say_what_is_in_it)
{
	/* Not a death first. */
	declare(5 * MIB, MIB, false, 4 * MIB, 20 * MIB);
	assert_false(is_reported_at(4 * MIB));
	declare(5 * MIB, MIB, true, 4 * MIB, 20 * MIB);
	assert_true(is_reported_at(4 * MIB) && is_reported_at(23 * MIB));
	assert_int_equal(live_map_sums(map).alive, 20 * MIB);
	declare(5 * MIB, MIB, false, 4 * MIB, 20 * MIB);
	read_all();
	assert_int_equal(live_map_sums(map).dead, MIB);
	/* What it frees is not what the allocator has given back. */
	allocated_and_told(64 * MIB, 20 * MIB, 20 * MIB);
	lifetimes_freed(lifetimes, BASE + 4 * MIB, 20 * MIB);
	assert_true(!is_reported_at(4 * MIB) && is_reported_at(64 * MIB));
	tell(65 * MIB, MIB, true, MIB); /* the allocator has given something away */
	assert_false(is_reported_at(64 * MIB));
}

TEST(what_a_block_has_grown_by_takes_part)
{
	declare_both(4 * MIB, MIB, 4 * MIB, 20 * MIB);
	read_all();
	assert_int_equal(live_map_sums(map).dead, MIB);
	declare(4 * MIB, MIB, true, 4 * MIB, 40 * MIB);
	assert_true(is_reported_at(43 * MIB) && !is_reported_at(44 * MIB));
	assert_int_equal(live_map_sums(map).alive, 40 * MIB);
	/* A death may come first. What is behind stays alive. */
	declare(4 * MIB, MIB, false, 4 * MIB, 60 * MIB);
	assert_true(is_reported_at(63 * MIB));
	assert_int_equal(live_map_sums(map).alive, 59 * MIB);
	declare_both(50 * MIB, 2 * MIB, 4 * MIB, 60 * MIB);
	read_all();
	assert_true(live_map_is_dead(map, 50 * MIB, 52 * MIB, late));
}

TEST(a_block_of_which_the_program_speaks_for_a_part_is_distrusted)
{
	declare_both(4 * MIB, MIB, 4 * MIB, 20 * MIB);
	allocated_and_told(24 * MIB, 20 * MIB, 20 * MIB);
	assert_true(is_reported_at(4 * MIB) && is_reported_at(24 * MIB));
	declare(4 * MIB, MIB, true, 4 * MIB, 40 * MIB);
	assert_false(is_reported_at(4 * MIB) || is_reported_at(24 * MIB));
	assert_false(live_map_is_dead(map, 4 * MIB, 5 * MIB, late));
}

TEST(of_the_allocators_blocks_it_may_not)
{
	allocated_and_told(0, 20 * MIB, 20 * MIB);
	tell(4 * MIB, MIB, true, 20 * MIB);
	declare(0, MIB, false, 0, 20 * MIB);
	declare(4 * MIB, 2 * MIB, true, 0, 20 * MIB);
	read_all();
	assert_int_equal(live_map_sums(map).alive, 2 * MIB);
}

/* The graph's event is not written yet. */
TEST(what_is_born_while_a_graph_names_its_block_is_alive)
{
	declare_both(4 * MIB, MIB, 0, 20 * MIB);
	read_all();
	pthread_t thread = hold(distrust_slowly);
	declare(4 * MIB, MIB, true, 0, 20 * MIB);
	assert_true(is_reported_at(4 * MIB));
	assert_false(live_map_is_dead(map, 4 * MIB, 5 * MIB, late));
	release(thread);
	assert_false(is_reported_at(4 * MIB));
}

TEST(nor_of_those_that_a_graph_has_named)
{
	lifetimes_distrust(lifetimes, BASE + 3 * MIB, BASE + 2 * MIB, 20 * MIB);
	declare(2 * MIB, MIB, true, 2 * MIB, 20 * MIB);
	assert_false(is_reported_at(2 * MIB));
	/* Until it is freed. */
	lifetimes_freed(lifetimes, BASE + 2 * MIB, 20 * MIB);
	declare(2 * MIB, MIB, true, 2 * MIB, 20 * MIB);
	assert_true(is_reported_at(2 * MIB));
	lifetimes_distrust(lifetimes, BASE + 9 * MIB, BASE + 2 * MIB, 20 * MIB);
	assert_false(is_reported_at(2 * MIB));
	declare(2 * MIB, MIB, true, 2 * MIB, 20 * MIB);
	assert_false(is_reported_at(2 * MIB));
	/* One that cannot be read may name any. */
	lifetimes_distrust_all();
	declare(100 * MIB, MIB, true, 100 * MIB, 20 * MIB);
	assert_false(is_reported_at(100 * MIB));
}

EACH_TEST(begin, lifetimes_end)
