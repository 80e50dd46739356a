// SPDX-License-Identifier: Apache-2.0
/*
 * The mover: one thread for each device that has an engine (spill_prepare), and the creation of the engine. Each pass
 * does, in this order: orders; the submission log and completions; copies that have ended; waiting submissions;
 * prefetches; and, if there is nothing better to do, deferred maps.
 */
#include "shim/base/array.h"
#include "shim/base/libc.h"
#include "shim/context/context.h"
#include "shim/heap/block_unmapped.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/mover/mover.h"
#include "shim/process/process.h"

#include <limits.h>
#include <string.h>
#include <sys/prctl.h>

/* ---- recall ---- */

/*
 * Recall of memory of this heap that other devices have lent and need back (budget.h). A piece goes from where it is to
 * a peer that has room, or to the host, so no other memory has to leave the device for it. In `fast`, pieces leave
 * beside what runs, like all evictions. In `exact`, they leave in separate gaps, with host memory pinned before:
 * another device waits for the memory, so this one does not stand still for more than a few pieces, and then runs for
 * as long as the gap took.
 *
 * A busy piece is tried again. A piece that must stay (pin.c) stays.
 */

/* ns: between two searches of the heap, and between two attempts if there is no room. */
#define RECALL_LOOK_NS 1000000
#define RECALL_FULL_NS 200000000

static void recall_hear(void *argument, uint32_t piece)
{
	struct engine *engine = argument;

	piece_list_add(&engine->recall.pieces, piece);
}

static void recall_later(struct engine *engine, uint64_t ns)
{
	engine->recall.not_before = clock_now() + ns;
}

/* Begins to move the next piece. Returns false if there is none, or no room. */
static bool send_next(struct engine *engine, bool gap)
{
	while (engine->recall.pieces.n) {
		uint32_t piece = engine->recall.pieces.at[--engine->recall.pieces.n];

		if (piece_place(engine, piece) != CHUNK_PEER)
			continue;
		enum migrate_answer answer = migrate_begin(engine, piece, CHUNK_HOST, gap);
		if (answer == MIGRATE_NO_ROOM)
			recall_later(engine, RECALL_FULL_NS);
		if (answer == MIGRATE_BEGUN || answer == MIGRATE_NO_ROOM)
			return answer == MIGRATE_BEGUN;
	}
	recall_later(engine, RECALL_LOOK_NS);
	return false;
}

/* Pins host memory for the next pieces, before the device is quiesced. */
static void pin_for_next(struct engine *engine)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < MOVES_AT_ONCE && i < engine->recall.pieces.n; i++) {
		uint32_t piece = engine->recall.pieces.at[engine->recall.pieces.n - 1 - i],
			 units = engine->arena->states[piece].units_of_piece;

		if (piece_place(engine, piece) != CHUNK_PEER)
			continue;
		bytes += units * HEAP_UNIT;
		if (heap_idle(engine->heap, CHUNK_HOST) < bytes &&
		    heap_make_spare(engine->heap, CHUNK_HOST, units, false) != SW_OK)
			return;
	}
}

static void send_in_gap(struct engine *engine, uint64_t wanted)
{
	pin_for_next(engine);
	uint64_t begun = clock_now();
	if (!quiesce_close(engine, false))
		return;
	while (engine->moves.out.n < MOVES_AT_ONCE && engine->moves.out.bytes < wanted && send_next(engine, true))
		;
	quiesce_finish(engine);
	quiesce_open(engine);
	if (clock_now() > engine->recall.not_before)
		recall_later(engine, clock_now() - begun);
}

static void recall_run(struct engine *engine)
{
	uint64_t wanted = heap_wanted(engine->heap), now = wanted ? clock_now() : 0;

	if (!wanted || now < engine->recall.not_before || !schedule_can_move(engine) || !link_open(engine) ||
	    (engine->exact && now < engine->quiesce.not_before))
		return;
	heap_give_back_lent(engine->heap);
	if (!engine->recall.pieces.n)
		heap_wanted_pieces(engine->heap, recall_hear, engine);
	if (!engine->recall.pieces.n) {
		recall_later(engine, RECALL_LOOK_NS);
		return;
	}
	if (engine->exact) {
		send_in_gap(engine, wanted);
		return;
	}
	while (schedule_may_evict(engine) && engine->moves.out.bytes < wanted && send_next(engine, false))
		;
}

