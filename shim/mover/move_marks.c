/*
 * What submissions and the mover tell each other about one piece, by the marks of the arena: who uses its block, that
 * nobody is to, and where the piece is. The plan hears of that, too.
 */
#include "shim/mover/inside.h"

struct mark *move_block_mark(struct engine *engine, uint32_t piece)
{
	struct arena *arena = engine->arena;
	uint32_t word = atomic_load_explicit(&arena->table[piece], memory_order_acquire);

	if (!word)
		return NULL;
	return &arena->marks[word & ARENA_SLAB ? piece : word - 1];
}

static bool is_used(const struct engine *engine, const struct mark *mark)
{
	return mark_holds(mark) || mark_last(mark) > engine->done;
}

static bool is_claimed(const struct engine *engine, const struct mark *mark)
{
	return engine->claims && claims_has(engine->claims, (uint32_t)(mark - engine->arena->marks), engine->done);
}

bool move_is_busy(struct engine *engine, uint32_t piece, bool in)
{
	struct mark *mark = move_block_mark(engine, piece);

	return !mark || is_used(engine, mark) || is_claimed(engine, mark) || (!in && atomic_load(&mark->waits)) ||
	       is_used(engine, &engine->everything) || atomic_load(&engine->everything.waits);
}

void move_set_where(struct engine *engine, const struct transit *transit, enum mark_where where)
{
	arena_mark_where(engine->arena, transit->block_unit, transit->piece, where);
}

void move_raise(struct engine *engine, const struct transit *transit)
{
	atomic_fetch_add(&engine->arena->marks[transit->block_unit].unmapped, 1);
	atomic_fetch_add(&engine->everything.unmapped, 1);
	move_set_where(engine, transit, MARK_MOVING);
}

void move_lower(struct engine *engine, const struct transit *transit)
{
	atomic_fetch_sub(&engine->arena->marks[transit->block_unit].unmapped, 1);
	atomic_fetch_sub(&engine->everything.unmapped, 1);
}

void move_tell_plan(struct engine *engine, uint32_t piece)
{
	enum chunk_place place;
	uint32_t units, block;

	if (!heap_piece(engine->heap, piece, &units, &place, &block)) {
		plan_set(engine->plan, piece, 0, PLAN_GONE);
		keep_forget(engine, piece);
		/* What is made at this address next has neither left the device nor been brought ahead. */
		engine->left[piece] = 0;
		engine->ahead[piece] = false;
		return;
	}
	switch (atomic_load(&engine->arena->states[piece].where)) {
	case MARK_DEVICE:
		plan_set(engine->plan, piece, units,
			 keep_piece(engine, piece, units, block) ? PLAN_PINNED : PLAN_DEVICE);
		break;
	case MARK_HOST:
		keep_forget(engine, piece);
		plan_set(engine->plan, piece, units, PLAN_HOST);
		break;
	case MARK_PINNED:
		plan_set(engine->plan, piece, units, PLAN_PINNED);
		break;
	default:
		plan_set(engine->plan, piece, units, PLAN_MOVING);
	}
}
