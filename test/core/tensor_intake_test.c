// SPDX-License-Identifier: Apache-2.0
/*
 * tensor_intake_test.c: what the mover tells the plan of the program's allocator: its blocks, the tensors in them, and
 * which of them submissions name. There is no mover's thread: the test reads the log itself.
 */
#include "shim/lifetimes/lifetimes.h"
#include "shim/mover/mover.h"
#include "shim/plan/types.h"
#include "shim/submit/submission.h"
#include "test/core/core.h"

static struct core_heap own;
static struct device device;
static struct engine *engine;
static struct heap_grant first, second, declared;
static uint64_t reserved;

static const struct tensor_future *future(void)
{
	return &engine->plan->tensors.future;
}

static uint64_t offset_of(CUdeviceptr address)
{
	return address - heap_arena(own.heap)->base;
}

static struct heap_grant block_new(void)
{
	struct heap_grant grant;

	assert_ok(heap_alloc(own.heap, 40 * MIB, CHUNK_MOVABLE, HEAP_DEVICE, &grant));
	lifetimes_allocated(heap_arena(own.heap)->lifetimes, grant.address, 40 * MIB, 0, &own);
	reserved += 40 * MIB;
	return grant;
}

static void report(CUdeviceptr address, size_t mib, bool born)
{
	static uint64_t in_use;

	in_use += born ? mib * MIB : -mib * MIB;
	lifetimes_tell(&(struct lifetimes_report){.address = address,
						  .bytes = mib * MIB,
						  .born = born,
						  .reserved = reserved,
						  .allocated = in_use,
						  .reporter = &own});
}

static void declare(CUdeviceptr address, size_t mib, bool born)
{
	lifetimes_declare(&(struct lifetimes_report){.address = address, .bytes = mib * MIB, .born = born},
			  declared.address, 40 * MIB);
}

static void submit(CUdeviceptr a, CUdeviceptr b)
{
	struct submission *use = submission_open(HOOK_cuLaunchKernel);

	assert_non_null(use);
	submission_name(use, a, 0);
	submission_name(use, b, 0);
	submission_close(use, admit(use));
}

static bool is_alive(CUdeviceptr address, size_t mib)
{
	const struct tensor *tensor = tensor_log_at(&future()->log, offset_of(address));

	return tensor && tensor->begin == offset_of(address) && tensor->bytes == mib * MIB;
}

BEFORE_ALL
{
	core_driver();
	core_heap_open(&own, 256 * MIB, 256 * MIB, 0);
	/* The first block, and what is in it, is there before the mover. */
	first = block_new();
	report(first.address, 8, true);
	report(first.address + 8 * MIB, 4, true);
	report(first.address, 8, false);
	report(first.address + 16 * MIB, 16, true);
	/* This one is the program's: it says itself what is alive in it. */
	declared = block_new();
	reserved -= 40 * MIB;
	declare(declared.address + 4 * MIB, 4, true);
	engine = mover_new(&device, own.heap, false);
	assert_non_null(engine);
	mover_keep(engine, POLICY_CONTENTS_ALIVE, true);
	assert_true(submission_add_arena(heap_arena(own.heap), &engine->channel));
	submission_set_tracking(true, true);
}

TEST(what_was_there_before_is_known)
{
	assert_int_equal(future()->n_blocks, 1);
	assert_int_equal(future()->blocks[0].begin, offset_of(first.address));
	assert_int_equal(future()->blocks[0].end, offset_of(first.address) + 40 * MIB);
	assert_int_equal(future()->log.n_alive, 2);
	assert_true(is_alive(first.address + 8 * MIB, 4) && is_alive(first.address + 16 * MIB, 16));
}

TEST(what_the_program_says_itself_follows_no_rule)
{
	declare(declared.address + 4 * MIB, 4, false);
	declare(declared.address + 8 * MIB, 4, true);
	submit(first.address + 9 * MIB, first.address + 10 * MIB);
	assert_true(intake_read(engine));
	assert_int_equal(future()->n_blocks, 1);
	assert_int_equal(future()->log.n_alive, 2);
}