/* ---- the thread ---- */

/*
 * ns: naps while nothing is in flight and no submission waits (otherwise link_nap_ns() decides): LOOK_NS while the
 * program's submissions may make something movable, else REST_NS. GOVERN_NS: the interval of mover_govern().
 */
#define LOOK_NS   300000
#define REST_NS   5000000
#define GOVERN_NS 2000000
/* ns: a program that has submitted nothing for so long need be looked at rarely. */
#define QUIET_NS 100000000
/* ns: how long moves in flight may take to end when the engine ends. */
#define LAST_NS 1000000000

/* ns: shorter naps are not worth being woken from. */
#define SHORT_NS 30000

/* Sleeps for `ns`, or until an order comes or more than n_waiters submissions wait. */
static void mover_nap(struct engine *engine, uint64_t ns, unsigned n_waiters)
{
	if (ns <= SHORT_NS) {
		clock_sleep(ns);
		return;
	}
	struct timespec until = clock_in(ns);
	lock_take(&engine->channel.wake_lock);
	atomic_store(&engine->channel.asleep, true);
	if (atomic_load(&engine->channel.n_waiters) <= n_waiters && !atomic_load(&engine->orders.pending) &&
	    atomic_load(&engine->channel.check.stage) != CHECK_ASKED)
		lock_wait(&engine->channel.wake_lock, &engine->channel.wake, &until);
	atomic_store(&engine->channel.asleep, false);
	lock_drop(&engine->channel.wake_lock);
}

static void count_alive(const struct engine *engine, bool alive)
{
	struct alive_state *const state = &mover_state.alive;

	/* While another engine, whose memory moves in gaps, is in one, graphs must show what they touch (quiesce.c). */
	bool beside = alive && !engine->exact;
	if (beside)
		lock_take(&mover_state.quiescing.lock);
	lock_take(&state->lock);
	state->n += alive ? 1 : -1u;
	state->n_fast += engine->exact ? 0 : alive ? 1 : -1u;
	if (alive || !state->n)
		submission_set_tracking(alive, beside);
	lock_drop(&state->lock);
	if (beside)
		lock_drop(&mover_state.quiescing.lock);
}

/* Ends the engine: maps what can still be mapped; after that no submission is held back from this device's memory. */
static void mover_end(struct engine *engine)
{
	uint64_t until = clock_now() + LAST_NS;

	if (atomic_load(&engine->loop.left))
		return;
	while (migrate_in_flight(engine) && clock_now() < until) {
		migrate_finish(engine);
		mover_nap(engine, link_nap_ns(engine, 0), UINT_MAX);
	}
	migrate_abandon(engine);
	deferred_map_all(engine);
	quiesce_resume(engine, true);
	link_close(engine);
	/* Written before `dead`: a thread that sees both need not wait for this one (has_ended). */
	atomic_store(&engine->loop.left, true);
	atomic_store(&engine->channel.dead, true);
	count_alive(engine, false);
	lock_take(&engine->channel.lock);
	clock_wake_all(&engine->channel.answered);
	lock_drop(&engine->channel.lock);
}

/*
 * Completes everything in flight. Returns false if copies make no progress; the pieces are then mapped where they were.
 */
static bool mover_drain(struct engine *engine)
{
	while (migrate_any(engine) && !engine_is_dead(engine)) {
		migrate_finish(engine);
		deferred_map_all(engine);
		if (migrate_is_stuck(engine) && migrate_take_back(engine))
			return false;
		if (migrate_in_flight(engine))
			mover_nap(engine, link_nap_ns(engine, 0), UINT_MAX);
	}
	return true;
}

