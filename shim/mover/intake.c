// SPDX-License-Identifier: Apache-2.0
/*
 * The mover's input: from the heap, which pieces came and went; from the submission log, what was submitted. It turns
 * names into pieces, and updates the plan and the trace. It decides nothing and begins no moves.
 */
#include "shim/mover/mover.h"
#include "shim/submit/graph.h"

/* ---- names to pieces ---- */

/*
 * Returns how many bytes a name means, as far as is known. end: where it reaches in the block; alive: the range that
 * was born there, in bytes from the beginning of the arena, or NULL.
 */
static uint64_t bytes_of(struct engine *engine, const struct named *named, uint32_t block, uint64_t end,
			 const struct live_range *alive)
{
	uint64_t offset = named->address - arena_address(engine->arena, block);

	if (named->bytes)
		return end - offset;
	return alive ? alive->end - (named->address - engine->arena->base)
		     : tensor_extents_end(engine->intake.extents, block, offset) - offset;
}

/*
 * Returns the units that a name reaches, *ret_first up to but not including *ret_end. *ret_bytes (may be NULL): how
 * many bytes from the address on it means, as far as is known; of a slab, all of it. Returns false if nothing is mapped
 * there any more.
 */
static bool range_of(struct engine *engine, const struct named *named, bool note, uint32_t *ret_first,
		     uint32_t *ret_end, uint64_t *ret_bytes)
{
	struct arena *arena = engine->arena;
	if (!arena_contains(arena, named->address) || named->bytes == NAMED_ASIDE)
		return false; /* belongs to another device; or nothing is wanted of it */
	uint32_t unit = arena_unit(arena, named->address);
	uint32_t word = atomic_load_explicit(&arena->table[unit], memory_order_acquire);

	if (!word)
		return false;
	*ret_first = unit;
	*ret_end = unit + 1;
	if (ret_bytes)
		*ret_bytes = HEAP_UNIT;
	if (word & ARENA_SLAB)
		return true;
	/*
	 * If the program has placed the block, only it knows how many of its handles a tensor covers, and it assigns
	 * addresses without regard to them. What is mapped there ends at the first unit without a piece (pieces_of).
	 */
	uint32_t units, block = arena_reach(arena, word - 1, &units);
	bool placed = atomic_load_explicit(&arena->states[word - 1].space_units, memory_order_relaxed) != 0;
	uint64_t offset = named->address - arena_address(arena, block);
	uint64_t all = (uint64_t)units * HEAP_UNIT, end;
	struct live_range alive;
	bool known = alive_find(engine, named->address, &alive);
	bool whole = all <= tensor_extents_whole(atomic_load(&engine->device->budget.limit));

	if (note)
		alive_name(engine, named, engine->intake.no_kernel);
	if (note && known && engine->intake.n_named_at < INTAKE_NAMED_AT)
		engine->intake.named_at[engine->intake.n_named_at++] = named->address - arena->base;
	/* What is fresh may go on in other blocks. */
	if (known)
		alive = live_range_within(alive, block, units);
	if (note)
		tensor_extents_note(engine->intake.extents, block, all, offset);
	if (named->bytes) {
		end = named->bytes < all - offset ? offset + named->bytes : all;
	} else if (whole && !(known && (engine->exact || placed))) {
		/*
		 * In `fast`, what lies before the pointer is included, too: the submission uses the whole block, so
		 * what is not mapped of it would have to be mapped on the host first, which takes half as long as
		 * fetching it. In `exact`, all of it is mapped anyway. Measured (GPT, 1.5): in `fast` 244 ms a step
		 * with, 262 without; in `exact` 406 with, 396 without. Also where it is known what is alive: in `fast`
		 * 254 with, 275 without; in `exact` 411 with, 384 without (H100). What the program has placed is in
		 * blocks of its own handles, of which the submission uses only those that a range reaches.
		 */
		*ret_first = engine->exact ? unit : block;
		end = all;
	} else if (known) {
		*ret_first = engine->exact ? unit : (uint32_t)(alive.begin / HEAP_UNIT);
		end = alive.end - block * HEAP_UNIT;
	} else {
		end = tensor_extents_end(engine->intake.extents, block, offset);
	}
	if (ret_bytes)
		*ret_bytes = bytes_of(engine, named, block, end, known ? &alive : NULL);
	if (note)
		engine->intake.named_bytes += bytes_of(engine, named, block, end, known ? &alive : NULL);
	*ret_end = block + (uint32_t)((end + HEAP_UNIT - 1) / HEAP_UNIT);
	return true;
}

/*
 * Puts the pieces that a list of names touches, each once, into engine->intake.pieces and returns their number. note:
 * the names are of a new submission, so they also update the tensor extents and the sums.
 */
