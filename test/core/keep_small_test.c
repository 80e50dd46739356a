// SPDX-License-Identifier: Apache-2.0
/*
 * keep_small_test.c: which small blocks stay on the device in `fast` (piece.c), as the plan hears of them: a 16th of
 * the budget of them, also when the budget shrinks later; and which others do, by a rule.
 */
#include "test/core/core.h"

#include "shim/mover/mover.h"
#include "test/unit/plan_check.h"

#define BUDGET  (256 * MIB)
#define N_SMALL 8 /* of one unit each: half of what may stay */
#define KEPT    (BUDGET / 16 / HEAP_UNIT)

static struct core_heap own_heap;
static struct device device;
static struct engine *engine;
static struct heap_grant small[N_SMALL];

static void set_budget(uint64_t bytes)
{
	atomic_store(&device.budget.limit, bytes);
}

static uint32_t piece_of(const struct heap_grant *grant)
{
	return arena_unit(engine->arena, grant->address);
}

FIXTURE(set_up)
{
	core_heap_open(&own_heap, BUDGET, 64 * MIB, 0);
	set_budget(BUDGET);
	engine = core_engine(&own_heap, &device, false);
	for (int i = 0; i < N_SMALL; i++) {
		small[i] = core_take(&own_heap, HEAP_UNIT, CHUNK_MOVABLE, HEAP_DEVICE);
		piece_tell_plan(engine, piece_of(&small[i]));
	}
}

EACH_TEST(set_up, core_heap_end)

static void expect_kept(unsigned n)
{
	assert_int_equal(engine->by_piece.kept_units[KEEP_SMALL], n);
	assert_int_equal(plan_units(engine->plan, PLAN_PINNED), n);
	assert_int_equal(plan_units(engine->plan, PLAN_DEVICE), N_SMALL - n);
	assert_true(plan_is_valid(engine->plan));
}

TEST(small_blocks_stay_as_far_as_their_share_goes)
{
	assert_true(N_SMALL <= KEPT);
	expect_kept(N_SMALL);
	piece_keep_follow(engine);
	expect_kept(N_SMALL);
}

TEST(when_the_budget_shrinks_fewer_stay)
{
	set_budget(3 * 16 * HEAP_UNIT);
	piece_keep_follow(engine);
	expect_kept(3);
	/* Who was there first has it. */
	for (int i = 0; i < N_SMALL; i++)
		assert_int_equal(engine->by_piece.at[piece_of(&small[i])].kept, i < 3);
	set_budget(16 * HEAP_UNIT - 1);
	piece_keep_follow(engine);
	expect_kept(0);
	/* With room again they stay from when the plan hears of them. */
	set_budget(BUDGET);
	piece_keep_follow(engine);
	expect_kept(0);
	piece_tell_plan(engine, piece_of(&small[5]));
	expect_kept(1);
}

/* Of a block of 12 units. */
static void tell_plan(const struct heap_grant *grant)
{
	for (uint32_t unit = piece_of(grant); unit < piece_of(grant) + 12; unit++)
		piece_tell_plan(engine, unit);
}

TEST(what_a_rule_keeps_has_a_share_of_its_own)
{
	/* 24 MiB: too large to be kept as a small block. */
	struct heap_grant table = core_take(&own_heap, 12 * HEAP_UNIT, CHUNK_MOVABLE, HEAP_DEVICE);
	struct heap_grant other = core_take(&own_heap, 12 * HEAP_UNIT, CHUNK_MOVABLE, HEAP_DEVICE);

	heap_keep(own_heap.heap, table.block);
	heap_keep(own_heap.heap, small[2].block);
	tell_plan(&table);
	tell_plan(&other);
	piece_tell_plan(engine, piece_of(&small[2]));
	assert_int_equal(engine->by_piece.kept_units[KEEP_SMALL], N_SMALL - 1);
	assert_int_equal(engine->by_piece.kept_units[KEEP_RULED], 13);
	assert_int_equal(plan_units(engine->plan, PLAN_PINNED), N_SMALL + 12);
	assert_int_equal(plan_units(engine->plan, PLAN_DEVICE), 12);
	/* A quarter of this budget is 12 units, a 16th of it 3. A piece of the table goes as a whole, 4 units. */
	set_budget(48 * HEAP_UNIT);
	piece_keep_follow(engine);
	assert_true(engine->by_piece.kept_units[KEEP_SMALL] <= 3);
	assert_int_equal(engine->by_piece.kept_units[KEEP_RULED], 13 - 4);
	/* Of a small budget, rules have 16 MiB, but no more than a half. */
	set_budget(16 * HEAP_UNIT);
	piece_keep_follow(engine);
	assert_true(engine->by_piece.kept_units[KEEP_SMALL] <= 1);
	assert_int_equal(engine->by_piece.kept_units[KEEP_RULED], 13 - 8);
	set_budget(8 * HEAP_UNIT);
	piece_keep_follow(engine);
	assert_int_equal(engine->by_piece.kept_units[KEEP_RULED], 13 - 12);
	assert_true(plan_is_valid(engine->plan));
	core_give(&own_heap, &other);
	core_give(&own_heap, &table);
	/* What comes to its place next is not kept by that rule. */
	set_budget(BUDGET);
	other = core_take(&own_heap, 12 * HEAP_UNIT, CHUNK_MOVABLE, HEAP_DEVICE);
	tell_plan(&other);
	assert_true(engine->by_piece.kept_units[KEEP_RULED] <= 1);
}

START(core_driver())