static enum sw_status mover_obey(struct engine *engine, const struct order *order, uint64_t *bytes)
{
	uint64_t before = engine->stats.moved_out, before_all = before + engine->stats.moved_in;
	bool leaves = order->to == RESIDENCE_STOPPED || order->to == RESIDENCE_AWAY;
	enum sw_status status;

	/* What has left for a turn need not be mapped where it is now. */
	if (order->what == ORDER_RESIDE && (!leaves || (quiesce_is_held(engine) && order->reason == RESIDENCE_TURN)))
		return quiesce_reside(engine, order, bytes);
	/* These orders do not wait: the context or the whole process is to end. */
	if (!mover_drain(engine) && order->what != ORDER_PARK && order->what != ORDER_STOP)
		return SW_BUSY;
	switch (order->what) {
	case ORDER_RESIDE:
		return quiesce_reside(engine, order, bytes);
	case ORDER_ROOM:
		status = quiesce_make_room(engine, *bytes);
		*bytes = engine->stats.moved_out - before;
		trial_init(&engine->governor.trial);
		return status;
	case ORDER_NEW:
		return quiesce_room_for_new(engine, *bytes);
	case ORDER_BRING:
		return mode_bring(engine, (uint32_t)(*bytes >> 32), (uint32_t)*bytes);
	case ORDER_EXACT:
	case ORDER_FAST:
		status = mode_change(engine, order->what == ORDER_EXACT);
		*bytes = engine->stats.moved_out + engine->stats.moved_in - before_all;
		return status;
	case ORDER_PARK:
		if (engine->link.context == order->context) {
			migrate_abandon(engine);
			link_close(engine);
		}
		return SW_OK;
	default:
		return SW_OK;
	}
}

/*
 * One error may be chance, but a dead context returns the same error each time. At the end there is no time for
 * engine_doubt().
 */
#define LOOKS 3

static bool is_error(CUresult result)
{
	return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
}

/*
 * Checks the context when the process ends: if the context died because of a move, the failure is reported now, because
 * the process may end before the mover notices by itself.
 */
static void look_at_context(struct engine *engine)
{
	CUresult result = engine->link.context ? REAL(cuEventQuery)(engine->moves.in.at[0].event) : CUDA_SUCCESS;

	for (unsigned i = 1; i < LOOKS && is_error(result); i++)
		result = REAL(cuEventQuery)(engine->moves.in.at[0].event);
	/*
	 * The illegal access may have come from another GPU, or from another context of this one, and then only that
	 * context is dead.
	 */
	if (result != CUDA_ERROR_ILLEGAL_ADDRESS && context_any_died_of(CUDA_ERROR_ILLEGAL_ADDRESS))
		result = CUDA_ERROR_ILLEGAL_ADDRESS;
	if (is_error(result))
		engine_lost(engine, result);
}

/* Takes and carries out the pending order, if any. Returns true if the thread must stop. */
static bool take_order(struct engine *engine)
{
	if (!atomic_load(&engine->orders.pending))
		return false;
	lock_take(&engine->channel.lock);
	struct order order = engine->orders.order;
	uint64_t bytes = order.bytes;
	atomic_store(&engine->orders.pending, false);
	lock_drop(&engine->channel.lock);
	if (order.what == ORDER_NONE)
		return false;
	if (order.what == ORDER_STOP)
		look_at_context(engine);
	bool was_held = quiesce_is_held(engine);
	enum sw_status status = mover_obey(engine, &order, &bytes);
	/* At the end of the process the driver must not be called any more once this order is answered. */
	if (order.what == ORDER_STOP)
		mover_end(engine);
	lock_take(&engine->channel.lock);
	engine->orders.status = status;
	engine->orders.order.bytes = bytes;
	engine->orders.done = true;
	bool left = engine->orders.left, left_away = engine->orders.left_away;
	if (left) {
		engine->orders.left = false;
		engine->orders.order.what = ORDER_NONE;
	}
	clock_wake_all(&engine->channel.answered);
	lock_drop(&engine->channel.lock);
	/*
	 * The thread that gave the order was told that nothing has changed, so the hold is undone; unless the process
	 * was already stopped for a turn by then: it has given its turn on, and stays stopped.
	 */
	if (left && !was_held && order.what == ORDER_RESIDE && (order.reason == RESIDENCE_USER || !left_away))
		quiesce_resume(engine, false);
	if (left && order.what == ORDER_BRING && status == SW_OK)
		heap_pin_end(engine->heap, arena_address(engine->arena, (uint32_t)(order.bytes >> 32)),
			     (uint32_t)order.bytes * HEAP_UNIT, PIN_OFF);
	return order.what == ORDER_STOP;
}

