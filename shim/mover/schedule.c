/*
 * Scheduling: which pieces to move. Waiting submissions come first, then what the plan foresees, as far ahead as keeps
 * the link busy. Room is made a little ahead of need, so that a fetch never waits for an eviction to end.
 *
 * A demand is given up if nothing can be evicted for it (a submission that names more than fits runs with the rest on
 * the host), if the governor has found that moving does not pay, or if the GPU has made no progress for PATIENCE_NS: it
 * may be held by what the waiting thread would do next.
 */
#include "shim/context/capture.h"
#include "shim/device/peer.h"
#include "shim/submit/completion.h"
#include "shim/mover/mover_internal.h"
#include "shim/plan/move_limits.h"
#include "shim/submit/submission.h"
#include "shim/stats/stats.h"

#define PATIENCE_NS 50000000
/*
 * Factor on the time that the link takes for the named pieces, to allow for mapping and for other submissions that are
 * served in between.
 */
#define BRING_FACTOR 2

static uint64_t schedule_reserve(const struct engine *engine)
{
	return move_limits_reserve(engine_budget(engine), heap_largest_piece(engine->heap));
}

uint32_t schedule_ahead_units(const struct engine *engine)
{
	return (uint32_t)(move_limits_ahead(engine_budget(engine)) / HEAP_UNIT);
}

uint64_t schedule_stock_bytes(const struct engine *engine)
{
	uint64_t budget = engine_budget(engine);

	return engine->exact
		   ? move_limits_ahead(budget)
		   : schedule_reserve(engine) + move_limits_under_way(budget, heap_largest_piece(engine->heap));
}

/* ---- progress ---- */

static void put_aside(struct engine *engine, uint32_t piece)
{
	if (piece_list_add(&engine->progress.aside, piece))
		plan_set(engine->plan, piece, engine->arena->states[piece].units_of_piece, PLAN_PINNED);
}

void schedule_progress(struct engine *engine)
{
	CUresult error = CUDA_SUCCESS;
	CUdevice ordinal = engine->device->ordinal;
	uint64_t done = completion_poll(ordinal, peer_may_reach(ordinal), !migrate_any(engine), &error);

	if (error != CUDA_SUCCESS) {
		engine_doubt(engine, error);
		return;
	}
	/* Copies in flight are queried separately (migrate.c). */
	if (!engine->moves.out.n && !engine->moves.in.n)
		engine->health.doubts = 0;
	if (done <= engine->progress.done)
		return;
	engine->progress.done = done;
	engine->progress.last = clock_now();
	engine->progress.stalled = false;
	for (unsigned i = 0; i < engine->progress.aside.n; i++)
		piece_tell_plan(engine, engine->progress.aside.at[i]);
	engine->progress.aside.n = 0;
}

bool schedule_can_move(const struct engine *engine)
{
	return engine->tracking.complete && !engine->progress.stalled && !engine->moves.n_back &&
	       !engine->quiesce.suspended && !atomic_load(&engine->channel.dead) && !capture_is_open();
}

bool schedule_may_move(const struct engine *engine)
{
	return engine->governor.allows && schedule_can_move(engine);
}

/* ---- making room ---- */

static bool cannot_leave(void *argument, uint32_t piece)
{
	return piece_is_busy(argument, piece, false);
}

bool schedule_may_begin(const struct engine *engine, const struct queue *queue)
{
	uint64_t most = move_limits_under_way(engine_budget(engine), heap_largest_piece(engine->heap));

	return !queue->n || (queue->n < MOVES && queue->bytes < most);
}

/* Begins to evict one piece, preferably one of `units` units where the choice makes little difference. */
static enum plan_answer send_out(struct engine *engine, uint64_t when, unsigned units)
{
	uint32_t piece;
	enum plan_answer answer = plan_victim(engine->plan, when, units, cannot_leave, engine, &piece);

	if (answer != PLAN_FOUND)
		return answer;
	switch (migrate_begin(engine, piece, CHUNK_HOST, false)) {
	case MIGRATE_BEGUN:
		return PLAN_FOUND;
	case MIGRATE_BUSY:
		return PLAN_BUSY;
	case MIGRATE_NO_ROOM:
		return PLAN_NONE;
	default:
		put_aside(engine, piece);
		return PLAN_BUSY;
	}
}

