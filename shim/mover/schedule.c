// SPDX-License-Identifier: Apache-2.0
/*
 * The hand of the scheduler. It also decides what only the mover can know: whether memory can move at all, which copies
 * are taken back because they make no progress, and what moves because the program wants it on the host.
 */
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/mover/mover.h"

_Static_assert(PLAN_UNIT == HEAP_UNIT, "the plan counts in units of the heap");

/* ns: copies that a submission waits for, and that make no progress, are taken back after this time. */
#define PATIENCE_NS 50000000

/* ---- progress ---- */

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
	if (!migrate_in_flight(engine))
		engine->health.doubts = 0;
	if (done <= engine->progress.done)
		return;
	engine->progress.done = done;
	engine->progress.last = clock_now();
	engine->scheduler.stalled = false;
	for (unsigned i = 0; i < engine->progress.aside.n; i++)
		piece_tell_plan(engine, engine->progress.aside.at[i]);
	engine->progress.aside.n = 0;
}

bool schedule_can_move(const struct engine *engine)
{
	return engine->tracking.complete && !engine->scheduler.stalled && !engine->moves.n_back &&
	       !quiesce_is_held(engine) && !engine_is_dead(engine) && !capture_is_open();
}

bool schedule_may_move(const struct engine *engine)
{
	return engine->governor.allows && schedule_can_move(engine);
}

/* ---- what the scheduler asks for ---- */

static struct scheduler_lane lane_of(const struct queue *queue)
{
	return (struct scheduler_lane){.n = queue->n, .bytes = queue->bytes, .unit_ns = queue->unit_ns};
}

static void hand_look(void *hand, struct scheduler_view *ret_view)
{
	struct engine *engine = hand;

	*ret_view = (struct scheduler_view){
	    .budget = engine_budget(engine),
	    .largest = heap_largest_piece(engine->heap),
	    .free = heap_free_bytes(engine->heap, CHUNK_DEVICE),
	    .in = lane_of(&engine->moves.in),
	    .out = lane_of(&engine->moves.out),
	    .quiet_ns = engine->loop.quiet_ns,
	};
}

static uint32_t hand_units(void *hand, uint32_t piece)
{
	struct engine *engine = hand;

	return engine->arena->states[piece].units_of_piece;
}

static enum plan_place hand_where(void *hand, uint32_t piece)
{
	struct engine *engine = hand;

	switch (atomic_load(&engine->arena->states[piece].where)) {
	case BLOCK_STATE_HOST:
		return PLAN_HOST;
	case BLOCK_STATE_MOVING:
		return deferred_map_find(engine, piece) ? PLAN_HOST : PLAN_MOVING;
	default:
		return PLAN_DEVICE;
	}
}

static enum migrate_answer hand_fetch(void *hand, uint32_t piece, bool ahead, bool gap)
{
	struct engine *engine = hand;

	engine->stats.why_in = ahead ? TRACE_WHY_AHEAD : TRACE_WHY_WAITED;
	enum migrate_answer answer = migrate_begin(engine, piece, CHUNK_DEVICE, gap);
	if (answer != MIGRATE_BEGUN)
		return answer;
	engine->by_piece.at[piece].ahead = ahead;
	if (!ahead)
		stats_add(STAT_unforeseen, 1);
	return MIGRATE_BEGUN;
}

static enum migrate_answer hand_evict(void *hand, uint32_t piece, bool gap)
{
	return migrate_begin(hand, piece, CHUNK_HOST, gap);
}

/* In a gap, a pin is one of a submission at the gate. */
static enum migrate_answer hand_exchange(void *hand, uint32_t piece, bool gap)
{
	struct engine *engine = hand;
	struct block_state *block = piece_block_state(engine, piece);

	if (gap && (!block || block_state_pins(block)))
		return MIGRATE_BUSY;
	enum waits_keep before = engine->moves.waits_keep;
	engine->moves.waits_keep = WAITS_KEEP_NOTHING;
	enum migrate_answer answer = migrate_begin(engine, piece, CHUNK_HOST, gap);
	engine->moves.waits_keep = before;
	return answer;
}

static bool hand_is_idle(void *hand)
{
	const struct engine *engine = hand;

	return engine->progress.done >= completion_newest() && submission_is_quiet(CONTEXT_ALL_DEVICES);
}

static void hand_put_aside(void *hand, uint32_t piece)
{
	struct engine *engine = hand;

	if (piece_list_add(&engine->progress.aside, piece))
		plan_set(engine->plan, piece, hand_units(engine, piece), PLAN_PINNED);
}

static void hand_use_there(void *hand, uint32_t piece)
{
	struct engine *engine = hand;

	engine->by_piece.at[piece].stamp = 0; /* map_blocks_of() maps it */
}

static void hand_tell_plan(void *hand, uint32_t piece)
{
	piece_tell_plan(hand, piece);
}

static bool hand_is_busy(void *hand, uint32_t piece)
{
	return piece_is_busy(hand, piece, false);
}

/* In a gap only submissions that pin a block at the gate, or wait for a piece, keep it from being evicted. */
static bool hand_is_in_use(void *hand, uint32_t piece)
{
	struct engine *engine = hand;
	struct block_state *block = piece_block_state(engine, piece);

	return !block || block_state_pins(block) || piece_is_awaited(engine, block, piece);
}

