// SPDX-License-Identifier: Apache-2.0
/*
 * One piece: the block state that submissions and the mover share about it (which submissions use its block, that none
 * may, where the piece is), what the plan knows of it, and the end of its moves, when it is mapped and may move again.
 * Nothing here decides or begins a move.
 */
#include "shim/base/array.h"
#include "shim/base/call_site.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/mover/mover.h"

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

enum chunk_place piece_place(const struct engine *engine, uint32_t piece)
{
	enum chunk_place place;
	uint32_t units, block;

	return heap_piece(engine->heap, piece, &units, &place, &block) ? place : CHUNK_PLACES;
}

bool piece_at_unit(void *argument, uint32_t unit, uint32_t *ret_piece, uint32_t *ret_past)
{
	const struct engine *engine = argument;
	const struct arena *arena = engine->arena;
	uint32_t word = unit < arena->n_units ? atomic_load_explicit(&arena->piece[unit], memory_order_acquire) : 0;
	uint32_t past = word ? word - 1 + arena->states[word - 1].units_of_piece : 0;

	if (past <= unit)
		return false;
	*ret_piece = word - 1;
	*ret_past = past;
	return true;
}

struct block_state *piece_block_state(struct engine *engine, uint32_t piece)
{
	struct arena *arena = engine->arena;
	uint32_t word = atomic_load_explicit(&arena->table[piece], memory_order_acquire);

	if (!word)
		return NULL;
	return &arena->block_states[word & ARENA_SLAB ? piece : word - 1];
}

static bool is_used(const struct engine *engine, const struct block_state *block)
{
	return block_state_pins(block) || block_state_last(block) > engine->progress.done;
}

bool piece_is_awaited(const struct engine *engine, const struct block_state *block, uint32_t piece)
{
	const struct piece_tables *tables = &engine->by_piece;

	if (engine->moves.waits_keep == WAITS_KEEP_NOTHING || !atomic_load(&block->waits))
		return false;
	return engine->moves.waits_keep == WAITS_KEEP_BLOCKS || tables->round - tables->at[piece].awaited <= 1;
}

bool piece_is_busy(struct engine *engine, uint32_t piece, bool in)
{
	struct block_state *block = piece_block_state(engine, piece);

	if (!block || is_used(engine, block) || (!in && piece_is_awaited(engine, block, piece)) ||
	    is_used(engine, &engine->channel.everything) || atomic_load(&engine->channel.everything.waits))
		return true;
	return engine->inflight &&
	       inflight_has(engine->inflight, (uint32_t)(block - engine->arena->block_states), engine->progress.done);
}

void piece_set_where(struct engine *engine, const struct migration *migration, enum block_state_where where)
{
	arena_mark_where(engine->arena, migration->block_unit, migration->piece, where);
}

void piece_raise(struct engine *engine, const struct migration *migration)
{
	atomic_fetch_add(&engine->arena->block_states[migration->block_unit].unmapped, 1);
	atomic_fetch_add(&engine->channel.everything.unmapped, 1);
	piece_set_where(engine, migration, BLOCK_STATE_MOVING);
}

void piece_lower(struct engine *engine, const struct migration *migration)
{
	atomic_fetch_sub(&engine->arena->block_states[migration->block_unit].unmapped, 1);
	atomic_fetch_sub(&engine->channel.everything.unmapped, 1);
}

bool piece_wants_host(const struct engine *engine, const struct block_state *block)
{
	return atomic_load(&engine->arena->states[block - engine->arena->block_states].to_host);
}

bool piece_is_discarded(const struct engine *engine, uint32_t block_unit, uint32_t piece)
{
	uint64_t of_piece = atomic_load(&engine->arena->states[piece].discard);
	uint64_t of_all = atomic_load(&engine->channel.everything.discarded);

	return of_piece && of_all && of_piece >= of_all &&
	       of_piece == atomic_load(&engine->arena->block_states[block_unit].discarded);
}

/* ---- what stays on the device ---- */