/*
 * Evicts pieces until `bytes` are free or about to be. Returns PLAN_FOUND if evictions are in flight or there is enough
 * room, PLAN_BUSY if a piece may be evicted later, PLAN_NONE if none can.
 */
static enum plan_answer make_room(struct engine *engine, uint64_t when, unsigned units, uint64_t bytes)
{
	enum plan_answer answer = PLAN_FOUND;

	while (answer == PLAN_FOUND && schedule_may_begin(engine, &engine->moves.out) &&
	       heap_free_bytes(engine->heap, CHUNK_DEVICE) + engine->moves.out.bytes < bytes)
		answer = send_out(engine, when, units);
	return engine->moves.out.n ? PLAN_FOUND : answer;
}

/* Begins to fetch a piece. If the result is MIGRATE_NO_ROOM, *ret_room says whether there may be room soon. */
static enum migrate_answer bring_in(struct engine *engine, uint32_t piece, uint64_t when, enum plan_answer *ret_room)
{
	unsigned units = engine->arena->states[piece].units_of_piece;
	enum migrate_answer answer = migrate_begin(engine, piece, CHUNK_DEVICE, false);

	if (answer == MIGRATE_NO_ROOM)
		*ret_room = make_room(engine, when, units, schedule_reserve(engine) + (uint64_t)units * HEAP_UNIT);
	if (answer == MIGRATE_BEGUN)
		make_room(engine, when, units, schedule_reserve(engine));
	return answer;
}

/* ---- waiting submissions ---- */

void schedule_count(struct engine *engine, uint32_t piece, bool ahead)
{
	engine->by_piece.ahead[piece] = ahead;
	if (!ahead)
		stats_add(STAT_unforeseen, 1);
}

/*
 * Returns whether busy pieces will stay busy: nothing that could end runs or moves. Then waiting submissions themselves
 * keep them busy, because the pieces are in their blocks, and they wait for nothing else.
 */
static bool is_deadlocked(const struct engine *engine)
{
	return !engine->moves.in.n && !engine->moves.out.n && engine->progress.done >= completion_newest() &&
	       submission_is_quiet();
}

/* Begins to fetch a piece for a waiting submission. Returns true if it is worth waiting for the piece. */
static bool schedule_demand(struct engine *engine, uint32_t piece)
{
	enum plan_answer room = PLAN_NONE;

	if (engine->moves.in.n == MOVES)
		return true;
	engine->stats.why_in = TRACE_WHY_WAITED;
	switch (bring_in(engine, piece, plan_now(engine->plan), &room)) {
	case MIGRATE_BEGUN:
		schedule_count(engine, piece, false);
		return true;
	case MIGRATE_BUSY:
		return true;
	case MIGRATE_NO_ROOM:
		if (room == PLAN_BUSY && is_deadlocked(engine))
			room = PLAN_NONE;
		engine->progress.starving |= room != PLAN_NONE;
		return room != PLAN_NONE;
	default:
		return false;
	}
}

/*
 * Maps deferred pieces of the submission's blocks while copies run, except pieces stamped `wanted`, which are about to
 * be fetched: mapping host memory takes a good part of the time of a copy. Returns true if anything is still in
 * transit.
 */
static bool map_blocks_of(struct engine *engine, const struct waiter *waiter, uint64_t wanted)
{
	bool unmapped = false;

	for (unsigned i = 0; i < waiter->n; i++) {
		if (!arena_contains(engine->arena, waiter->named[i].address))
			continue;
		uint32_t unit = arena_unit(engine->arena, waiter->named[i].address);
		struct block_state *block;

		if (!atomic_load(&engine->arena->table[unit]))
			continue;
		block = piece_block_state(engine, unit);
		if (!block || !atomic_load(&block->unmapped))
			continue;
		deferred_map_map_of(engine, (uint32_t)(block - engine->arena->marks), wanted);
		unmapped |= atomic_load(&block->unmapped) != 0;
	}
	return unmapped;
}

/*
 * Begins to fetch the first n pieces of engine->intake.pieces. Returns true if they are worth waiting for. Clears the
 * stamp of a piece that is not.
 */
