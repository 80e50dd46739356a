/*
 * One piece: the block state that submissions and the mover share about it (which submissions use its block, that none
 * may, where the piece is), what the plan knows of it, and the end of its moves, when it is mapped and may move again.
 * Nothing here decides or begins a move.
 */
#include "shim/heap/chunk.h"
#include "shim/base/array.h"
#include "shim/mover/mover_internal.h"
#include "shim/mover/spill.h"

#include <stdlib.h>

/* ---- lists ---- */

bool piece_list_add(struct piece_list *list, uint32_t piece)
{
	if (!ARRAY_ROOM(list->at, list->n, list->room, ARRAY_MOST))
		return false;
	list->at[list->n++] = piece;
	return true;
}

struct collection {
	const struct engine *engine;
	bool but_moving;
	struct piece_list list;
};

static void piece_collect(void *argument, uint32_t piece)
{
	struct collection *all = argument;

	if (all->but_moving && atomic_load(&all->engine->arena->states[piece].where) == BLOCK_STATE_MOVING)
		return;
	if (all->list.n < all->list.room)
		all->list.at[all->list.n++] = piece;
}

struct piece_list piece_list_all(const struct engine *engine, bool but_moving)
{
	struct collection all = {.engine = engine, .but_moving = but_moving};

	all.list.room = engine->arena->n_units_seen;
	all.list.at = malloc((size_t)all.list.room * sizeof(uint32_t) + 1);
	if (all.list.at)
		heap_pieces(engine->heap, piece_collect, &all);
	return all.list;
}

/* ---- block state ---- */

bool piece_at_unit(void *argument, uint32_t unit, uint32_t *ret_piece, uint32_t *ret_past)
{
	const struct engine *engine = argument;
	const struct arena *arena = engine->arena;
	uint32_t word = unit < arena->n_units ? atomic_load_explicit(&arena->piece[unit], memory_order_acquire) : 0;

	if (!word)
		return false;
	*ret_piece = word - 1;
	*ret_past = word - 1 + arena->states[word - 1].units_of_piece;
	return *ret_past > unit; /* otherwise the block is being made or freed at this moment */
}

struct block_state *piece_block_state(struct engine *engine, uint32_t piece)
{
	struct arena *arena = engine->arena;
	uint32_t word = atomic_load_explicit(&arena->table[piece], memory_order_acquire);

	if (!word)
		return NULL;
	return &arena->marks[word & ARENA_SLAB ? piece : word - 1];
}

static bool is_used(const struct engine *engine, const struct block_state *mark)
{
	return block_state_pins(mark) || block_state_last(mark) > engine->progress.done;
}

static bool is_claimed(const struct engine *engine, const struct block_state *mark)
{
	return engine->claims &&
	       inflight_has(engine->claims, (uint32_t)(mark - engine->arena->marks), engine->progress.done);
}

bool piece_is_busy(struct engine *engine, uint32_t piece, bool in)
{
	struct block_state *mark = piece_block_state(engine, piece);

	return !mark || is_used(engine, mark) || is_claimed(engine, mark) || (!in && atomic_load(&mark->waits)) ||
	       is_used(engine, &engine->channel.everything) || atomic_load(&engine->channel.everything.waits);
}

void piece_set_where(struct engine *engine, const struct migration *transit, enum block_state_where where)
{
	arena_mark_where(engine->arena, transit->block_unit, transit->piece, where);
}

void piece_raise(struct engine *engine, const struct migration *transit)
{
	atomic_fetch_add(&engine->arena->marks[transit->block_unit].unmapped, 1);
	atomic_fetch_add(&engine->channel.everything.unmapped, 1);
	piece_set_where(engine, transit, BLOCK_STATE_MOVING);
}

void piece_lower(struct engine *engine, const struct migration *transit)
{
	atomic_fetch_sub(&engine->arena->marks[transit->block_unit].unmapped, 1);
	atomic_fetch_sub(&engine->channel.everything.unmapped, 1);
}

bool piece_wants_host(const struct engine *engine, const struct block_state *block)
{
	return atomic_load(&engine->arena->states[block - engine->arena->marks].to_host);
}

bool piece_is_discarded(const struct engine *engine, uint32_t block_unit, uint32_t piece)
{
	uint64_t of_piece = atomic_load(&engine->arena->states[piece].discard);
	uint64_t of_all = atomic_load(&engine->channel.everything.discarded);

	return of_piece && of_all && of_piece >= of_all &&
	       of_piece == atomic_load(&engine->arena->marks[block_unit].discarded);
}