/*
 * Blocks that are not evicted, most of them in `fast` only. Examples are tables of libraries, lists, counters and
 * states: memory that kernels find by addresses which no launch names, in other memory or in constants. To the plan
 * such memory is unused and the first to evict, and a kernel that accesses it in transit stops the job. Measured
 * (H200): cuFFT and cuRAND have tables of 2 to 7 MiB. There are three kinds, each with a share of the device
 * budget; within a share, the first to come is kept:
 *
 *   - small blocks, of up to SPILL_SMALL_BLOCK bytes, but for those of the next kind, regardless of who allocated
 *     them: that is little memory, so keeping it costs little. In `exact`, where such memory may leave, only slabs are
 *     kept: small allocations wander from slab to slab, which nobody foresees, and each stop of the device for one
 *     takes milliseconds. Measured (H200, GPT on cudaMallocAsync at 1.5): 2 % of what was fetched was slabs, and 28 %
 *     of the time that submissions waited was for them;
 *   - managed memory of at most 2 MiB, which has its unit alone (heap/on_use.c): it is as small as what shares
 *     a slab, but takes more. Measured (H200, a GPT whose tensors are each an allocation): without this share a step
 *     took 1.3 times as long as with plain memory, for small tensors were half of the pieces that moved;
 *   - blocks of any size with a rule `movable: exact`, which the shipped policies set for what math libraries allocate
 *     for themselves: this share is larger, and more of a small budget, because here the memory is known to be of that
 *     kind. What is beyond this share counts in the share of its size.
 *
 * If others fill the device later, the budget is what they leave. What exceeds its share then may be evicted again, the
 * highest addresses first.
 */
static const unsigned keep_share[KEEP_REASONS] = {[KEEP_SMALL] = 16, [KEEP_MANAGED] = 8, [KEEP_RULED] = 4};
/*
 * Under a small budget a quarter does not hold even one such block. Then up to this much is kept, but never more than
 * half of the budget. Measured: cuFFT takes 4.1 MiB for a transform with a callback, and a job with 16 MiB was stopped
 * for it.
 */
#define RULED_LEAST ((uint64_t)16 << 20)

static uint64_t most_units(const struct engine *engine, enum keep why)
{
	uint64_t budget = engine_budget(engine), share = budget / keep_share[why];

	if (why == KEEP_RULED && share < RULED_LEAST)
		share = budget / 2 < RULED_LEAST ? budget / 2 : RULED_LEAST;
	return share / HEAP_UNIT;
}

/* The piece is not kept any more. */
static void keep_forget(struct engine *engine, uint32_t piece)
{
	engine->by_piece.kept_units[engine->by_piece.at[piece].why] -= engine->by_piece.at[piece].kept;
	engine->by_piece.at[piece].kept = 0;
}

/* Keeps the piece for this reason, and no other, if the share has room. Returns false if it has not. */
static bool keep_in_share(struct engine *engine, uint32_t piece, uint32_t units, enum keep why)
{
	if (engine->by_piece.kept_units[why] + units > most_units(engine, why))
		return false;
	keep_forget(engine, piece);
	engine->by_piece.at[piece].kept = (uint8_t)units;
	engine->by_piece.at[piece].why = (uint8_t)why;
	engine->by_piece.kept_units[why] += units;
	return true;
}

/* Returns whether there is this reason to keep a block. In `exact` only slabs are kept. unit: its first one. */
static bool keeps(const struct engine *engine, uint32_t unit, enum keep why)
{
	const struct arena *arena = engine->arena;
	uint32_t first;

	if (engine->exact)
		return why == KEEP_SMALL && atomic_load(&arena->table[unit]) & ARENA_SLAB;
	switch (why) {
	case KEEP_RULED:
		return atomic_load(&arena->states[unit].keep);
	case KEEP_MANAGED:
		return arena_is_on_use(arena, arena_address(arena, unit), &first) &&
		       atomic_load(&arena->states[first].on_use_units) == 1;
	default:
		return atomic_load(&arena->states[unit].units) * (uint64_t)HEAP_UNIT <= SPILL_SMALL_BLOCK &&
		       !keeps(engine, unit, KEEP_MANAGED);
	}
}

