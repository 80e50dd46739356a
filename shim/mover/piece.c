/*
 * One piece: what submissions and the mover tell each other about it by the marks of the arena (who uses its block,
 * that nobody is to, where the piece is), what the plan is told of it, and its end of a move, when it is mapped and
 * let go of. Nothing is decided here, and nothing begins to move.
 */
#include "shim/heap/chunk.h"
#include "shim/mover/mover_internal.h"

#include <stdlib.h>

/* ---- lists ---- */

bool piece_list_add(struct piece_list *list, uint32_t piece)
{
	if (list->n == list->room) {
		unsigned more = list->room ? 2 * list->room : 256;
		uint32_t *longer = realloc(list->at, more * sizeof(*longer));

		if (!longer)
			return false;
		list->at = longer;
		list->room = more;
	}
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

/* ---- its marks ---- */

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
 * Blocks that do not leave the device in `fast`. Tables of libraries are such, and lists, counters, states: memory that
 * kernels find by addresses which no launch names, from other memory or from constants. To the plan that is memory which
 * nobody uses, the first to leave, and a kernel that reaches it while it is on its way stops the job. (cuFFT and cuRAND on
 * an H200: tables of 2 to 7 MiB.) There are two kinds, each with its own share of the device budget; within a share, who
 * was there first has it:
 *   small blocks, of up to SMALL_BLOCK bytes, whoever allocated them: little memory, so keeping it costs little;
 *   blocks of any size that a rule calls `movable: exact`, as the shipped policies do of what math libraries allocate for
 *   themselves: a larger share, and more of a small budget, for here it is known that the memory is of that sort.
 *   Small ones beyond it are as above.
 * Where others fill the device later the budget is what they leave, and what is kept beyond its share may go again, the
 * latest addresses first.
 */
#define SMALL_BLOCK ((uint64_t)16 << 20)
#define SMALL_SHARE 16
#define RULED_SHARE 4
/*
 * Under a small budget a quarter holds not even one of such blocks (cuFFT takes 4.1 MiB for a transform with a callback, and
 * a job with 16 MiB was stopped for it): then up to this much, but never more than half of the budget.
 */
#define RULED_LEAST ((uint64_t)16 << 20)

/* Of engine->by_piece.kept: beside the number of units (a piece has up to 64), whether a rule is the reason. */
#define RULED 0x80
_Static_assert(CHUNK_MOST < RULED, "the units of a piece fit beside the bit");

static uint64_t most_units(const struct engine *engine, bool ruled)
{
	uint64_t budget = engine_budget(engine), share = budget / (ruled ? RULED_SHARE : SMALL_SHARE);

	if (ruled && share < RULED_LEAST)
		share = budget / 2 < RULED_LEAST ? budget / 2 : RULED_LEAST;
	return share / HEAP_UNIT;
}

/* The piece is not on the device any more. */
static void keep_forget(struct engine *engine, uint32_t piece)
{
	bool ruled = engine->by_piece.kept[piece] & RULED;

	engine->by_piece.kept_units[ruled] -= engine->by_piece.kept[piece] & ~RULED;
	engine->by_piece.kept[piece] = 0;
}

/* Keeps the piece, of which nothing is kept, as far as that share goes. */
static bool keep_in_share(struct engine *engine, uint32_t piece, uint32_t units, bool ruled)
{
	if (engine->by_piece.kept_units[ruled] + units > most_units(engine, ruled))
		return false;
	engine->by_piece.kept[piece] = (uint8_t)(units | (ruled ? RULED : 0));
	engine->by_piece.kept_units[ruled] += units;
	return true;
}

/*
 * Returns whether this piece, which is on the device, is to stay there, since it is of a small block, or of one that
 * a rule keeps. Never in `exact`. Its block starts at block_unit.
 */
static bool keep_piece(struct engine *engine, uint32_t piece, uint32_t units, uint32_t block_unit)
{
	const struct unit_state *state = &engine->arena->states[block_unit];
	bool ruled = atomic_load(&state->keep);
	bool small = atomic_load(&state->units) * (uint64_t)HEAP_UNIT <= SMALL_BLOCK;

	if (engine->exact)
		return false;
	if ((ruled || small) && engine->by_piece.kept[piece] == (units | (ruled ? RULED : 0)))
		return true;
	/* Another block may have come to its place unnoticed. */
	keep_forget(engine, piece);
	return (ruled && keep_in_share(engine, piece, units, true)) ||
	       (small && keep_in_share(engine, piece, units, false));
}

/* ---- the plan ---- */

void piece_tell_plan(struct engine *engine, uint32_t piece)
{
	enum chunk_place place;
	uint32_t units, block;

	if (!heap_piece(engine->heap, piece, &units, &place, &block)) {
		plan_set(engine->plan, piece, 0, PLAN_GONE);
		keep_forget(engine, piece);
		/* What is made at this address next has neither left the device nor been brought ahead. */
		engine->by_piece.left[piece] = 0;
		engine->by_piece.ahead[piece] = false;
		return;
	}
	switch (atomic_load(&engine->arena->states[piece].where)) {
	case BLOCK_STATE_DEVICE:
		plan_set(engine->plan, piece, units,
			 keep_piece(engine, piece, units, block) ? PLAN_PINNED : PLAN_DEVICE);
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
			piece_tell_plan(engine, piece); /* which keeps it if it still fits */
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

bool piece_map_either(struct engine *engine, struct migration *transit, bool *ret_new)
{
	unsigned tries = 0;

	while (engine_tries(&tries))
		for (int spare = transit->spare != NULL; spare >= 0; spare--) {
			*ret_new = spare;
			if (migration_map(engine->heap, transit, spare) == CUDA_SUCCESS)
				return true;
		}
	engine_die(engine, "memory cannot be mapped");
	return false;
}
