/*
 * What to move. Whoever waits comes first; then what the plan foresees, as far ahead as keeps the link busy. Room is
 * made a little ahead of need, so that a copy in never waits for a copy out to end.
 *
 * A demand is given up when there is nothing that could go for it (a submission that names more than fits runs with
 * the rest on the host), when the governor has found that moving does not pay, or when the GPU has made no progress for
 * PATIENCE_NS: it may be held by what the waiting thread would do next.
 */
#include "shim/context/capture.h"
#include "shim/device/peer.h"
#include "shim/submit/completion.h"
#include "shim/mover/mover_internal.h"
#include "shim/plan/move_limits.h"
#include "shim/submit/submission.h"
#include "shim/stats/stats.h"

#define PATIENCE_NS 50000000
/* Of what the link takes for the pieces named, to allow for mapping and for others that are served in between. */
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
	/* Copies under way are asked for themselves (migrate.c). */
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

/* Send one piece out; of that size rather than another, where it makes little difference. */
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
 * Make room for so many bytes: what is free or about to be, less than that, is made more by what may go. PLAN_FOUND:
 * something is on its way out, or there is enough; PLAN_BUSY: something could go later; PLAN_NONE: nothing can.
 */
static enum plan_answer make_room(struct engine *engine, uint64_t when, unsigned units, uint64_t bytes)
{
	enum plan_answer answer = PLAN_FOUND;

	while (answer == PLAN_FOUND && schedule_may_begin(engine, &engine->moves.out) &&
	       heap_free_bytes(engine->heap, CHUNK_DEVICE) + engine->moves.out.bytes < bytes)
		answer = send_out(engine, when, units);
	return engine->moves.out.n ? PLAN_FOUND : answer;
}

/* Bring a piece in. MIGRATE_NO_ROOM: none now, *ret_room says whether there may be soon. */
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

/* ---- those who wait ---- */

void schedule_count(struct engine *engine, uint32_t piece, bool ahead)
{
	engine->by_piece.ahead[piece] = ahead;
	if (!ahead)
		stats_add(STAT_unforeseen, 1);
}

/*
 * Will what is busy go on being so? Nothing runs or moves that could end: it is kept by those who wait themselves, in
 * whose blocks it lies, and they wait for nothing but this.
 */
static bool is_deadlocked(const struct engine *engine)
{
	return !engine->moves.in.n && !engine->moves.out.n && engine->progress.done >= completion_newest() &&
	       submission_is_quiet();
}

/* True: it is worth waiting on for this piece. */
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
 * What its blocks have unmapped beside that is mapped while the copies run: mapping host memory takes a good part of the
 * time that a copy takes, so not what is to come in at once. True: something is still on its way.
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

/* Bring in what a submission wants; true: it is worth waiting for. What is not is no longer stamped as wanted. */
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
 * Has it waited in vain? The device gets no further while nothing is submitted, so beside the patience with it there is
 * the time in which all that is named can be brought, each piece after another has made room.
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

/* What it waits for is on its way, and does not get on: natively it would not wait. */
static void bring_back(struct engine *engine, const struct waiter *waiter)
{
	if (clock_now() - waiter->since <= PATIENCE_NS || !migrate_is_stuck(engine))
		return;
	if (!engine->moves.n_back)
		stats_add(STAT_waits_given_up, 1);
	migrate_take_back(engine);
}

/* Is there anything this submission should go on waiting for? Begins what can be begun. */
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

/* ---- those who wait for room ---- */

/*
 * A block that begins on the host is brought in for the kernel that is launched next, as a rule, with bytes that are
 * nothing, and something goes out for it in any case. By the model of replay a recorded GPT on cudaMallocAsync, 1.5, takes
 * 200 ms a step without, 163 with, and brings in 3.6 GiB instead of 7.2; a made-up job that allocates all it needs in
 * each step 323 and 285; one whose steps are of other sizes each time loses, 220 and 239.
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

/* ---- looking ahead ---- */

void schedule_ahead(struct engine *engine)
{
	uint32_t piece;
	uint64_t when;

	/*
	 * The room that is made for a piece somebody waits for becomes free bit by bit. What comes in ahead must not take
	 * it: in a steady state what has just gone for the waiter's sake is the very next to come in again, and the
	 * waiter would wait for ever. So it is with the room for a new block.
	 */
	if (engine->progress.starving || engine->exact || atomic_load(&engine->new_blocks.wanted) ||
	    !schedule_may_move(engine) || !link_open(engine))
		return;
	engine->stats.why_in = TRACE_WHY_AHEAD;
	for (unsigned tries = 0; tries < 64 && schedule_may_begin(engine, &engine->moves.in); tries++) {
		if (!plan_fetch(engine->plan, schedule_ahead_units(engine), &piece, &when))
			return;
		enum plan_answer room;
		enum migrate_answer answer = bring_in(engine, piece, when, &room);
		if (answer == MIGRATE_BEGUN)
			schedule_count(engine, piece, true);
		if (answer == MIGRATE_BUSY || answer == MIGRATE_FAILED)
			put_aside(engine, piece);
		if (answer == MIGRATE_NO_ROOM)
			return;
	}
}

/* ---- what the program wants on the host ---- */

/* In a gap a piece is said to be where it was until it has arrived. */
static bool is_in(const struct queue *queue, uint32_t piece)
{
	for (unsigned i = 0; i < queue->n; i++)
		if (queue->at[(queue->head + i) % MOVES].transit.piece == piece)
			return true;
	return false;
}

/* A piece that is to be on the host, where there is so much room; from a peer, too. True: it is not over with it. */
static bool lead_to_host(struct engine *engine, uint32_t piece, uint64_t room, bool gap)
{
	const struct block_state *block = piece_block_state(engine, piece);
	enum block_state_where where = atomic_load(&engine->arena->states[piece].where);

	/* What has arrived, or must stay for another reason, is pinned. */
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