/*
 * What was submitted before tracking began is unknown. Everything that runs is known once no such submission is inside
 * the driver and the device has been idle after that, or its contexts have passed events recorded after that.
 */
static void get_ready(struct engine *engine)
{
	if (engine->tracking.complete)
		return;
	if (!engine->tracking.asked) {
		if (submission_is_quiet(CONTEXT_ALL_DEVICES) &&
		    context_idle_ask(CONTEXT_ALL_DEVICES, &engine->tracking.idle))
			engine->tracking.asked = true;
		return;
	}
	switch (context_idle_look(&engine->tracking.idle)) {
	case CONTEXT_IDLE:
		/* What was discarded before may have been written by submissions that were not tracked. */
		atomic_store(&engine->channel.everything.discarded, 0);
		engine->tracking.from = completion_newest();
		engine->tracking.complete = true;
		break;
	case CONTEXT_BUSY:
		break;
	default:
		engine->tracking.asked = false;
	}
}

static void mover_govern(struct engine *engine)
{
	uint64_t now = clock_now();

	if (now - engine->loop.governed < GOVERN_NS)
		return;
	if (!engine->governor.allows && plan_units(engine->plan, PLAN_HOST))
		stats_add(STAT_unmoved_us, (now - engine->loop.governed) / 1000);
	engine->loop.governed = now;
	piece_keep_follow(engine);
	alive_count(engine);
	struct move_work work = {
	    .n_submissions = engine->intake.n_submissions,
	    .named_bytes = engine->intake.named_bytes,
	    .done = engine->progress.done,
	    .moved_bytes = engine->stats.moved_in + engine->stats.moved_out,
	    .unit_ns = engine->moves.in.unit_ns,
	};
	if (move_governor_update(&engine->governor, engine->plan, now, &work))
		stats_add(STAT_governor_changes, 1);
}

/*
 * An evicted piece is mapped on the host when the link has nothing to do, and in any case after DEFERRED_MAP_NS:
 * mapping host memory beside copies takes almost as long as copying it (1 ms for 64 MiB), on the thread that keeps the
 * link busy. In a steady state most of it is needed again before that.
 */
#define DEFERRED_MAP_NS 1000000000
#define LULL_NS         5000000

static bool deferred_map_is_due(const struct engine *engine)
{
	/* No submission uses it before its next turn fetches it; mapping it now would delay the maps of others. */
	if (!engine->deferred.n || atomic_load(&engine->quiesce.reasons) & RESIDENCE_TURN)
		return false;
	uint64_t now = clock_now();

	return now - engine->loop.copied > LULL_NS || now - engine->deferred.at[0].since > DEFERRED_MAP_NS;
}

/*
 * Returns whether an event behind each submission is worth the 0.35 us that it costs the submission. While memory
 * moves, a piece can be evicted as soon as its last use has completed. Gaps wait for the whole device instead. Measured
 * (GPT, 1.5, `fast`): 262 ms a step with, 300 without.
 */
static bool wants_proofs(const struct engine *engine)
{
	bool moves = clock_now() - engine->loop.copied < LULL_NS;

	return !engine->exact && engine->moves.out.n < MOVES_AT_ONCE &&
	       (moves || atomic_load(&engine->channel.n_waiters) || atomic_load(&engine->new_blocks.wanted));
}