static unsigned pieces_of(struct engine *engine, const struct named *named, unsigned n_named, bool note)
{
	struct arena *arena = engine->arena;
	struct piece_list *pieces = &engine->intake.pieces;
	uint32_t first, end, own, piece, past;

	pieces->n = 0;
	engine->by_piece.stamp++;
	for (unsigned i = 0; i < n_named; i++) {
		if (!range_of(engine, &named[i], note, &first, &end, NULL))
			continue;
		own = arena_unit(arena, named[i].address);
		for (; first < end; first = past) {
			past = first + 1;
			if (!piece_at_unit(engine, first, &piece, &past)) {
				/* What lies before the pointer may have no memory, or no handle (on_use.c). */
				if (first < own)
					continue;
				break;
			}
			if (engine->by_piece.at[piece].stamp == engine->by_piece.stamp)
				continue;
			engine->by_piece.at[piece].stamp = engine->by_piece.stamp;
			if (!piece_list_add(pieces, piece))
				return pieces->n;
		}
	}
	return pieces->n;
}

/* ---- how much a graph uses each piece ---- */

/*
 * Records where a pointer starts. A graph may have more names than intake_read() reads of one submission, and what the
 * capture has shown is forgotten.
 */
static void note_start(struct engine *engine, CUdeviceptr address)
{
	struct arena *arena = engine->arena;
	uint32_t word = arena_contains(arena, address) ? arena_look(arena, address) : 0, units;

	if (!word || word & ARENA_SLAB)
		return;
	uint32_t block = arena_reach(arena, word - 1, &units);
	tensor_extents_note(engine->intake.extents, block, units * HEAP_UNIT, address - arena_address(arena, block));
}

/* Adds what one name uses to the pieces that it reaches; only to those in the present list. */
static void weigh_name(struct engine *engine, const struct named *named, uint32_t uses)
{
	struct arena *arena = engine->arena;
	uint32_t first, end;
	uint64_t bytes;

	if (!range_of(engine, named, false, &first, &end, &bytes))
		return;
	uint64_t at = named->address - arena->base, stop = at + bytes;
	while (at < stop) {
		uint32_t piece, past;

		if (!piece_at_unit(engine, (uint32_t)(at / HEAP_UNIT), &piece, &past))
			return;
		uint64_t until = past * HEAP_UNIT < stop ? past * HEAP_UNIT : stop;
		if (engine->by_piece.at[piece].stamp == engine->by_piece.stamp)
			engine->by_piece.at[piece].touched += uses * (until - at);
		at = until;
	}
}

/* The pieces and the uses lie behind the keys. */
static bool weighed_fits(struct weighed *weighed, unsigned n)
{
	if (n <= weighed->room)
		return true;
	uint64_t *keys = realloc(weighed->keys, n * (sizeof(*keys) + 2 * sizeof(uint32_t)));
	if (!keys)
		return false;
	*weighed = (struct weighed){.keys = keys, .pieces = (uint32_t *)(keys + n), .room = n};
	weighed->uses = weighed->pieces + n;
	return true;
}

/* Sorts the pieces of the present list by how often each of their bytes is used. */
static void weighed_sort(struct engine *engine, struct weighed *weighed)
{
	const struct piece_list *list = &engine->intake.pieces;

	for (unsigned i = 0; i < list->n; i++) {
		uint32_t piece = list->at[i];
		uint64_t bytes = piece_bytes(engine, piece);
		uint64_t uses = engine->by_piece.at[piece].touched / (bytes / SCHEDULER_USE);

		/* Among equals, low addresses first. */
		weighed->keys[i] = (UINT32_MAX - (uses < UINT32_MAX ? uses : UINT32_MAX)) << 32 | piece;
	}
	qsort(weighed->keys, list->n, sizeof(weighed->keys[0]), mover_by_number);
	for (unsigned i = 0; i < list->n; i++) {
		weighed->pieces[i] = (uint32_t)weighed->keys[i];
		weighed->uses[i] = UINT32_MAX - (uint32_t)(weighed->keys[i] >> 32);
	}
	weighed->n = list->n;
}

/* Returns whether what was computed for the submission is still right. A wait takes many rounds. */
static bool weighed_is_of(const struct engine *engine, const struct waiter *waiter)
{
	const struct weighed *weighed = &engine->intake.weighed;

	if (weighed->waiter != waiter || weighed->since != waiter->since || weighed->n != engine->intake.pieces.n)
		return false;
	for (unsigned i = 0; i < weighed->n; i++)
		if (engine->by_piece.at[weighed->pieces[i]].stamp != engine->by_piece.stamp)
			return false;
	return true;
}

static bool intake_weigh(struct engine *engine, const struct waiter *waiter)
{
	const struct graph_names *names = waiter->graph;
	struct weighed *weighed = &engine->intake.weighed;

	if (weighed_is_of(engine, waiter))
		return true;
	weighed->waiter = NULL; /* until all of it is computed */
	if (!weighed_fits(weighed, engine->intake.pieces.n))
		return false;
	for (unsigned i = 0; i < engine->intake.pieces.n; i++)
		engine->by_piece.at[engine->intake.pieces.at[i]].touched = 0;
	weighed->who = 0;
	size_t n = atomic_load_explicit(&names->n, memory_order_acquire);
	for (size_t i = 0; i < n; i++)
		note_start(engine, names->at[i].address);
	for (size_t i = 0; i < n; i++) {
		struct named named = {names->at[i].address, atomic_load(&names->at[i].bytes)};
		uint32_t uses = atomic_load_explicit(&names->at[i].uses, memory_order_relaxed);

		weighed->who = (weighed->who ^ named.address ^ uses) * UINT64_C(0x9e3779b97f4a7c15);
		weighed->who ^= weighed->who >> 29;
		weigh_name(engine, &named, uses);
	}
	weighed_sort(engine, weighed);
	weighed->waiter = waiter;
	weighed->since = waiter->since;
	return true;
}