static bool want_pieces(struct engine *engine, unsigned n)
{
	bool missing = false;

	for (unsigned i = 0; i < n; i++) {
		uint32_t piece = engine->intake.pieces.at[i];
		enum block_state_where where = atomic_load(&engine->arena->states[piece].where);
		bool rests = where == BLOCK_STATE_MOVING && deferred_map_find(engine, piece) != NULL;

		if (where == BLOCK_STATE_HOST || rests) {
			bool comes = schedule_demand(engine, piece);

			missing |= comes;
			if (!comes)
				engine->by_piece.stamps[piece] = 0;
		} else {
			missing |= where == BLOCK_STATE_MOVING;
		}
	}
	return missing;
}

/*
 * Returns whether a submission has waited in vain. The device makes no progress while nothing is submitted, so the time
 * in which all that is named can be fetched, each piece after another has made room, is added to the patience.
 */
static bool is_out_of_patience(struct engine *engine, const struct waiter *waiter)
{
	uint64_t since = waiter->since > engine->progress.last ? waiter->since : engine->progress.last;
	uint64_t waited = clock_now() - since, units = 0;

	if (waited <= PATIENCE_NS || engine->moves.in.n || engine->moves.out.n)
		return false;
	for (unsigned i = intake_pieces(engine, waiter->named, waiter->n); i-- > 0;)
		units += engine->arena->states[engine->intake.pieces.at[i]].units_of_piece;
	return waited > PATIENCE_NS + BRING_FACTOR * units * (engine->moves.in.unit_ns + engine->moves.out.unit_ns);
}

/*
 * Takes moves back if a submission waits for a piece whose copy makes no progress; without the library it would not
 * wait.
 */
static void bring_back(struct engine *engine, const struct waiter *waiter)
{
	if (clock_now() - waiter->since <= PATIENCE_NS || !migrate_is_stuck(engine))
		return;
	if (!engine->moves.n_back)
		stats_add(STAT_waits_given_up, 1);
	migrate_take_back(engine);
}

/* Returns whether the submission has anything to wait for. Begins what can be begun. */
static bool is_waiting(struct engine *engine, struct waiter *waiter)
{
	bring_back(engine, waiter);
	bool want = schedule_may_move(engine) && !engine->exact && link_open(engine);

	if (want && is_out_of_patience(engine, waiter)) {
		engine->progress.stalled = true;
		stats_add(STAT_waits_given_up, 1);
		want = false;
	}
	unsigned n = want ? intake_pieces(engine, waiter->named, waiter->n) : 0;
	if (!want)
		engine->by_piece.stamp++;
	bool missing = want_pieces(engine, n);

	return map_blocks_of(engine, waiter, engine->by_piece.stamp) || missing ||
	       (waiter->unknown && atomic_load(&engine->channel.everything.unmapped));
}

void schedule_for_waiters(struct engine *engine)
{
	bool answered = false;

	engine->progress.starving = false;
	if (!atomic_load_explicit(&engine->channel.n_waiters, memory_order_acquire))
		return;
	lock_take(&engine->channel.lock);
	for (struct waiter *waiter = engine->channel.waiters; waiter; waiter = waiter->next) {
		if (waiter->answered || (engine->exact && !waiter->had_gap && schedule_may_move(engine)))
			continue;
		if (!is_waiting(engine, waiter))
			answered = waiter->answered = true;
	}
	if (answered)
		clock_wake_all(&engine->channel.answered);
	lock_drop(&engine->channel.lock);
}

/* ---- room for new blocks ---- */

/*
 * A block that starts on the host is usually fetched for the kernel that is launched next, although its contents mean
 * nothing, and something is evicted for it in any case. In the replay model, a recorded GPT on cudaMallocAsync, 1.5,
 * takes 200 ms a step without this and 163 with it, and fetches 3.6 GiB instead of 7.2; a synthetic job that allocates
 * all it needs in each step 323 and 285; one whose steps differ in size each time loses, 220 and 239.
 */
void schedule_for_new(struct engine *engine)
{
	uint64_t wanted = atomic_load(&engine->new_blocks.wanted);
	enum plan_answer room = PLAN_NONE;

	if (!wanted)
		return;
	if (schedule_may_move(engine) && link_open(engine))
		room = make_room(engine, plan_now(engine->plan), 0, schedule_reserve(engine) + wanted);
	if (room == PLAN_NONE || (room == PLAN_BUSY && is_deadlocked(engine)))
		atomic_fetch_add(&engine->new_blocks.hopeless, 1);
}

/* ---- prefetch ---- */