static bool mover_work(struct engine *engine)
{
	bool any = intake_read(engine);

	/* Must come before anything changes. */
	fault_report_note(engine);
	schedule_progress(engine);
	get_ready(engine);
	mover_govern(engine);
	uint64_t now = clock_now();
	if (migrate_in_flight(engine))
		engine->loop.copied = now;
	engine->loop.quiet_ns = now - engine->loop.copied;
	move_stats_busy(engine);
	any |= migrate_finish(engine);
	if (engine->exact)
		quiesce_run(engine);
	schedule_for_waiters(engine);
	if (!engine->exact) {
		schedule_for_new(engine);
		schedule_leave(engine, false);
	}
	recall_run(engine);
	unbacked_serve(engine);
	schedule_ahead(engine);
	any |= deferred_map_serve(engine);
	if (!any && deferred_map_is_due(engine))
		any = deferred_map_map(engine);
	atomic_store_explicit(&engine->channel.hungry, wants_proofs(engine), memory_order_relaxed);
	atomic_store_explicit(&engine->new_blocks.makes_room, plan_knows(engine->plan) && schedule_may_move(engine),
			      memory_order_relaxed);
	return any;
}

/*
 * While there is nothing else to do, host memory is pinned for the next evictions: as much as a gap moves, or as may be
 * free and in flight, but no more than may be fetched in exchange. Pinning 128 MiB takes 25 to 50 ms, for which a
 * submission may have to wait; it would wait longer if the memory were pinned when it is needed.
 *
 * If nothing may move, nothing is pinned: nothing would be evicted, and each launch that names memory on the host asks
 * this thread and would wait for it. Measured (H200): 27 such waits of up to 19 ms each in the first step of a GPT.
 *
 * The reserve changes when something moves or, which is checked more rarely, when memory is allocated; if nothing is
 * submitted, nothing will be evicted. If the driver has refused to pin, the next attempt comes later.
 */
#define RESERVE_NS      20000000
#define RESERVE_LOOK_NS 1000000000
#define REFUSED_NS      10000000000

static bool pin_reserve(struct engine *engine)
{
	uint64_t now = clock_now(), moved = engine->stats.moved_in + engine->stats.moved_out;
	uint64_t most = schedule_reserve_bytes(engine), away = plan_units(engine->plan, PLAN_HOST) * HEAP_UNIT;

	if (now < engine->reserve.after ||
	    (moved == engine->reserve.moved && now - engine->reserve.since < RESERVE_LOOK_NS) ||
	    engine->intake.n_submissions == engine->reserve.heard || !schedule_may_move(engine))
		return false;
	enum sw_status status = heap_fill_host_reserve(engine->heap, most < away ? most : away);
	if (status == SW_OK)
		return true;
	engine->reserve.after = now + (status == SW_INVALID ? RESERVE_NS : REFUSED_NS);
	engine->reserve.since = now;
	engine->reserve.moved = moved;
	engine->reserve.heard = engine->intake.n_submissions;
	return false;
}

/*
 * In a turn of the process: host memory is pinned for what leaves at its end. The first leave of 14.3 GiB took 3.1 to
 * 3.8 s without, later ones 0.35 (H200). One chunk at a time: an order waits no longer than that takes.
 */
#define LEAVING_NS 100000000

static bool pin_what_leaves(struct engine *engine)
{
	uint64_t bytes = atomic_load_explicit(&engine->reserve.leaving, memory_order_relaxed), now = clock_now();
	enum sw_status status = SW_INVALID;

	if (bytes && !quiesce_is_held(engine) && now >= engine->reserve.leaving_after) {
		atomic_store_explicit(&engine->reserve.pinned, now, memory_order_relaxed);
		status = heap_fill_host_ahead(engine->heap, bytes);
		if (status != SW_OK)
			engine->reserve.leaving_after = now + (status == SW_INVALID ? LEAVING_NS : REFUSED_NS);
	}
	if (status != SW_OK)
		atomic_store_explicit(&engine->reserve.pinned, 0, memory_order_relaxed);
	return status == SW_OK;
}