void intake_waiter(struct engine *engine, const struct waiter *waiter, struct scheduler_named *ret_named)
{
	const struct weighed *weighed = &engine->intake.weighed;
	unsigned n = pieces_of(engine, waiter->named, waiter->n, false);

	for (unsigned i = 0; i < n; i++)
		engine->by_piece.at[engine->intake.pieces.at[i]].awaited = engine->by_piece.round;
	*ret_named =
	    (struct scheduler_named){.pieces = engine->intake.pieces.at, .n = n, .age = clock_now() - waiter->since};
	if (waiter->graph && !waiter->unknown && atomic_load(&engine->channel.n_waiters) == 1 &&
	    intake_weigh(engine, waiter))
		*ret_named = (struct scheduler_named){weighed->pieces, weighed->uses, n, weighed->who, ret_named->age};
}

/* ---- changes of the heap ---- */

/* Handles a piece that came or went, or whose wanted place the program has changed. */
static void intake_hear(struct engine *engine, uint32_t piece)
{
	const struct block_state *block = piece_block_state(engine, piece);

	piece_tell_plan(engine, piece);
	if (block && piece_wants_host(engine, block))
		piece_list_add(&engine->intake.leaving, piece);
}

/* Reads the pieces that came and went. Returns false if there were none. */
static bool intake_news(struct engine *engine)
{
	uint32_t some[256];
	bool all, any = false;
	size_t n;

	do {
		n = heap_news(engine->heap, some, 256, &all);
		if (all) {
			struct piece_list list = piece_list_all(engine, false);

			for (unsigned i = 0; i < list.n; i++)
				intake_hear(engine, list.at[i]);
			free(list.at);
			any = true;
		}
		for (size_t i = 0; i < n; i++) {
			if (!atomic_load(&engine->arena->table[some[i]]))
				tensor_extents_forget(engine->intake.extents, some[i]);
			intake_hear(engine, some[i]);
			any = true;
		}
	} while (n == 256);
	return any;
}

/* ---- the log of submissions ---- */

/* Counts the pieces of a submission that had been prefetched and are on the device. */
static void count_foreseen(struct engine *engine, unsigned n_pieces)
{
	for (unsigned i = 0; i < n_pieces; i++) {
		uint32_t piece = engine->intake.pieces.at[i];

		if (!engine->by_piece.at[piece].ahead)
			continue;
		engine->by_piece.at[piece].ahead = false;
		if (atomic_load(&engine->arena->states[piece].where) == BLOCK_STATE_DEVICE)
			stats_add(STAT_foreseen, 1);
	}
}

/* Traces the steps of the program: a step ends when the program is again where it was when the step began. */
static void look_for_step(struct engine *engine)
{
	uint64_t now = plan_now(engine->plan), period = plan_period(engine->plan);

	if (!period || (engine->intake.step_began && now - period < engine->intake.step_began))
		return;
	if (engine->intake.step_began)
		trace_event(step, (uint64_t)engine->device->ordinal, now - engine->intake.step_began);
	engine->intake.step_began = now;
}

bool intake_read(struct engine *engine)
{
	bool any = intake_news(engine);
	struct named some[1024];
	uint64_t function;
	unsigned n, records;

	if (engine->inflight)
		inflight_hear(engine->inflight);
	/* The length up to which submissions name blocks as a whole (see range_of). */
	uint64_t whole = tensor_extents_whole(atomic_load(&engine->device->budget.limit));
	plan_set_whole(engine->plan, engine->exact ? 0 : (uint32_t)(whole / HEAP_UNIT));
	for (records = 0; records < 4096; records++) {
		/* In this order: what happened before a record that is there is read before it. */
		bool is_there = submission_log_is_there(&engine->channel.log);

		if (!alive_read(engine, submission_log_begin(&engine->channel.log)) || !is_there ||
		    !engine_read_log(engine, &function, some, 1024, &n))
			break;
		if (n == 1024) /* it may have named more */
			alive_restart(engine);
		engine->intake.n_named_at = 0;
		engine->intake.no_kernel = submission_is_no_kernel(function);
		unsigned n_pieces = pieces_of(engine, some, n, true);

		count_foreseen(engine, n_pieces);
		if (n_pieces) {
			plan_name(engine->plan, engine->intake.named_at, engine->intake.n_named_at);
			plan_note(engine->plan, function, engine->intake.pieces.at, n_pieces);
			tensor_extents_submitted(engine->intake.extents, plan_span(engine->plan));
		}
		if (trace_is_on())
			look_for_step(engine);
		engine->intake.n_submissions++;
	}
	if (records)
		engine->intake.read_at = clock_now();
	return any || records;
}