/* Tells the plan how much device memory is free, or about to be, beyond the reserve. */
static void tell_free(struct engine *engine)
{
	uint64_t bytes = heap_free_bytes(engine->heap, CHUNK_DEVICE) + engine->moves.out.bytes;
	uint64_t reserve = schedule_reserve(engine);

	plan_set_free(engine->plan, bytes > reserve ? (bytes - reserve) / HEAP_UNIT : 0);
}

/* Evicts what will have to leave in any case while the link to the host has nothing else to do. */
static void schedule_early(struct engine *engine)
{
	uint32_t piece;

	while (schedule_may_begin(engine, &engine->moves.out)) {
		tell_free(engine);
		if (!plan_early(engine->plan, cannot_leave, engine, &piece))
			return;
		enum migrate_answer answer = migrate_begin(engine, piece, CHUNK_HOST, false);
		if (answer == MIGRATE_NO_ROOM)
			return;
		if (answer != MIGRATE_BEGUN)
			put_aside(engine, piece);
	}
}

void schedule_ahead(struct engine *engine)
{
	uint32_t piece;
	uint64_t when;

	/*
	 * The room that is made for a piece that a submission waits for becomes free bit by bit. A prefetch must not
	 * take it: in a steady state the piece that was just evicted for the waiting submission is the very next to be
	 * fetched again, and the submission would wait for ever. The same applies to the room for a new block.
	 */
	if (engine->progress.starving || engine->exact || atomic_load(&engine->new_blocks.wanted) ||
	    !schedule_may_move(engine) || !link_open(engine))
		return;
	engine->stats.why_in = TRACE_WHY_AHEAD;
	for (unsigned tries = 0; tries < 64 && schedule_may_begin(engine, &engine->moves.in); tries++) {
		tell_free(engine);
		if (!plan_fetch(engine->plan, schedule_ahead_units(engine), &piece, &when))
			break;
		enum plan_answer room;
		enum migrate_answer answer = bring_in(engine, piece, when, &room);
		if (answer == MIGRATE_BEGUN)
			schedule_count(engine, piece, true);
		if (answer == MIGRATE_BUSY || answer == MIGRATE_FAILED)
			put_aside(engine, piece);
		if (answer == MIGRATE_NO_ROOM)
			break;
	}
	schedule_early(engine);
}

/* ---- what the program wants on the host ---- */

/* In a gap, the state of a piece shows its old place until it has arrived. */
static bool is_in(const struct queue *queue, uint32_t piece)
{
	for (unsigned i = 0; i < queue->n; i++)
		if (queue->at[(queue->head + i) % MOVES].transit.piece == piece)
			return true;
	return false;
}

/*
 * Moves a piece to the host, also from a peer, if `room` bytes suffice. Returns true if it must be tried again later.
 */
static bool lead_to_host(struct engine *engine, uint32_t piece, uint64_t room, bool gap)
{
	const struct block_state *block = piece_block_state(engine, piece);
	enum block_state_where where = atomic_load(&engine->arena->states[piece].where);

	/* A piece that has arrived, or must stay for another reason, is pinned. */
	if (!block || !piece_wants_host(engine, block) || where == BLOCK_STATE_PINNED)
		return false;
	if (where == BLOCK_STATE_MOVING || room < engine->arena->states[piece].units_of_piece * HEAP_UNIT)
		return true;
	if (!schedule_may_begin(engine, &engine->moves.out) || is_in(&engine->moves.out, piece) ||
	    is_in(&engine->moves.in, piece))
		return true;
	return migrate_begin(engine, piece, CHUNK_HOST, gap) != MIGRATE_FAILED;
}

void schedule_leave(struct engine *engine, bool gap)
{
	unsigned kept = 0;

	/* Whether moving pays does not matter: the program has asked for it. */
	if (!engine->intake.leaving.n || !schedule_can_move(engine) || !link_open(engine))
		return;
	uint64_t room = heap_free_bytes(engine->heap, CHUNK_HOST);
	engine->stats.why_out = TRACE_WHY_AHEAD;
	for (unsigned i = 0; i < engine->intake.leaving.n; i++) {
		uint32_t piece = engine->intake.leaving.at[i];

		if (lead_to_host(engine, piece, room, gap))
			engine->intake.leaving.at[kept++] = piece;
	}
	engine->intake.leaving.n = kept;
	engine->stats.why_out = TRACE_WHY_ROOM;
}