/* Returns whether this piece, which is on the device, must stay there. block_unit: first unit of its block. */
static bool keep_piece(struct engine *engine, uint32_t piece, uint32_t units, uint32_t block_unit)
{
	/* Another block may have taken its place unnoticed. */
	if (engine->by_piece.at[piece].kept != units)
		keep_forget(engine, piece);
	for (int why = KEEP_REASONS - 1; why >= 0; why--)
		if (keeps(engine, block_unit, why) &&
		    ((engine->by_piece.at[piece].kept && engine->by_piece.at[piece].why == why) ||
		     keep_in_share(engine, piece, units, why)))
			return true;
	keep_forget(engine, piece);
	return false;
}

bool piece_should_come(struct engine *engine, uint32_t piece, uint64_t planned[KEEP_REASONS])
{
	const struct block_state *block = piece_block_state(engine, piece);
	enum chunk_place place;
	uint32_t units, block_unit;

	if (!block || piece_wants_host(engine, block) ||
	    !heap_piece(engine->heap, piece, &units, &place, &block_unit) ||
	    atomic_load(&engine->arena->states[piece].where) != BLOCK_STATE_HOST)
		return false;
	for (int why = KEEP_REASONS - 1; why >= 0; why--) {
		if (!keeps(engine, block_unit, why) ||
		    engine->by_piece.kept_units[why] + planned[why] + units > most_units(engine, why))
			continue;
		planned[why] += units;
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
		engine->by_piece.at[piece].left = 0;
		engine->by_piece.at[piece].ahead = false;
		return;
	}
	switch (atomic_load(&engine->arena->states[piece].where)) {
	case BLOCK_STATE_DEVICE:
		plan_set(engine->plan, piece, units,
			 (piece + units > engine->brings && piece < engine->brings_end) ||
				 keep_piece(engine, piece, units, block)
			     ? PLAN_PINNED
			     : PLAN_DEVICE);
		break;
	case BLOCK_STATE_HOST:
		keep_forget(engine, piece);
		plan_set(engine->plan, piece, units, PLAN_HOST);
		break;
	case BLOCK_STATE_PINNED: /* it may be pinned for a while only, so it still counts as kept */
		plan_set(engine->plan, piece, units, PLAN_PINNED);
		break;
	default:
		plan_set(engine->plan, piece, units, PLAN_MOVING);
	}
}

void piece_keep_follow(struct engine *engine)
{
	for (int why = 0; why < KEEP_REASONS; why++) {
		uint64_t most = most_units(engine, why);

		for (uint32_t piece = engine->arena->n_units_seen;
		     piece-- && engine->by_piece.kept_units[why] > most;) {
			if (!engine->by_piece.at[piece].kept || engine->by_piece.at[piece].why != why)
				continue;
			keep_forget(engine, piece);
			piece_tell_plan(engine, piece); /* keeps it again if it still fits */
		}
	}
}

/* ---- the end of a move ---- */

void piece_arrived(struct engine *engine, struct migration *migration, enum block_state_where where, bool is_raised)
{
	piece_set_where(engine, migration, where);
	if (is_raised)
		piece_lower(engine, migration);
	migration_end(engine->heap, migration);
	piece_tell_plan(engine, migration->piece);
}

/*
 * How often in turn piece_map_soon() may fail, in all 5 s: the driver's page tables take memory, of which others may
 * leave it none for a while. Time is not looked at, because the process may be stopped meanwhile.
 */
#define REFUSED_MOST 60

static bool map_once(struct engine *engine, const struct migration *migration, enum piece_memory which, bool *ret_new)
{
	for (int new = 1; new >= 0; new --) {
		*ret_new = new;
		if (which & (new ? PIECE_NEW : PIECE_OLD) && (!new || migration->spare) &&
		    migration_map(engine->heap, migration, new) == CUDA_SUCCESS)
			return true;
	}
	return false;
}

bool piece_map_soon(struct engine *engine, const struct migration *migration, enum piece_memory which, bool *ret_new)
{
	unsigned tries = 0;

	while (engine_tries(&tries)) {
		if (map_once(engine, migration, which, ret_new)) {
			engine->health.refused = 0;
			return true;
		}
		if (engine->health.refused == REFUSED_MOST)
			return false;
	}
	engine->health.refused++;
	heap_trim(engine->heap, 0, heap_idle(engine->heap, CHUNK_HOST));
	return false;
}

