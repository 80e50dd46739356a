// SPDX-License-Identifier: Apache-2.0
/*
 * What births and deaths mean for pieces. A piece in which nothing is alive moves without a copy, and is the plan's
 * first choice for a victim; of others only what is alive is copied.
 *
 * Nothing that is dead is read before it is written, if the program is right. But a submission that names dead memory
 * brings it to life, so what was submitted and not read yet counts, too. So do births that were not read yet: they say
 * how far such a name reaches.
 */
#include "shim/heap/block_unmapped.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/mover/mover.h"

/* A record that has not been read yet, and has more names than this, counts as naming everything. */
#define NAMES_MOST 256

/* ---- events ---- */

/* Updates what the plan knows of the pieces that these bytes touch. */
static void tell_plan(struct engine *engine, uint64_t begin, uint64_t end)
{
	const struct live_map *map = lifetimes_map(engine->lifetimes);
	uint32_t last = engine->arena->n_units_seen, piece, past;

	if ((end + HEAP_UNIT - 1) / HEAP_UNIT < last)
		last = (uint32_t)((end + HEAP_UNIT - 1) / HEAP_UNIT);
	for (uint32_t unit = (uint32_t)(begin / HEAP_UNIT); unit < last; unit = past) {
		past = unit + 1;
		if (piece_at_unit(engine, unit, &piece, &past))
			plan_set_dead(
			    engine->plan, piece,
			    live_map_dead_share(map, piece * HEAP_UNIT, past * HEAP_UNIT, LIVE_IN_THE_END, PLAN_DEAD));
	}
}

/* Returns whether submissions may have named anything that is dead. */
static bool is_any_unseen(const struct engine *engine)
{
	return engine->unseen.any || atomic_load(&engine->channel.log.lost) != engine->unseen.lost;
}

void alive_restart(struct engine *engine)
{
	if (!engine->lifetimes)
		return;
	live_map_restart(lifetimes_map(engine->lifetimes));
	tell_plan(engine, 0, engine->arena->bytes);
}

/* Tells the plan of the blocks that are reported already, except for those that follow no allocator's rule. */
static void tell_blocks(struct engine *engine)
{
	const struct arena *arena = engine->arena;
	const struct live_map *map = lifetimes_map(engine->lifetimes);

	for (uint32_t unit = 0; unit < arena->n_units_seen; unit++) {
		uint32_t word = atomic_load_explicit(&arena->table[unit], memory_order_acquire);
		uint32_t units = atomic_load_explicit(&arena->states[unit].units, memory_order_relaxed);

		if (word && !(word & ARENA_SLAB) && word - 1 == unit && live_map_is_reported(map, unit * HEAP_UNIT) &&
		    !lifetimes_is_declared(engine->lifetimes, arena_address(arena, unit)))
			plan_report(engine->plan, unit * HEAP_UNIT, (unit + units) * HEAP_UNIT);
	}
}

/* Tells the plan what the allocator does, from which it foresees where tensors will lie. */
static void tell_tensors(struct engine *engine, const struct lifetimes_event *event)
{
	switch (event->kind) {
	case LIFETIMES_REPORTED:
		plan_report(engine->plan, event->begin, event->end);
		break;
	case LIFETIMES_BORN:
		plan_birth(engine->plan, event->begin, event->end);
		break;
	case LIFETIMES_DIED:
		plan_death(engine->plan, event->begin, event->end);
		break;
	case LIFETIMES_DISTRUSTED:
	case LIFETIMES_DISTRUSTED_ALL:
	case LIFETIMES_FREED:
		plan_forget(engine->plan, event->begin, event->end);
		break;
	case LIFETIMES_LOST:
		plan_forget(engine->plan, event->begin, event->end);
		tell_blocks(engine);
		break;
	case LIFETIMES_ADOPTED: /* the program's own: it follows no allocator's rule */
		break;
	}
}

void alive_begin(struct engine *engine, bool all_now)
{
	const struct live_map *map = lifetimes_map(engine->lifetimes);
	uint64_t at = 0, end = engine->arena->n_units_seen * HEAP_UNIT;
	struct live_range range;

	plan_set_pieces(engine->plan, piece_at_unit, engine);
	tell_blocks(engine);
	for (; at < end; at = range.end) {
		if (!live_map_find(map, at, &range))
			range.end = (at / HEAP_UNIT + 1) * HEAP_UNIT;
		else if (!live_map_is_dead(map, range.begin, range.end, LIVE_IN_THE_END))
			plan_birth(engine->plan, range.begin, range.end);
	}
	engine->unseen.any = all_now;
}

