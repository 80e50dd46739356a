/*
 * Pieces without memory. A piece in which nothing is alive would need host memory only to have an address that leads
 * somewhere, and mapping that takes 8 us a MiB (docs/facts.md, Host memory), half as long as a copy. While the process
 * is suspended no address is used. So its memory goes back to the driver, and it gets new memory when the process goes
 * on, before the gate opens: from the device, where 128 MiB take 50 us (Mapping), or, if others have the device by
 * then, from the host. The host budget is charged for it all the time, so that only the system itself can refuse that;
 * then the process stays suspended.
 *
 * If the process ends meanwhile, such a piece gets memory only if the heap has idle host memory: pinning more takes 0.2
 * s a GiB, others have the device, and the driver frees all of it next. A thread that goes on until then, and uses what
 * its allocator has given to nobody, or only since, meets an illegal address (spillway-limits(7)).
 *
 * To the heap such a piece is moving: its block can be freed, and whoever wants to pin it waits.
 */
#include "shim/base/log.h"
#include "shim/base/array.h"
#include "shim/mover/mover_internal.h"
#include "shim/mover/mover_state.h"
#include "shim/stats/stats.h"

/* ---- taking ---- */

/* Takes the memory of one piece away, unless something is alive in it, or the driver refuses. */
static void take_one(struct engine *engine, uint32_t piece)
{
	struct live_range alive[ALIVE_RANGES];
	uint64_t begun = clock_now();
	struct migration transit;

	if (migration_begin_unbacked(engine->heap, piece, &transit) != SW_OK)
		return;
	/* The second call counts what is not copied. */
	if (!alive_is_none(engine, transit.block_unit, piece) || alive_ranges(engine, &transit, alive) != 0 ||
	    migration_unmap(&transit) != CUDA_SUCCESS) {
		migration_end(engine->heap, &transit);
		return;
	}
	move_stats_whole(engine, &transit, begun, 0);
	migration_exchange(engine->heap, &transit);
	/* As for all pieces of a suspended process, no submission waits for it: the gate is closed. */
	piece_set_where(engine, &transit, BLOCK_STATE_HOST);
	plan_set(engine->plan, piece, transit.units, PLAN_MOVING);
	engine->unbacked.at[engine->unbacked.n++] = transit;
}

void unbacked_take(struct engine *engine, uint32_t piece)
{
	/* What is dead is to be overwritten, which takes memory. */
	if (!engine->poisons && ARRAY_ROOM(engine->unbacked.at, engine->unbacked.n, engine->unbacked.room, ARRAY_MOST))
		take_one(engine, piece);
}

/* ---- giving ---- */

static bool is_ending(void)
{
	return atomic_load(&mover_state.spill.ending);
}

static bool turn(struct engine *engine, struct migration *transit)
{
	enum sw_status status = migration_turn(engine->heap, true, transit);

	if (status == SW_NO_MEMORY && heap_make_spare(engine->heap, CHUNK_DEVICE, transit->units) == SW_OK)
		status = migration_turn(engine->heap, true, transit);
	return status == SW_OK;
}

static bool give_device(struct engine *engine, struct migration *transit)
{
	uint64_t begun = clock_now();

	if (!turn(engine, transit))
		return false;
	if (migration_map(engine->heap, transit, true) != CUDA_SUCCESS) {
		heap_give_spare(engine->heap, transit);
		return false;
	}
	move_stats_whole(engine, transit, begun, 0);
	stats_add(STAT_dead_bytes, migration_bytes(transit));
	stats_add(STAT_dead_in_bytes, migration_bytes(transit));
	migration_exchange(engine->heap, transit);
	piece_arrived(engine, transit, BLOCK_STATE_DEVICE, false);
	return true;
}

static bool give_host(struct engine *engine, struct migration *transit)
{
	if (migration_back(engine->heap, transit, !is_ending()) != SW_OK ||
	    migration_map(engine->heap, transit, false) != CUDA_SUCCESS)
		return false;
	piece_arrived(engine, transit, BLOCK_STATE_HOST, false);
	return true;
}

/* Ends the piece if its block was freed. */
static bool give_up(struct engine *engine, struct migration *transit)
{
	if (!migration_is_given(engine->heap, transit))
		return false;
	migration_end(engine->heap, transit);
	piece_tell_plan(engine, transit->piece);
	return true;
}

static bool give_all(struct engine *engine, bool device, bool host)
{
	struct unbacked *list = &engine->unbacked;
	unsigned kept = 0;

	for (unsigned i = 0; i < list->n; i++) {
		struct migration *transit = &list->at[i];

		if (!give_up(engine, transit) && !(device && !is_ending() && give_device(engine, transit)) &&
		    !(host && give_host(engine, transit)))
			list->at[kept++] = *transit;
	}
	list->n = kept;
	return !kept;
}

bool unbacked_give_one(struct engine *engine)
{
	struct unbacked *list = &engine->unbacked;

	if (!list->n)
		return false;
	struct migration *last = &list->at[list->n - 1];
	if (!give_up(engine, last) &&
	    (heap_free_bytes(engine->heap, CHUNK_DEVICE) < migration_bytes(last) || !give_device(engine, last)))
		return false;
	list->n--;
	return true;
}

bool unbacked_give(struct engine *engine)
{
	return give_all(engine, true, false) || give_all(engine, false, true) || is_ending();
}

void unbacked_serve(struct engine *engine)
{
	bool awaited = heap_is_awaited(engine->heap);

	if (engine->unbacked.n && (awaited || heap_has_given(engine->heap)))
		give_all(engine, false, awaited);
}
