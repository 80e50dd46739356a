// SPDX-License-Identifier: Apache-2.0
/*
 * What blocks are made of: few large pieces, since a change of a mapping costs the same whatever its size; and what is
 * given up to make a piece of another size.
 */
#include "shim/heap/block.h"
#include "test/core/core.h"

static struct core_heap own;

EACH_TEST(NULL, core_heap_end)

static void allocate(size_t bytes, struct heap_grant *grant)
{
	*grant = core_take(&own, bytes, CHUNK_MOVABLE, true);
}

/* The sizes of a block's pieces in MiB, with their places, as text: "96D 4H". */
static const char *pieces(const struct heap_grant *grant)
{
	const struct arena *arena = heap_arena(own.heap);
	uint32_t unit = arena_unit(arena, grant->address), end = unit + arena->states[unit].units;
	static char text[256];
	int n = 0;

	for (; unit < end; unit += arena->states[unit].units_of_piece)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%u%c", n ? " " : "",
			      arena->states[unit].units_of_piece * 2,
			      arena->states[unit].chunk->place == CHUNK_HOST ? 'H' : 'D');
	return text;
}

TEST(a_block_is_one_piece_unless_it_is_large_for_the_budget)
{
	struct heap_grant grants[3];

	core_heap_open(&own, 512 * MIB, 0, 0);
	allocate(28 * MIB, &grants[0]);
	assert_string_equal(pieces(&grants[0]), "16D 12D");
	allocate(100 * MIB, &grants[1]);
	assert_string_equal(pieces(&grants[1]), "16D 16D 16D 16D 16D 16D 4D"); /* a 32nd of the budget */
	core_heap_close(&own);

	core_heap_open(&own, 6 * GIB, 0, 0);
	allocate(96 * MIB, &grants[0]);
	assert_string_equal(pieces(&grants[0]), "96D");
	allocate(300 * MIB, &grants[1]);
	assert_string_equal(pieces(&grants[1]), "128D 128D 44D"); /* and 128 MiB at most */
	allocate(6 * MIB, &grants[2]);
	core_heap_close(&own);

	core_heap_open(&own, 32 * MIB, 0, 0);
	allocate(10 * MIB, &grants[0]);
	assert_string_equal(pieces(&grants[0]), "4D 4D 2D"); /* and 4 at least */
}

TEST(what_will_move_goes_to_the_host_undivided)
{
	struct heap_grant grants[2];

	core_heap_open(&own, 512 * MIB, GIB, 0);
	allocate(492 * MIB, &grants[0]);
	allocate(28 * MIB, &grants[1]);
	assert_string_equal(pieces(&grants[1]), "16D 2D 2D 8H");
	core_heap_close(&own);

	core_heap_open(&own, 512 * MIB, GIB, 0);
	own.heap->store.moves = true;
	allocate(492 * MIB, &grants[0]);
	allocate(28 * MIB, &grants[1]);
	assert_string_equal(pieces(&grants[1]), "16D 12H");
	core_heap_close(&own);

	/* But what is left of the device is used before anybody is told that there is no memory. */
	core_heap_open(&own, 512 * MIB, 8 * MIB, 0);
	own.heap->store.moves = true;
	allocate(492 * MIB, &grants[0]);
	allocate(28 * MIB, &grants[1]);
	assert_int_equal(grants[1].bytes_away, 8 * MIB);
}

TEST(memory_of_other_sizes_is_given_up_for_a_piece_that_can_be_made_of_it_and_for_no_other)
{
	struct heap_grant grants[2];

	core_heap_open(&own, 64 * MIB, 0, 64 * MIB);
	struct block_store *store = &own.heap->store;
	allocate(48 * MIB, &grants[0]);
	assert_ok(heap_make_spare(own.heap, CHUNK_DEVICE, 4, true));
	assert_int_equal(store->chunks.warm_bytes[CHUNK_DEVICE], 8 * MIB);
	assert_int_equal(heap_make_spare(own.heap, CHUNK_DEVICE, 9, true), SW_NO_MEMORY);
	assert_int_equal(store->chunks.warm_bytes[CHUNK_DEVICE], 8 * MIB);
	assert_ok(heap_make_spare(own.heap, CHUNK_DEVICE, 8, true));
	assert_non_null(store->chunks.warm[CHUNK_MOVABLE][CHUNK_DEVICE][8]);
	assert_int_equal(store->chunks.warm_bytes[CHUNK_DEVICE], 16 * MIB);
	assert_true(heap_is_valid(own.heap));
}

/* ---- growing where it is (block_query.c) ---- */

static enum sw_status grow(const struct heap_grant *grant, size_t bytes)
{
	uint64_t on_host = 0;

	return heap_grow(own.heap, grant->address, bytes, true, &on_host);
}

