/*
 * Contents that the program no longer needs (spillway_discard). A piece of which all is discarded changes places without
 * being copied, until a submission names its block again.
 *
 * A discard has a number. A piece is discarded when it has the number that its block shows, and the block's is not below
 * the one that the engine's mark for everything shows; so one store, of 0 into the block's mark, ends it for all pieces
 * of the block, and one into the mark for everything ends it for all blocks. Submissions do that when they hold their
 * blocks (admit), that is
 *
 *   fast    before the mover, which raises `unmapped` first and then sees that nobody uses the block, may ask: what a
 *           submission that comes later has to say, it says when the piece has arrived
 *   a gap   before they pass the gate: whoever has not, is not inside the driver, and what it will write is written after
 *           the gap
 *
 * Submissions are only looked at while they are tracked; before that there is nothing to be spared either, since nothing
 * moves. A kernel that finds the address in memory names nothing: spillway.h says so.
 *
 * A discard in a stream's order is made by a submission to that stream that names the block and holds it, so nothing of
 * the block moves before the stream has got there. What was submitted to another stream before, and is not done, may
 * still be held back until after that (by a value in memory that this stream writes), and then writes what must be kept;
 * nobody can tell, so with such work about the block nothing is discarded. Whoever names the block while we look has
 * either been seen by the look, or comes after the mark and takes it away. For that submissions must hold what they name,
 * which they do only when asked to (submission_ask_to_pin): what was submitted before that must be done, too.
 */
#include "shim/submit/completion.h"
#include "shim/base/lock.h"
#include "shim/mover/mover_internal.h"
#include "shim/submit/submission.h"

static struct lock one = LOCK_INIT(LOCK_DISCARD); /* the numbers */

/* The number for discards of this block: a new one, unless the last one still stands. */
static uint64_t number_of(struct engine *engine, struct block_state *block)
{
	static uint64_t last;
	uint64_t of_all = atomic_load(&engine->channel.everything.discarded), of_block = atomic_load(&block->discarded);

	if (of_block && of_all && of_block >= of_all)
		return of_block;
	last++;
	if (!of_all)
		atomic_store(&engine->channel.everything.discarded, last);
	atomic_store(&block->discarded, last);
	return last;
}

void discard_bytes(struct engine *engine, CUdeviceptr address, uint64_t bytes)
{
	struct arena *arena = engine->arena;
	uint32_t word = arena_look(arena, address);

	/* Before tracking begins nobody would say that it is used again. */
	if (!word || word & ARENA_SLAB || !submission_is_tracking())
		return;
	struct block_state *block = &arena->marks[word - 1];
	uint64_t begin = address - arena->base, room = arena->bytes - begin;
	uint64_t end = begin + (bytes < room ? bytes : room);
	uint32_t unit = (uint32_t)((begin + HEAP_UNIT - 1) / HEAP_UNIT), last = (uint32_t)(end / HEAP_UNIT);
	uint32_t of_block = word - 1 + atomic_load_explicit(&arena->states[word - 1].units, memory_order_relaxed);
	if (last > of_block)
		last = of_block;

	lock_take(&one);
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
	lock_drop(&one);
}

/*
 * Has everything that is not done, but in the stream of this submission, held its blocks? The first ones to ask are told
 * no: what is inside the driver then may have no number yet. Who entered without holding stays in its stripe until it has.
 */
static bool are_all_pinned(uint64_t oldest)
{
	static uint64_t empty; /* stripes that were, once all were asked to hold */
	static uint64_t since; /* the first number that was given to none but who held; 0: not known */
	bool held = false;

	lock_take(&one);
	if (submission_ask_to_pin())
		since = empty = 0;
	else if (since)
		held = oldest >= since;
	else if ((empty |= submission_empty_stripes()) == UINT64_MAX)
		since = completion_newest() + 1;
	lock_drop(&one);
	return held;
}

/* Does any submission but the one that holds the block now, of which it could not be told, have to do with it? */
static bool is_named_elsewhere(const struct block_state *mark, unsigned own_holds, uint64_t oldest)
{
	return block_state_pins(mark) != own_holds || block_state_last(mark) >= oldest;
}

void discard_behind(struct engine *engine, CUdeviceptr address, uint64_t bytes, CUstream stream, bool per_thread,
		    bool held)
{
	uint32_t word = arena_look(engine->arena, address);
	/* In this order: what gets its number meanwhile is not below the limit. */
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