bool piece_map(struct engine *engine, const struct migration *migration, enum piece_memory which, bool *ret_new)
{
	do
		if (piece_map_soon(engine, migration, which, ret_new))
			return true;
	while (engine->health.refused < REFUSED_MOST);
	engine_die(engine, "memory cannot be mapped");
	return false;
}

/* ---- which lines of the program a piece is counted for ---- */

/*
 * The bytes of a piece that moves are counted for the lines of the program at which the tensors in it were born, as far
 * as an allocator reports them. The rest is counted for the line that asked for the block.
 */

/*
 * Births that the reader has seen count to the byte. The map has ranges without a site where everything was declared
 * alive because submissions had not been followed before (live_map_restart); there each unit's latest birth counts.
 */
#define MOVE_LINES 16    /* of a piece: PyTorch's smallest segment of large tensors has room for 20 */
enum { SITES_MOST = 8 }; /* of a unit */

/* Bytes by line; the number of a line is that of its site. */
struct by_line {
	struct live_site lines[MOVE_LINES];
	unsigned n;
};

static void line_add(struct by_line *by_line, uint16_t site, uint64_t bytes)
{
	unsigned i = 0;

	while (i < by_line->n && by_line->lines[i].site != site)
		i++;
	if (i == MOVE_LINES)
		return;
	if (i == by_line->n)
		by_line->lines[by_line->n++] = (struct live_site){.site = site};
	by_line->lines[i].bytes += bytes;
}

static uint64_t bytes_alive(const struct live_map *map, uint64_t begin, uint64_t end)
{
	struct live_range parts[SITES_MOST];
	unsigned n = live_map_alive(map, begin, end, LIVE_IN_THE_END, 0, parts, SITES_MOST);
	uint64_t bytes = 0;

	for (unsigned i = 0; i < n; i++)
		bytes += parts[i].end - parts[i].begin;
	return bytes;
}

/* Counts bytes of a unit for the line of the latest birth in it. */
static void add_latest(const struct engine *engine, uint64_t address, uint64_t bytes, struct by_line *by_line)
{
	unsigned latest = birth_lines_at(address);

	if (latest && lifetimes_is_reported(engine->arena->lifetimes, address, HEAP_UNIT))
		line_add(by_line, (uint16_t)latest, bytes);
}

static void unit_add(const struct engine *engine, const struct live_map *map, uint64_t begin, struct by_line *by_line)
{
	uint64_t alive, named = 0, end = begin + HEAP_UNIT;
	struct live_site sites[SITES_MOST];

	if (!live_map_is_reported(map, begin))
		return;
	unsigned n = live_map_sites(map, begin, end, sites, SITES_MOST);
	for (unsigned i = 0; i < n; i++) {
		line_add(by_line, sites[i].site, sites[i].bytes);
		named += sites[i].bytes;
	}
	alive = named < HEAP_UNIT ? bytes_alive(map, begin, end) : 0;
	if (alive > named)
		add_latest(engine, engine->arena->base + begin, alive - named, by_line);
}

/*
 * Stores the parts of `units` units from `piece` on in which tensors are alive, by site, each site once; `site` is that
 * of their block. Returns how many.
 */
static unsigned move_lines(const struct engine *engine, uint32_t piece, uint32_t units, unsigned site,
			   struct stats_part ret_parts[MOVE_LINES])
{
	struct by_line by_line = {.n = 0};

	if (!engine->arena->lifetimes)
		return 0;
	for (uint32_t unit = piece; unit < piece + units; unit++)
		if (engine->lifetimes)
			unit_add(engine, lifetimes_map(engine->lifetimes), unit * HEAP_UNIT, &by_line);
		else /* the map is not followed (contents: all), but births are reported */
			add_latest(engine, arena_address(engine->arena, unit), HEAP_UNIT, &by_line);
	for (unsigned i = 0; i < by_line.n; i++)
		ret_parts[i] = (struct stats_part){
		    stats_site_of_tensors(site, call_site_numbered(by_line.lines[i].site)), by_line.lines[i].bytes};
	return by_line.n;
}