/* ---- what stays on the device ---- */

/*
 * Blocks that are not evicted, most of them in `fast` only. Examples are tables of libraries, lists, counters and
 * states: memory that kernels find by addresses which no launch names, in other memory or in constants. To the plan
 * such memory is unused and the first to evict, and a kernel that accesses it in transit stops the job. Measured
 * (H200): cuFFT and cuRAND have tables of 2 to 7 MiB. There are two kinds, each with a share of the device budget;
 * within a share, the first to come is kept:
 *
 *   - small blocks, of up to SPILL_SMALL_BLOCK bytes, regardless of who allocated them: that is little memory, so
 *     keeping it costs little. In `exact`, where such memory may leave, only slabs are kept: small allocations wander
 *     from slab to slab, which nobody foresees, and each stop of the device for one takes milliseconds. Measured (H200,
 *     GPT on cudaMallocAsync at 1.5): 2 % of what was fetched was slabs, and 28 % of the time that submissions waited
 *     was for them;
 *   - blocks of any size with a rule `movable: exact`, which the shipped policies set for what math libraries allocate
 *     for themselves: this share is larger, and more of a small budget, because here the memory is known to be of that
 *     kind. Small ones beyond this share count as small blocks.
 *
 * If others fill the device later, the budget is what they leave. What exceeds its share then may be evicted again, the
 * highest addresses first.
 */
#define SMALL_SHARE 16
#define RULED_SHARE 4
/*
 * Under a small budget a quarter does not hold even one such block. Then up to this much is kept, but never more than
 * half of the budget. Measured: cuFFT takes 4.1 MiB for a transform with a callback, and a job with 16 MiB was stopped
 * for it.
 */
#define RULED_LEAST ((uint64_t)16 << 20)

/* Flag in engine->by_piece.kept beside the number of units (a piece has up to 64): a rule is the reason. */
#define RULED 0x80
_Static_assert(CHUNK_MOST < RULED, "the units of a piece fit beside the bit");

static uint64_t most_units(const struct engine *engine, bool ruled)
{
	uint64_t budget = engine_budget(engine), share = budget / (ruled ? RULED_SHARE : SMALL_SHARE);

	if (ruled && share < RULED_LEAST)
		share = budget / 2 < RULED_LEAST ? budget / 2 : RULED_LEAST;
	return share / HEAP_UNIT;
}

/* The piece is not kept any more. */
static void keep_forget(struct engine *engine, uint32_t piece)
{
	bool ruled = engine->by_piece.kept[piece] & RULED;

	engine->by_piece.kept_units[ruled] -= engine->by_piece.kept[piece] & ~RULED;
	engine->by_piece.kept[piece] = 0;
}

/* Keeps the piece, which must not be kept yet, if the share has room. Returns false if it has not. */
static bool keep_in_share(struct engine *engine, uint32_t piece, uint32_t units, bool ruled)
{
	if (engine->by_piece.kept_units[ruled] + units > most_units(engine, ruled))
		return false;
	engine->by_piece.kept[piece] = (uint8_t)(units | (ruled ? RULED : 0));
	engine->by_piece.kept_units[ruled] += units;
	return true;
}

/*
 * Returns whether this piece, which is on the device, must stay there because it belongs to a small block or to one
 * that a rule keeps; in `exact`, because it is a slab. block_unit: first unit of its block.
 */
static bool keep_piece(struct engine *engine, uint32_t piece, uint32_t units, uint32_t block_unit)
{
	const struct unit_state *state = &engine->arena->states[block_unit];
	bool ruled = atomic_load(&state->keep);
	bool small = atomic_load(&state->units) * (uint64_t)HEAP_UNIT <= SPILL_SMALL_BLOCK;

	if (engine->exact) {
		ruled = false;
		small = atomic_load(&engine->arena->table[piece]) & ARENA_SLAB;
	}
	if ((ruled || small) && engine->by_piece.kept[piece] == (units | (ruled ? RULED : 0)))
		return true;
	/* Another block may have taken its place unnoticed. */
	keep_forget(engine, piece);
	return (ruled && keep_in_share(engine, piece, units, true)) ||
	       (small && keep_in_share(engine, piece, units, false));
}