TEST(names_births_and_deaths_are_told_in_their_order)
{
	uint64_t from, to;

	second = block_new();
	report(second.address, 12, true);
	submit(first.address + 17 * MIB, second.address + 11 * MIB);
	report(second.address, 12, false);
	submit(first.address + 9 * MIB, first.address + 10 * MIB);
	report(second.address + 12 * MIB, 2, true);
	assert_true(intake_read(engine));
	assert_int_equal(plan_now(engine->plan), 3);
	assert_int_equal(future()->n_blocks, 2);
	assert_false(is_alive(second.address, 12));
	assert_true(is_alive(second.address + 12 * MIB, 2));
	assert_true(tensor_log_names(&future()->log, 2, &from, &to));
	assert_int_equal(to - from, 2);
	assert_int_equal(tensor_log_named(&future()->log, from), offset_of(first.address) + 16 * MIB);
	assert_int_equal(tensor_log_named(&future()->log, from + 1), offset_of(second.address));
	/* Two names of one tensor are one. */
	assert_true(tensor_log_names(&future()->log, 3, &from, &to));
	assert_int_equal(to - from, 1);
	const struct tensor_event *death = tensor_log_event(&future()->log, future()->log.n_events - 2);
	assert_true(!death->born && death->position == 2);
	assert_int_equal(death[1].position, 3);
}

TEST(pieces_are_found_by_their_units)
{
	uint32_t unit = (uint32_t)(offset_of(first.address) / HEAP_UNIT), piece, past, other, other_past;

	assert_true(future()->piece_at(future()->argument, unit, &piece, &past));
	assert_true(piece == unit && past > unit && past <= unit + 20);
	assert_true(future()->piece_at(future()->argument, past - 1, &other, &other_past));
	assert_true(other == piece && other_past == past);
	assert_false(future()->piece_at(future()->argument, engine->arena->n_units, &piece, &past));
	assert_false(future()->piece_at(future()->argument, engine->arena->n_units_seen + 50, &piece, &past));
}

TEST(in_fast_small_blocks_are_named_as_a_whole)
{
	submit(first.address + 8 * MIB, first.address + 16 * MIB);
	assert_true(intake_read(engine));
	assert_int_equal(future()->whole_units, tensor_extents_whole(0) / HEAP_UNIT);
	engine->exact = true;
	submit(first.address + 8 * MIB, first.address + 16 * MIB);
	assert_true(intake_read(engine));
	assert_int_equal(future()->whole_units, 0);
	engine->exact = false;
}

TEST(after_lost_births_blocks_are_known_and_tensors_are_not)
{
	bool born = true;

	for (; lifetimes_is_known(engine->lifetimes); born = !born)
		report(first.address + 36 * MIB, 2, born);
	submit(first.address + 8 * MIB, first.address + 16 * MIB);
	while (intake_read(engine))
		;
	assert_int_equal(future()->n_blocks, 2);
	assert_int_equal(future()->log.n_alive, 0);
	report(first.address + 4 * MIB, 2, true);
	report(second.address + 12 * MIB, 2, true);
	submit(first.address + 8 * MIB, first.address + 16 * MIB);
	assert_true(intake_read(engine));
	assert_int_equal(future()->log.n_alive, 2);
}

TEST(a_freed_block_is_the_allocators_no_more)
{
	heap_free(own.heap, second.block, second.address);
	submit(first.address + 8 * MIB, first.address + 16 * MIB);
	assert_true(intake_read(engine));
	assert_int_equal(future()->n_blocks, 1);
	assert_false(is_alive(second.address + 12 * MIB, 2));
	/* A graph has named the other one. */
	lifetimes_distrust(heap_arena(own.heap)->lifetimes, first.address, first.address, 40 * MIB);
	submit(first.address + 8 * MIB, first.address + 16 * MIB);
	assert_true(intake_read(engine));
	assert_int_equal(future()->n_blocks, 0);
	assert_int_equal(future()->log.n_alive, 0);
}