/* ---- figures and trace events of moves ---- */

/*
 * Figures and trace events of moves. The link counts as busy while a move has begun and not ended.
 */

void move_stats_busy(struct engine *engine)
{
	if (!engine->stats.n_told)
		return;
	uint64_t us = (clock_now() - engine->stats.busy_since) / 1000;
	stats_add(STAT_link_us, us);
	engine->stats.busy_since += us * 1000;
}

void move_stats_begin(struct engine *engine, struct move *move)
{
	uint64_t now = clock_now();
	const struct migration *migration = &move->migration;
	bool out = migration->to != CHUNK_DEVICE;

	/* Includes the remainder of less than a microsecond from last time. */
	if (!engine->stats.n_told++)
		engine->stats.busy_since = now - engine->stats.busy_rest;
	move->number = 0;
	if (!trace_is_on())
		return;
	move->number = atomic_fetch_add(&mover_state.n_moves_traced, 1) + 1;
	uint64_t old = trace_device(migration_lender(engine->heap, migration, false));
	uint64_t new = trace_device(migration_lender(engine->heap, migration, true));
	trace_event_at(move, now, move->number, (uint64_t)engine->device->ordinal,
		       arena_address(engine->arena, migration->piece), migration_bytes(migration), out,
		       out ? engine->stats.why_out : engine->stats.why_in, out ? new : old, out ? old : 0);
}

void move_stats_end(struct engine *engine, const struct move *move, bool stayed)
{
	move_stats_busy(engine);
	uint64_t now = clock_now();
	if (!--engine->stats.n_told)
		engine->stats.busy_rest = now - engine->stats.busy_since;
	if (move->number)
		trace_event_at(moved, now, move->number, stayed,
			       stayed ? 0 : migration_bytes(&move->migration) - move->copied);
}

/* Returns the site for which a move of the piece is counted: in a divided block, that of the first part in it. */
static unsigned site_of(const struct engine *engine, const struct migration *migration)
{
	const struct arena *arena = engine->arena;
	uint32_t unit = migration->piece;

	for (uint32_t i = 0; i < migration->units; i++)
		if (atomic_load_explicit(&arena->part[migration->piece + i], memory_order_relaxed)) {
			unit = migration->piece + i;
			break;
		}
	return arena_site(arena, migration->block_unit, unit);
}

/* A piece that is fetched sooner than this after its eviction was evicted in vain, or nearly so. */
#define REFETCH_MS 10000

void move_stats_moved(struct engine *engine, const struct move *move)
{
	const struct migration *migration = &move->migration;
	bool in = migration->to == CHUNK_DEVICE;
	uint32_t now = (uint32_t)(clock_now() / 1000000), *left = &engine->by_piece.at[migration->piece].left;
	bool again = in && *left && now - *left < REFETCH_MS;

	*(in ? &engine->stats.moved_in : &engine->stats.moved_out) += migration_bytes(migration);
	CUdevice lender = migration_lender(engine->heap, migration, !in);
	if (lender >= 0)
		stats_moved_lent(engine->device->ordinal, lender, in, migration_bytes(migration));
	if (!in && migration->from == CHUNK_PEER)
		stats_add(STAT_peer_left_bytes, migration_bytes(migration));
	unsigned site = site_of(engine, migration);
	struct stats_part parts[MOVE_LINES];
	unsigned n = move_lines(engine, migration->piece, migration->units, site, parts);

	stats_moved(site, in, migration_bytes(migration), again, parts, n);
	stats_time(in ? HISTOGRAM_move_in_ns : HISTOGRAM_move_out_ns, clock_now() - move->begun);
	*left = in ? 0 : now ? now : 1;
}

void move_stats_whole(struct engine *engine, const struct migration *migration, uint64_t begun, uint64_t copied)
{
	struct move move = {.migration = *migration, .begun = begun, .copied = copied};

	move_stats_begin(engine, &move);
	move_stats_moved(engine, &move);
	move_stats_end(engine, &move, false);
}