bool piece_should_come(struct engine *engine, uint32_t piece, uint64_t planned[2])
{
	const struct block_state *mark = piece_block_state(engine, piece);
	enum chunk_place place;
	uint32_t units, block;

	if (!mark || piece_wants_host(engine, mark) || !heap_piece(engine->heap, piece, &units, &place, &block) ||
	    atomic_load(&engine->arena->states[piece].where) != BLOCK_STATE_HOST)
		return false;
	const struct unit_state *state = &engine->arena->states[block];
	bool is[] = {atomic_load(&state->units) * (uint64_t)HEAP_UNIT <= SPILL_SMALL_BLOCK, atomic_load(&state->keep)};
	for (int ruled = 1; ruled >= 0; ruled--) {
		if (!is[ruled] ||
		    engine->by_piece.kept_units[ruled] + planned[ruled] + units > most_units(engine, ruled))
			continue;
		planned[ruled] += units;
		return true;
	}
	return false;
}

/* ---- the plan ---- */

void piece_tell_plan(struct engine *engine, uint32_t piece)
{
	enum chunk_place place;
	uint32_t units, block;

	if (!heap_piece(engine->heap, piece, &units, &place, &block)) {
		plan_set(engine->plan, piece, 0, PLAN_GONE);
		keep_forget(engine, piece);
		/* A new piece at this address has neither left the device nor been prefetched. */
		engine->by_piece.left[piece] = 0;
		engine->by_piece.ahead[piece] = false;
		return;
	}
	switch (atomic_load(&engine->arena->states[piece].where)) {
	case BLOCK_STATE_DEVICE:
		plan_set(engine->plan, piece, units,
			 (piece >= engine->brings && piece < engine->brings_end) ||
				 keep_piece(engine, piece, units, block)
			     ? PLAN_PINNED
			     : PLAN_DEVICE);
		break;
	case BLOCK_STATE_HOST:
		keep_forget(engine, piece);
		plan_set(engine->plan, piece, units, PLAN_HOST);
		break;
	case BLOCK_STATE_PINNED:
		plan_set(engine->plan, piece, units, PLAN_PINNED);
		break;
	default:
		plan_set(engine->plan, piece, units, PLAN_MOVING);
	}
}

void piece_keep_follow(struct engine *engine)
{
	for (int ruled = 0; ruled < 2; ruled++) {
		uint64_t most = most_units(engine, ruled);

		for (uint32_t piece = engine->arena->n_units_seen;
		     piece-- && engine->by_piece.kept_units[ruled] > most;) {
			if (!engine->by_piece.kept[piece] || !(engine->by_piece.kept[piece] & RULED) != !ruled)
				continue;
			keep_forget(engine, piece);
			piece_tell_plan(engine, piece); /* keeps it again if it still fits */
		}
	}
}

/* ---- the end of a move ---- */

void piece_arrived(struct engine *engine, struct migration *transit, enum block_state_where where, bool is_raised)
{
	piece_set_where(engine, transit, where);
	if (is_raised)
		piece_lower(engine, transit);
	migration_end(engine->heap, transit);
	piece_tell_plan(engine, transit->piece);
}

/*
 * How often in turn piece_map_soon() may fail, in all 5 s: the driver's page tables take memory, of which others may
 * leave it none for a while. Time is not looked at, because the process may be stopped meanwhile.
 */
#define REFUSED_MOST 60

static bool map_once(struct engine *engine, const struct migration *transit, enum piece_memory which, bool *ret_new)
{
	for (int new = 1; new >= 0; new --) {
		*ret_new = new;
		if (which & (new ? PIECE_NEW : PIECE_OLD) && (!new || transit->spare) &&
		    migration_map(engine->heap, transit, new) == CUDA_SUCCESS)
			return true;
	}
	return false;
}

bool piece_map_soon(struct engine *engine, const struct migration *transit, enum piece_memory which, bool *ret_new)
{
	unsigned tries = 0;

	while (engine_tries(&tries)) {
		if (map_once(engine, transit, which, ret_new)) {
			engine->health.refused = 0;
			return true;
		}
		if (engine->health.refused == REFUSED_MOST)
			return false;
	}
	engine->health.refused++;
	heap_trim(engine->heap, 0, heap_idle_host(engine->heap));
	return false;
}

bool piece_map(struct engine *engine, const struct migration *transit, enum piece_memory which, bool *ret_new)
{
	do
		if (piece_map_soon(engine, transit, which, ret_new))
			return true;
	while (engine->health.refused < REFUSED_MOST);
	engine_die(engine, "memory cannot be mapped");
	return false;
}