bool alive_read(struct engine *engine, size_t position)
{
	struct unseen *unseen = &engine->unseen;
	struct lifetimes_event event;

	if (!engine->lifetimes)
		return true;
	/* How far the log goes if submissions were not seen. What they may have named died before that. */
	unseen->any = is_any_unseen(engine);
	if (unseen->any && !unseen->bounded) {
		unseen->lost_then = atomic_load(&engine->channel.log.lost);
		unseen->end = submission_log_end(&engine->channel.log);
		unseen->bounded = true;
	}
	while (lifetimes_read(engine->lifetimes, position, &event)) {
		tell_plan(engine, event.begin, event.end);
		tell_tensors(engine, &event);
		/* In `fast`, memory that the program has placed may move where it is reported. */
		if (!engine->exact && (event.kind == LIFETIMES_REPORTED || event.kind == LIFETIMES_DISTRUSTED ||
				       event.kind == LIFETIMES_DISTRUSTED_ALL || event.kind == LIFETIMES_LOST))
			heap_follow_reports(engine->heap, (uint32_t)(event.begin / HEAP_UNIT),
					    (uint32_t)(event.end / HEAP_UNIT));
	}
	if (!lifetimes_is_read(engine->lifetimes, position))
		return false;
	if (unseen->bounded && (ptrdiff_t)(position - unseen->end) >= 0) {
		alive_restart(engine);
		unseen->lost = unseen->lost_then;
		unseen->any = unseen->bounded = false;
	}
	return true;
}

void alive_hear(struct engine *engine)
{
	if (engine->lifetimes)
		lifetimes_hear(engine->lifetimes);
}

void alive_count(const struct engine *engine)
{
	if (!engine->lifetimes)
		return;
	struct live_map_sums sums = live_map_sums(lifetimes_map(engine->lifetimes));
	stats_set_cache(engine->device->ordinal, sums.reported, sums.alive, sums.dead);
}

/* ---- names ---- */

bool alive_find(const struct engine *engine, CUdeviceptr address, struct live_range *ret)
{
	return engine->lifetimes && lifetimes_is_known(engine->lifetimes) &&
	       live_map_find(lifetimes_map(engine->lifetimes), address - engine->arena->base, ret);
}

void alive_name(struct engine *engine, const struct named *named, bool no_kernel)
{
	uint64_t at = named->address - engine->arena->base, end = at + (named->bytes ? named->bytes : 1);
	struct live_range range;
	bool revived;

	/* A program whose allocator reports nothing pays nothing, however far it copies. */
	if (!engine->lifetimes || !live_map_sums(lifetimes_map(engine->lifetimes)).reported)
		return;
	while (at < end && at < engine->arena->bytes) {
		if (!live_map_name(lifetimes_map(engine->lifetimes), at, &range, &revived)) {
			at = (at / LIVE_MAP_UNIT + 1) * LIVE_MAP_UNIT;
			continue;
		}
		if (revived)
			tell_plan(engine, range.begin, range.end);
		if (no_kernel)
			live_map_touch(lifetimes_map(engine->lifetimes), at);
		at = range.end;
	}
}

/* Returns the range that has this byte; its unit, if that is not reported. */
static struct live_range range_at(const struct live_map *map, uint64_t at)
{
	struct live_range range;

	if (live_map_find(map, at, &range))
		return range;
	range.begin = at / LIVE_MAP_UNIT * LIVE_MAP_UNIT;
	return (struct live_range){range.begin, range.begin + LIVE_MAP_UNIT};
}

/*
 * Returns the lowest address whose name, if read later, may reach this byte: the beginning of the byte's range; or, if
 * the range is dead or may be when the name is read, of the unbroken row of such ranges up to it (live_map_name).
 */
static uint64_t named_from(const struct engine *engine, uint64_t at)
{
	const struct live_map *map = lifetimes_map(engine->lifetimes);
	struct live_range range = range_at(map, at), before = range;

	while (live_map_is_dead(map, before.begin, before.end, LIVE_IN_THE_END) ||
	       lifetimes_is_unread(engine->lifetimes, before.begin, before.end, true)) {
		range = before;
		if (!range.begin)
			break;
		before = range_at(map, range.begin - 1);
	}
	return range.begin;
}

