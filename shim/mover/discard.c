/*
 * Discards: contents that the program no longer needs (spillway_discard). A piece that is wholly discarded migrates
 * without being copied, until a submission names its block again.
 *
 * Each discard has a number. A piece is discarded if it carries the number that its block shows, and the block's number
 * is not below the one in the engine's state for everything. Storing 0 into the block's state thus ends the discard for
 * all pieces of the block, and storing 0 into the state for everything ends it for all blocks. Submissions do so when
 * they pin their blocks (admit):
 *
 *   fast        The mover raises `unmapped` first, then sees that no submission uses the block, and only then asks. A
 *               submission that comes later waits, and clears the number when the piece has arrived.
 *   in a gap    Submissions clear it before they pass the gate. One that has not done so is not inside the driver, and
 *               what it will write is written after the gap.
 *
 * Submissions are examined only while they are tracked. Before that no copy need be avoided, because nothing moves. A
 * kernel that finds the address in memory names nothing; spillway.h says so.
 *
 * A discard in the order of a stream is made by a submission to that stream that names the block and pins it, so
 * nothing of the block moves before the stream has got there. Work that was submitted to another stream before and has
 * not completed may be held back until after the discard (by a value in memory that this stream writes), and then write
 * what must be kept. That cannot be detected, so nothing is discarded while such work may use the block. A submission
 * that names the block during this check is either seen by it, or comes after the number was stored and clears it. For
 * that, submissions must pin what they name, which they do only on request (submission_ask_to_pin); everything
 * submitted before the request must have completed, too.
 */
#include "shim/submit/completion.h"
#include "shim/base/lock.h"
#include "shim/mover/mover_internal.h"
#include "shim/mover/mover_state.h"
#include "shim/submit/submission.h"

/* Returns the number for discards of this block: a new one, unless the last one is still valid. */
static uint64_t number_of(struct engine *engine, struct block_state *block)
{
	struct discard_state *const state = &mover_state.discard;
	uint64_t of_all = atomic_load(&engine->channel.everything.discarded), of_block = atomic_load(&block->discarded);

	if (of_block && of_all && of_block >= of_all)
		return of_block;
	atomic_store_explicit(&state->any, true, memory_order_relaxed);
	state->last++;
	if (!of_all)
		atomic_store(&engine->channel.everything.discarded, state->last);
	atomic_store(&block->discarded, state->last);
	return state->last;
}

/*
 * Returns the unit behind the block, or, in a divided block, behind the part that has the address: what follows belongs
 * to others. The part stays where it is as long as the program may discard it.
 */
static uint32_t end_of(const struct arena *arena, uint32_t block, CUdeviceptr address)
{
	const struct unit_state *state = &arena->states[block];

	if (!atomic_load_explicit(&state->divided, memory_order_acquire))
		return block + atomic_load_explicit(&state->units, memory_order_relaxed);
	uint32_t end = arena_unit(arena, address), part = atomic_load_explicit(&arena->part[end], memory_order_acquire);
	while (part && end < arena->n_units && atomic_load_explicit(&arena->part[end], memory_order_acquire) == part)
		end++;
	return end;
}

void discard_bytes(struct engine *engine, CUdeviceptr address, uint64_t bytes)
{
	struct arena *arena = engine->arena;
	uint32_t word = arena_look(arena, address);

	/* Before tracking begins, no submission would clear the discard when it uses the block again. */
	if (!word || word & ARENA_SLAB || !submission_is_tracking())
		return;
	struct block_state *block = &arena->marks[word - 1];
	uint64_t begin = address - arena->base, room = arena->bytes - begin;
	uint64_t end = begin + (bytes < room ? bytes : room);
	uint32_t unit = (uint32_t)((begin + HEAP_UNIT - 1) / HEAP_UNIT), last = (uint32_t)(end / HEAP_UNIT);
	uint32_t most = end_of(arena, word - 1, address);
	if (last > most)
		last = most;

	lock_take(&mover_state.discard.lock);
	uint64_t number = number_of(engine, block);
	while (unit < last) {
		uint32_t piece = atomic_load_explicit(&arena->piece[unit], memory_order_acquire);

		if (!piece--)
			break;
		uint32_t next = piece + arena->states[piece].units_of_piece;
		if (next <= unit)
			break;
		if (piece >= unit && next <= last)
			atomic_store(&arena->states[piece].discard, number);
		unit = next;
	}
	lock_drop(&mover_state.discard.lock);
}

/*
 * Returns whether every submission that has not completed, except in the stream of this one, has pinned its blocks. The
 * first calls return false, because a submission inside the driver at that time may have no number yet. A submission
 * that entered without pinning keeps its stripe nonempty until it has its number.
 */
static bool are_all_pinned(uint64_t oldest)
{
	struct discard_state *const state = &mover_state.discard;
	bool held = false;

	lock_take(&state->lock);
	if (submission_ask_to_pin())
		state->since = state->empty = 0;
	else if (state->since)
		held = oldest >= state->since;
	else if ((state->empty |= submission_empty_stripes()) == UINT64_MAX)
		state->since = completion_newest() + 1;
	lock_drop(&state->lock);
	return held;
}

/*
 * Returns whether a submission that may not have completed may use the block, except the one that pins it now
 * (own_holds: number of its pins).
 */
static bool is_named_elsewhere(const struct block_state *mark, unsigned own_holds, uint64_t oldest)
{
	return block_state_pins(mark) != own_holds || block_state_last(mark) >= oldest;
}

void discard_behind(struct engine *engine, CUdeviceptr address, uint64_t bytes, CUstream stream, bool per_thread,
		    bool held)
{
	uint32_t word = arena_look(engine->arena, address);
	/* In this order: a submission that gets its number in between is not below the limit. */
	uint64_t limit = completion_newest() + 1, oldest = completion_oldest_elsewhere(stream, per_thread);

	if (!word || word & ARENA_SLAB || !are_all_pinned(oldest) || !held)
		return;
	struct block_state *block = &engine->arena->marks[word - 1];
	if (oldest > limit)
		oldest = limit;
	discard_bytes(engine, address, bytes);
	if (is_named_elsewhere(block, 1, oldest) || is_named_elsewhere(&engine->channel.everything, 0, oldest))
		atomic_store(&block->discarded, 0);
}
