/*
 * Figures and trace events of moves. The link counts as busy while a move has begun and not ended.
 */
#include "shim/mover/move_lines.h"
#include "shim/mover/mover_internal.h"
#include "shim/mover/mover_state.h"
#include "shim/stats/stats.h"

static void count_busy(struct engine *engine, uint64_t now)
{
	if (!engine->stats.n_told)
		return;
	uint64_t us = (now - engine->stats.busy_since) / 1000;
	stats_add(STAT_link_us, us);
	engine->stats.busy_since += us * 1000;
}

void move_stats_busy(struct engine *engine)
{
	count_busy(engine, clock_now());
}

void move_stats_begin(struct engine *engine, struct move *move)
{
	uint64_t now = clock_now();
	const struct migration *transit = &move->transit;
	bool out = transit->to != CHUNK_DEVICE;

	/* Includes the remainder of less than a microsecond from last time. */
	if (!engine->stats.n_told++)
		engine->stats.busy_since = now - engine->stats.busy_rest;
	move->number = 0;
	if (!trace_is_on())
		return;
	move->number = atomic_fetch_add(&mover_state.n_moves_traced, 1) + 1;
	uint64_t old = trace_device(migration_lender(engine->heap, transit, false));
	uint64_t new = trace_device(migration_lender(engine->heap, transit, true));
	trace_event_at(move, now, move->number, (uint64_t)engine->device->ordinal,
		       arena_address(engine->arena, transit->piece), migration_bytes(transit), out,
		       out ? engine->stats.why_out : engine->stats.why_in, out ? new : old, out ? old : 0);
}

void move_stats_end(struct engine *engine, const struct move *move, bool stayed)
{
	uint64_t now = clock_now();

	count_busy(engine, now);
	if (!--engine->stats.n_told)
		engine->stats.busy_rest = now - engine->stats.busy_since;
	if (move->number)
		trace_event_at(moved, now, move->number, stayed,
			       stayed ? 0 : migration_bytes(&move->transit) - move->copied);
}

/* Returns the site for which a move of the piece is counted: in a divided block, that of the first part in it. */
static unsigned site_of(const struct engine *engine, const struct migration *transit)
{
	const struct arena *arena = engine->arena;
	uint32_t units = (uint32_t)(migration_bytes(transit) / HEAP_UNIT), unit = transit->piece;

	for (uint32_t i = 0; i < units; i++)
		if (atomic_load_explicit(&arena->part[transit->piece + i], memory_order_relaxed)) {
			unit = transit->piece + i;
			break;
		}
	return arena_site(arena, transit->block_unit, unit);
}

/* A piece that is fetched sooner than this after its eviction was evicted in vain, or nearly so. */
#define REFETCH_MS 10000

void move_stats_moved(struct engine *engine, const struct move *move)
{
	const struct migration *transit = &move->transit;
	bool in = transit->to == CHUNK_DEVICE;
	uint32_t now = (uint32_t)(clock_now() / 1000000), *left = &engine->by_piece.left[transit->piece];
	bool again = in && *left && now - *left < REFETCH_MS;

	*(in ? &engine->stats.moved_in : &engine->stats.moved_out) += migration_bytes(transit);
	CUdevice lender = migration_lender(engine->heap, transit, !in);
	if (lender >= 0)
		stats_moved_lent(engine->device->ordinal, lender, in, migration_bytes(transit));
	if (!in && transit->from == CHUNK_PEER)
		stats_add(STAT_peer_left_bytes, migration_bytes(transit));
	unsigned site = site_of(engine, transit);
	struct stats_part parts[MOVE_LINES];
	unsigned n = move_lines(engine, transit->piece, (uint32_t)(migration_bytes(transit) / HEAP_UNIT), site, parts);

	stats_moved(site, in, migration_bytes(transit), again, parts, n);
	stats_time(in ? HISTOGRAM_move_in_ns : HISTOGRAM_move_out_ns, move->begun);
	*left = in ? 0 : now ? now : 1;
}

void move_stats_whole(struct engine *engine, const struct migration *transit, uint64_t begun, uint64_t copied)
{
	struct move move = {.transit = *transit, .begun = begun, .copied = copied};

	move_stats_begin(engine, &move);
	move_stats_moved(engine, &move);
	move_stats_end(engine, &move, false);
}