void schedule_init(struct engine *engine)
{
	static const struct scheduler_ops ops = {
	    .look = hand_look,
	    .units = hand_units,
	    .where = hand_where,
	    .fetch = hand_fetch,
	    .evict = hand_evict,
	    .exchange = hand_exchange,
	    .is_idle = hand_is_idle,
	    .put_aside = hand_put_aside,
	    .use_there = hand_use_there,
	    .tell_plan = hand_tell_plan,
	    .is_busy = hand_is_busy,
	    .is_in_use = hand_is_in_use,
	};

	engine->scheduler.ops = &ops;
	engine->scheduler.hand = engine;
	engine->scheduler.plan = engine->plan;
}

bool schedule_may_evict(struct engine *engine)
{
	struct scheduler_view view;

	hand_look(engine, &view);
	return scheduler_may_begin(&view, &view.out);
}

uint64_t schedule_reserve_bytes(struct engine *engine)
{
	struct scheduler_view view;

	hand_look(engine, &view);
	return scheduler_host_bytes(&view, engine->exact);
}

/* ---- waiting submissions ---- */

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
		struct block_state *block =
		    piece_block_state(engine, arena_unit(engine->arena, waiter->named[i].address));
		if (!block || !atomic_load(&block->unmapped))
			continue;
		deferred_map_map_of(engine, (uint32_t)(block - engine->arena->block_states), wanted);
		unmapped |= atomic_load(&block->unmapped) != 0;
	}
	return unmapped;
}

/* Returns whether the submission has anything to wait for. Begins what can be begun. */
static bool is_waiting(struct engine *engine, struct waiter *waiter)
{
	enum scheduler_wait answer = SCHEDULER_GIVEN_UP;
	struct scheduler_named named = {0};

	/* Its piece may be one whose copy makes no progress; without the library it would not wait. */
	if (clock_now() - waiter->since > PATIENCE_NS && migrate_is_stuck(engine)) {
		if (!engine->moves.n_back)
			stats_add(STAT_waits_given_up, 1);
		migrate_take_back(engine);
	}
	if (schedule_may_move(engine) && !engine->exact && link_open(engine)) {
		intake_waiter(engine, waiter, &named);
		/* How long the submission has waited and the GPU has made no progress. */
		uint64_t since = waiter->since > engine->progress.last ? waiter->since : engine->progress.last;
		engine->moves.waits_keep = WAITS_KEEP_PIECES;
		answer = scheduler_wait(&engine->scheduler, &named, clock_now() - since);
		engine->moves.waits_keep = WAITS_KEEP_BLOCKS;
		if (answer == SCHEDULER_GIVEN_UP)
			stats_add(STAT_waits_given_up, 1);
	}
	if (answer == SCHEDULER_GIVEN_UP)
		engine->by_piece.stamp++; /* nothing is about to be fetched */
	bool waits = map_blocks_of(engine, waiter, engine->by_piece.stamp) || answer == SCHEDULER_WAITS ||
		     (waiter->unknown && atomic_load(&engine->channel.everything.unmapped));
	if (!waits)
		scheduler_exchange_end(&engine->scheduler, &named);
	return waits;
}

void schedule_for_waiters(struct engine *engine)
{
	struct scheduler_named named;
	bool answered = false;

	engine->scheduler.starving = false;
	if (!atomic_load_explicit(&engine->channel.n_waiters, memory_order_acquire))
		return;
	lock_take(&engine->channel.lock);
	engine->by_piece.round++;
	for (struct waiter *waiter = engine->channel.waiters; waiter; waiter = waiter->next) {
		/* It keeps what it names until it has woken and pinned it. */
		if (waiter->answered)
			intake_waiter(engine, waiter, &named);
		if (waiter->answered || (engine->exact && !waiter->had_gap && schedule_may_move(engine)))
			continue;
		if (!is_waiting(engine, waiter))
			answered = waiter->answered = true;
	}
	if (answered)
		clock_wake_all(&engine->channel.answered);
	lock_drop(&engine->channel.lock);
}

/* ---- room for new blocks, and prefetch ---- */

void schedule_for_new(struct engine *engine)
{
	uint64_t wanted = atomic_load(&engine->new_blocks.wanted);

	if (wanted &&
	    !(schedule_may_move(engine) && link_open(engine) && scheduler_for_new(&engine->scheduler, wanted)))
		atomic_fetch_add(&engine->new_blocks.hopeless, 1);
}

void schedule_ahead(struct engine *engine)
{
	/* A prefetch must not take the room that is made for a new block. */
	if (!engine->exact && !atomic_load(&engine->new_blocks.wanted) && schedule_may_move(engine) &&
	    link_open(engine))
		scheduler_ahead(&engine->scheduler);
}

/* ---- what the program wants on the host ---- */

/* In a gap, the state of a piece shows its old place until it has arrived. */
static bool is_in(const struct queue *queue, uint32_t piece)
{
	for (unsigned i = 0; i < queue->n; i++)
		if (queue->at[(queue->head + i) % MOVES].migration.piece == piece)
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
	if (where == BLOCK_STATE_MOVING || room < piece_bytes(engine, piece))
		return true;
	if (!schedule_may_evict(engine) || is_in(&engine->moves.out, piece) || is_in(&engine->moves.in, piece))
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