/* Returns whether a submission that has not been read yet names what reaches into these bytes, or may do so. */
static bool is_named_unread(struct engine *engine, uint64_t begin, uint64_t end)
{
	const struct submission_log *log = &engine->channel.log;
	size_t at = submission_log_begin(log), last = submission_log_end(log);
	uint64_t from = named_from(engine, begin);
	/* Up to where: whoever names a byte of a range means all of it. */
	uint64_t until = range_at(lifetimes_map(engine->lifetimes), end - 1).end;
	struct named named[NAMES_MOST];
	struct inflight_ticket unused;
	unsigned n;

	while (at != last) {
		if (!submission_log_look(log, &at, &unused, named, NAMES_MOST, &n) || n > NAMES_MOST)
			return true;
		for (unsigned i = 0; i < n; i++) {
			uint64_t offset = named[i].address - engine->arena->base;

			if (named[i].bytes != NAMED_ASIDE && offset < until &&
			    offset + (named[i].bytes ? named[i].bytes : 1) > from)
				return true;
		}
	}
	return false;
}

/* ---- copies ---- */

static unsigned all_of_it(const struct migration *migration, struct live_range *ret)
{
	*ret = (struct live_range){0, migration_bytes(migration)};
	return 1;
}

/*
 * Returns the number of the latest submission if nothing runs; 0 if something may, or if it is not sure that all
 * submissions since then have numbers. One that waits has none yet.
 */
static uint64_t idle_since(const struct engine *engine)
{
	uint64_t newest = completion_newest();

	if (!engine->tracking.complete || newest == engine->tracking.from)
		return 0;
	if (!engine->link.in_gap && (engine->progress.done < newest || !submission_is_quiet(CONTEXT_ALL_DEVICES)))
		return 0;
	return completion_newest() == newest ? newest : 0;
}

static struct live_now now_of(const struct engine *engine)
{
	uint64_t idle = idle_since(engine);
	/*
	 * The number after which memory was only cleared, as far as is known: of what was submitted before tracking
	 * began it is not, nor of what was born before the first submission since.
	 */
	uint64_t wide = completion_newest_wide(), tracked = engine->tracking.from + 1;

	return (struct live_now){.done = engine->link.in_gap ? UINT64_MAX : engine->progress.done,
				 .idle = idle,
				 .named_only = !idle            ? 0
					       : wide > tracked ? wide
								: tracked};
}

/* Returns whether more than the map says may be alive in these bytes. */
static bool may_be_more(struct engine *engine, uint64_t begin, uint64_t end)
{
	return is_any_unseen(engine) || lifetimes_is_unread(engine->lifetimes, begin, end, false) ||
	       is_named_unread(engine, begin, end);
}

bool alive_is_none(struct engine *engine, uint32_t block_unit, uint32_t piece)
{
	uint64_t begin = piece * HEAP_UNIT, end = begin + piece_bytes(engine, piece);

	if (piece_is_discarded(engine, block_unit, piece))
		return true;
	return engine->lifetimes && live_map_is_dead(lifetimes_map(engine->lifetimes), begin, end, now_of(engine)) &&
	       !may_be_more(engine, begin, end);
}

unsigned alive_skip(const struct migration *migration, uint64_t bytes)
{
	stats_add(STAT_dead_bytes, bytes);
	if (migration->to == CHUNK_DEVICE)
		stats_add(STAT_dead_in_bytes, bytes);
	return 0;
}

unsigned alive_ranges(struct engine *engine, const struct migration *migration, struct live_range *ret)
{
	uint64_t bytes = migration_bytes(migration), begin = migration->piece * HEAP_UNIT, alive = 0;

	/* Before the map is used; what has not been read by then is looked at after it (may_be_more). */
	alive_hear(engine);
	struct live_now now = now_of(engine);

	if (piece_is_discarded(engine, migration->block_unit, migration->piece)) {
		stats_add(STAT_discarded_bytes, bytes);
		return 0;
	}
	if (!engine->lifetimes)
		return all_of_it(migration, ret);
	unsigned n =
	    live_map_alive(lifetimes_map(engine->lifetimes), begin, begin + bytes, now, ALIVE_GAP, ret, ALIVE_RANGES);
	for (unsigned i = 0; i < n; i++) {
		ret[i].begin -= begin;
		ret[i].end -= begin;
		alive += ret[i].end - ret[i].begin;
	}
	if (alive < bytes && may_be_more(engine, begin, begin + bytes))
		return all_of_it(migration, ret);
	alive_skip(migration, bytes - alive);
	return n;
}