TEST(a_block_grows_into_free_and_warm_address_space_and_into_no_other)
{
	struct heap_grant grants[3];

	core_heap_open(&own, 64 * MIB, 64 * MIB, 64 * MIB);
	allocate(6 * MIB, &grants[0]);
	allocate(6 * MIB, &grants[1]);
	allocate(6 * MIB, &grants[2]);
	assert_int_equal(grow(&grants[0], 7 * MIB), SW_NO_MEMORY);
	core_give(&own, &grants[1]);
	assert_ok(grow(&grants[0], 10 * MIB));
	assert_true(heap_is_valid(own.heap));
	assert_int_equal(grow(&grants[0], 15 * MIB), SW_NO_MEMORY);
	assert_ok(grow(&grants[0], 12 * MIB));
	assert_int_equal(grants[0].block->units, 6);
	core_fill(grants[0].address, 12 * MIB, 1);
	assert_true(core_is_filled(grants[0].address, 12 * MIB, 1));
	/* Freed as one, and there for the next one of that length. */
	core_give(&own, &grants[0]);
	core_give(&own, &grants[2]);
	assert_true(heap_is_valid(own.heap));
	allocate(12 * MIB, &grants[1]);
	assert_true(grants[1].reused && grants[1].address == grants[0].address);
}

/* The budget ends in the middle, and so do the driver's calls, each once. */
TEST(a_block_that_cannot_grow_is_as_it_was)
{
	struct heap_grant grant;
	enum sw_status status;
	unsigned n = 0;

	core_heap_open(&own, 16 * MIB, 16 * MIB, 0);
	allocate(6 * MIB, &grant);
	core_fill(grant.address, 6 * MIB, 2);
	assert_int_equal(grow(&grant, 40 * MIB), SW_NO_MEMORY);
	assert_true(heap_is_valid(own.heap) && own.device.used == 6 * MIB && own.host.used == 0);
	do {
		sim_fail_any(++n, CUDA_ERROR_UNKNOWN);
		status = grow(&grant, 24 * MIB);
		assert_true(heap_is_valid(own.heap));
		if (status != SW_OK) {
			assert_int_equal(grant.block->units, 3);
			heap_trim(own.heap, 0, 0);
		}
	} while (!sim_fail_pending());
	sim_fail_any(0, CUDA_SUCCESS);
	assert_ok(status);
	assert_true(n > 4);
	assert_int_equal(core_pages_at(grant.address, 24 * MIB, 'D'), 8);
	assert_int_equal(core_pages_at(grant.address, 24 * MIB, 'H'), 4);
	assert_true(core_is_filled(grant.address, 6 * MIB, 2));
	core_fill(grant.address, 24 * MIB, 3);
	assert_true(core_is_filled(grant.address, 24 * MIB, 3));
	uint32_t away = 0;
	for (const char *at = pieces(&grant); *at; at++)
		away += *at == 'H';
	assert_int_equal(heap_arena(own.heap)->block_states[grant.block->unit].away, away);
}

static void must_divide(uint64_t limit, struct heap_config config, const char *expected)
{
	struct heap_grant grant;

	own = (struct core_heap){.device = {.limit = limit}, .before = sim_live()};
	config.device_budget = &own.device;
	config.host_budget = &own.host;
	config.arena_bytes = GIB;
	assert_int_equal(heap_create(&config, &own.heap), SW_OK);
	allocate(18 * MIB, &grant);
	assert_string_equal(pieces(&grant), expected);
	core_heap_close(&own);
}

TEST(pieces_are_at_most_what_the_user_wants)
{
	static const struct {
		uint64_t piece, most;
		const char *pieces;
	} rows[] = {
	    {2 * MIB, 0, "2D 2D 2D 2D 2D 2D 2D 2D 2D"},
	    {6 * MIB, 4 * MIB, "6D 6D 6D"},
	    {128 * MIB, 8 * MIB, "18D"},
	    {1024 * MIB, 0, "18D"},
	    {0, 0, "16D 2D"},
	    {0, 8 * MIB, "8D 8D 2D"},
	    {0, 128 * MIB, "16D 2D"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		must_divide(512 * MIB, (struct heap_config){.piece_bytes = rows[i].piece, .piece_most = rows[i].most},
			    rows[i].pieces);
}

/* A process that waits for its turn has a budget of nearly nothing, and blocks for the time when it has all. */
TEST(pieces_may_be_for_another_budget_than_that_of_now)
{
	const _Atomic uint64_t none = 0, little = 32 * MIB, much = 512 * MIB;

	must_divide(32 * MIB, (struct heap_config){.piece_budget = &none}, "4D 4D 4D 4D 2D");
	must_divide(32 * MIB, (struct heap_config){.piece_budget = &much}, "16D 2D");
	must_divide(512 * MIB, (struct heap_config){.piece_budget = &little}, "16D 2D");
}

int main(void)
{
	setenv("SIM_MEMORY", "1GiB", 1);
	core_driver();
	return test_run();
}