/* Relaxes the capture mode of this thread: else each event query would invalidate captures of other threads. */
static void mover_relax(struct engine *engine)
{
	unsigned tries = 0;

	while (capture_relax() == CAPTURE_MODE_KEPT)
		if (!engine_tries(&tries)) {
			engine_die(engine, "its thread would disturb captures");
			return;
		}
}

/* In `exact`, pieces move for submissions that wait, which wake this thread. */
uint64_t mover_idle_ns(const struct engine *engine)
{
	bool quiet = clock_now() - engine->intake.read_at > QUIET_NS;

	return !engine->exact && schedule_may_move(engine) && !quiet ? LOOK_NS : REST_NS;
}

static void *mover_run(void *argument)
{
	struct engine *engine = argument;
	unsigned tries = 0;

	enter_depth = 1;
	prctl(PR_SET_NAME, "spillway-mover");
	prctl(PR_SET_TIMERSLACK, 1000);
	mover_relax(engine);
	count_alive(engine, true);
	while (!take_order(engine) && !engine_is_dead(engine)) {
		unsigned n_waiters = atomic_load(&engine->channel.n_waiters);

		if (__builtin_expect(atomic_load(&engine->channel.check.stage) == CHECK_ASKED, 0))
			check_run(engine, mover_drain(engine));
		if (mover_work(engine)) {
			tries = 0;
			continue;
		}
		if (migrate_in_flight(engine) || atomic_load(&engine->channel.n_waiters) ||
		    atomic_load(&engine->new_blocks.wanted)) {
			mover_nap(engine, link_nap_ns(engine, tries++), n_waiters);
		} else if (!pin_what_leaves(engine) && !pin_reserve(engine)) {
			mover_nap(engine, mover_idle_ns(engine), 0);
			tries = 0;
		}
	}
	mover_end(engine);
	return NULL;
}

/* ---- creation ---- */

/* An engine lives as long as the process, because submissions may look at it at any time. */
struct engine *mover_new(struct device *device, struct heap *heap, bool exact)
{
	struct engine *engine = aligned_alloc(_Alignof(struct engine), sizeof(*engine));

	if (!engine)
		return NULL;
	memset(engine, 0, sizeof(*engine));
	engine->device = device;
	engine->heap = heap;
	engine->arena = heap_arena(heap);
	engine->exact = exact;
	engine->health.on_lost = fault_report_tell;
	engine->by_piece.at = lazy_memory_new(engine->arena->n_units * sizeof(*engine->by_piece.at));
	engine->plan = plan_new(mode_way(heap, exact));
	engine->intake.extents = tensor_extents_new();
	engine->quiesce.patience = 50000000;
	engine->stats.why_out = TRACE_WHY_ROOM;
	move_governor_init(&engine->governor);
	schedule_init(engine);
	engine->contention.waits[CHUNK_HOST][PTE_CONTENTION_OUT] = true; /* on most machines, until it is measured */
	bool has_channel = channel_init(&engine->channel, engine->arena, device->ordinal);
	if (!exact)
		engine->inflight = inflight_new(engine->arena, &engine->channel.log);
	if (has_channel && (exact || engine->inflight) && engine->by_piece.at && engine->plan && engine->intake.extents)
		return engine;
	inflight_free(engine->inflight);
	tensor_extents_free(engine->intake.extents);
	plan_free(engine->plan);
	free(engine);
	return NULL;
}

void mover_keep(struct engine *engine, enum policy_contents contents, bool all_now)
{
	if (contents == POLICY_CONTENTS_ALL || !engine->arena->lifetimes)
		return;
	engine->lifetimes = engine->arena->lifetimes;
	engine->poisons = contents == POLICY_CONTENTS_POISON;
	lifetimes_take_over(engine->lifetimes, &engine->channel.log.head);
	if (!engine->exact)
		heap_follow_reports(engine->heap, 0, UINT32_MAX);
	alive_begin(engine, all_now);
}

bool mover_start(struct engine *engine)
{
	engine->loop.has_thread = thread_start(mover_run, engine, ENGINE_STACK, false, NULL) == 0;
	return engine->loop.has_thread;
}
