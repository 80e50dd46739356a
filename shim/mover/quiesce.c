// SPDX-License-Identifier: Apache-2.0
/*
 * Quiescing: migrating while nothing runs on the device. A gap: the gate is closed to submissions, those inside the
 * driver return, and everything submitted to the device completes; then pieces are copied both ways at once and
 * remapped, and the gate opens. No access, foreseen or not, can meet a piece in transit, so an error here can cost
 * speed only.
 *
 * Work of other devices goes on as long as it cannot touch the heap: those devices have no access to it, and get none
 * before the gap ends (device.h), and nothing submitted to them has shown that it may touch it (completion_touches),
 * such as a copy that names memory of two devices, or a graph, whose nodes may be on any device. Otherwise all devices
 * are waited for.
 *
 * The wait for the device is bounded: if it makes no progress for quiesce.patience, it may be held by what a thread at
 * the gate would do next. Then the gate opens, waiting submissions proceed with memory where it is, and the next
 * attempt comes later each time.
 */
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/mover/mover.h"

/*
 * ns: the pause after an attempt that was given up, which doubles each time, and the longest patience with the device.
 */
#define QUIESCE_BACKOFF_LEAST 10000000u
#define QUIESCE_BACKOFF_MOST  5000000000u
#define PATIENCE_MOST         400000000u

static void open_locked(void)
{
	if (mover_state.quiescing.n_held)
		gate_undrain();
	else
		gate_open();
}

/* ns: interval of polling what has to end before a gap. */
#define POLL_NS 15000

void quiesce_nap(const struct engine *engine)
{
	clock_sleep(link_nap_ns(engine, 0));
}

/* ---- closing and opening ---- */

/* Traces a gap: for how long nothing ran; or, if the attempt was given up, how long it took. */
static void tell_gap(const struct engine *engine, bool given_up)
{
	trace_event_at(gap, engine->quiesce.began, (uint64_t)engine->device->ordinal,
		       clock_now() - engine->quiesce.began, engine->stats.moved_in - engine->quiesce.moved_in,
		       engine->stats.moved_out - engine->quiesce.moved_out, given_up);
}

/*
 * Returns whether to go on waiting for a gap. Other devices go on submitting; completion of what they submitted after
 * the gate began to close is no progress.
 */
static bool goes_on_waiting(struct engine *engine, uint64_t devices, uint64_t begin)
{
	uint64_t progress = engine->progress.last, before = engine->quiesce.done;
	CUresult unused;

	schedule_progress(engine);
	engine->quiesce.done = devices == CONTEXT_ALL_DEVICES && peer_is_any()
				   ? completion_poll(0, devices, false, &unused)
				   : engine->progress.done;
	engine->progress.last =
	    engine->quiesce.done > before && before < engine->quiesce.newest ? clock_now() : progress;
	uint64_t last = begin > engine->progress.last ? begin : engine->progress.last;
	return clock_now() - last <= engine->quiesce.patience && !engine_is_dead(engine);
}

/*
 * Waits until everything submitted to these devices has completed, by two proofs: every context that is known is idle;
 * and of what was counted, nothing is in flight, also not in a context that is missing in the table. Returns false if
 * the patience ends before, or if it cannot be determined.
 */
static bool wait_until_idle(struct engine *engine, uint64_t devices, uint64_t begin)
{
	uint64_t newest = completion_newest();
	struct context_idle idle;

	if (!context_idle_ask(devices, &idle))
		return false;
	for (;;) {
		enum context_idleness state = context_idle_look(&idle);

		if (state == CONTEXT_IDLE && completion_is_idle(engine->device->ordinal, devices, &idle, newest))
			return true;
		if (!goes_on_waiting(engine, devices, begin) || state == CONTEXT_UNKNOWN) {
			context_idle_forget(&idle);
			return false;
		}
		clock_sleep(POLL_NS);
	}
}

/*
 * Waits until no submission that may concern these devices is inside the driver; the gate lets none in. If an engine is
 * held, the gate is closed to the whole process.
 */
static bool wait_until_quiet(struct engine *engine, uint64_t devices, uint64_t begin)
{
	gate_for(mover_state.quiescing.n_held ? CONTEXT_ALL_DEVICES : devices);
	while (!submission_is_quiet(devices)) {
		if (!goes_on_waiting(engine, devices, begin))
			return false;
		clock_sleep(POLL_NS);
	}
	return true;
}

/*
 * Returns the devices whose work may touch the heap. These are all devices for a gap of the whole process; for gaps in
 * `fast`, which are too rare for a closer look; until submissions from before tracking are known to have completed,
 * because they did not show what they touch; and while memory of another device moves beside what runs, as graphs show
 * less then (owners_of(), admit.c). That mode ends in a gap of the whole process, so what was submitted in it is done.
 */
static uint64_t who_may_touch(const struct engine *engine, bool whole)
{
	return !whole && engine->exact && engine->tracking.complete && !submission_is_beside()
		   ? peer_may_reach(engine->device->ordinal)
		   : CONTEXT_ALL_DEVICES;
}

/*
 * Waits until nothing that runs can touch the heap, or get access before peer_unshut(). Returns false if it gave up.
 * The work of other devices is examined after all known to touch the heap are quiet: then no submission that concerns
 * the heap is inside the driver.
 */
static bool wait_until_untouched(struct engine *engine, bool whole, uint64_t begin)
{
	CUdevice ordinal = engine->device->ordinal;

	for (;;) {
		uint64_t devices = who_may_touch(engine, whole);

		if (!wait_until_quiet(engine, devices, begin))
			return false;
		if (devices != CONTEXT_ALL_DEVICES && completion_touches(ordinal, devices)) {
			devices = CONTEXT_ALL_DEVICES;
			if (!wait_until_quiet(engine, devices, begin))
				return false;
		}
		if (!wait_until_idle(engine, devices, begin))
			return false;
		if (peer_shut(ordinal, devices))
			return true;
	}
}

bool quiesce_close(struct engine *engine, bool whole)
{
	uint64_t begin = engine->quiesce.began = clock_now();

	engine->quiesce.moved_in = engine->stats.moved_in;
	engine->quiesce.moved_out = engine->stats.moved_out;

	lock_take(&mover_state.quiescing.lock);
	gate_for(mover_state.quiescing.n_held ? CONTEXT_ALL_DEVICES : who_may_touch(engine, whole));
	gate_drain();
	engine->quiesce.newest = completion_newest();
	engine->quiesce.done = 0;
	if (!wait_until_untouched(engine, whole, begin))
		goto give_up;
	/* The gate first, `ending` second; spill_end() has it the other way round, so that one sees the other. */
	if (gate_close() && !engine_is_over(engine)) {
		/*
		 * A gap by order may come before tracking is complete; what was discarded may have been written since
		 * (mover.c).
		 */
		if (!engine->tracking.complete)
			atomic_store(&engine->channel.everything.discarded, 0);
		engine->link.in_gap = true;
		engine->quiesce.began = clock_now();
		engine->quiesce.backoff = 0;
		engine->progress.last = clock_now();
		return true;
	}
	peer_unshut(engine->device->ordinal);
give_up:
	open_locked();
	lock_drop(&mover_state.quiescing.lock);
	stats_add(STAT_gaps_given_up, 1);
	tell_gap(engine, true);
	engine->quiesce.backoff = engine->quiesce.backoff ? 2 * engine->quiesce.backoff : QUIESCE_BACKOFF_LEAST;
	if (engine->quiesce.backoff > QUIESCE_BACKOFF_MOST)
		engine->quiesce.backoff = QUIESCE_BACKOFF_MOST;
	engine->quiesce.not_before = clock_now() + engine->quiesce.backoff;
	/* The device may just be slow: some programs run one kernel for a tenth of a second. */
	if (engine->quiesce.patience < PATIENCE_MOST)
		engine->quiesce.patience *= 2;
	return false;
}

void quiesce_open(struct engine *engine)
{
	engine->link.in_gap = false;
	/* If the engine died, what was in flight stays where it was; this must come before anything may touch it. */
	if (engine_is_dead(engine)) {
		migrate_abandon(engine);
		deferred_map_all(engine);
	}
	peer_unshut(engine->device->ordinal);
	open_locked();
	lock_drop(&mover_state.quiescing.lock);
	stats_add(STAT_gaps, 1);
	stats_add(STAT_gap_us, (clock_now() - engine->quiesce.began) / 1000);
	stats_time(HISTOGRAM_gap_ns, clock_now() - engine->quiesce.began);
	tell_gap(engine, false);
	engine->progress.last = clock_now();
}

static void show(enum stats_process_state state)
{
	stats_set_state(state);
	trace_event(state, state == STATS_SUSPENDED);
}

void quiesce_keep_closed(struct engine *engine)
{
	tell_gap(engine, false);
	engine->link.in_gap = false;
	peer_unshut(engine->device->ordinal);
	gate_for(CONTEXT_ALL_DEVICES);
	if (!mover_state.quiescing.n_held++)
		show(STATS_SUSPENDED);
	lock_drop(&mover_state.quiescing.lock);
}

enum sw_status quiesce_resume(struct engine *engine, bool by_force)
{
	if (!quiesce_is_held(engine))
		return SW_OK;
	deferred_map_all(engine);
	if (!unbacked_give(engine) && !by_force)
		return SW_NO_MEMORY;
	lock_take(&mover_state.quiescing.lock);
	atomic_store(&engine->quiesce.reasons, 0);
	atomic_store(&engine->quiesce.residence, RESIDENCE_RUNS);
	heap_lend(engine->heap, true);
	if (!--mover_state.quiescing.n_held && !atomic_load(&mover_state.spill.ending))
		show(STATS_RUNNING);
	open_locked();
	lock_drop(&mover_state.quiescing.lock);
	return SW_OK;
}

/* ---- what to move ---- */

/*
 * Marks each waiting submission as having had its gap. may: also wishes for the pieces it needs. Locking: takes SPILL.
 */
static void hear_waiters(struct engine *engine, bool may)
{
	struct scheduler_named named;

	lock_take(&engine->channel.lock);
	engine->by_piece.round++;
	for (struct waiter *waiter = engine->channel.waiters; waiter; waiter = waiter->next) {
		if (may) {
			intake_waiter(engine, waiter, &named);
			if (!waiter->answered && !waiter->had_gap)
				scheduler_wish_named(&engine->scheduler, &named);
		}
		waiter->had_gap = true;
	}
	lock_drop(&engine->channel.lock);
}

/* ---- moving ---- */

void quiesce_finish(struct engine *engine)
{
	deferred_map_give_up_early(engine);
	while (migrate_in_flight(engine) && !engine_is_dead(engine))
		if (!migrate_finish(engine) && !deferred_map_map(engine))
			quiesce_nap(engine);
	deferred_map_all(engine);
	scheduler_gap_end(&engine->scheduler);
}

/* Returns whether it is worth stopping the GPU for what is wished for. */
static bool is_worth_it(struct engine *engine)
{
	const struct wishes *wishes = &engine->scheduler.wishes;

	return wishes->n && (scheduler_gap_pays(&engine->scheduler) ||
			     engine_recall_lent(engine, engine->arena->states[wishes->at[0].piece].units_of_piece));
}

void quiesce_fetch_wishes(struct engine *engine)
{
	struct scheduler *scheduler = &engine->scheduler;
	bool again = true; /* a copy has ended, or none is in flight: more can begin */
	uint32_t piece;

	while (scheduler_has_wishes(scheduler) && !engine_is_over(engine)) {
		if (again) {
			schedule_leave(engine, true);
			scheduler_gap_round(scheduler);
		}
		again = migrate_finish(engine);
		if (!again && !deferred_map_map(engine) &&
		    !(scheduler_gap_early(scheduler, &piece) && deferred_map_unmap_early(engine, piece)))
			quiesce_nap(engine);
		again |= !migrate_in_flight(engine);
	}
	quiesce_finish(engine);
}

void quiesce_run(struct engine *engine)
{
	if (!atomic_load(&engine->channel.n_waiters))
		return;
	bool may = schedule_may_move(engine) && clock_now() >= engine->quiesce.not_before && link_open(engine);
	hear_waiters(engine, may);
	if (!may)
		return;
	scheduler_wish_ahead(&engine->scheduler);
	engine->moves.waits_keep = WAITS_KEEP_PIECES;
	if (is_worth_it(engine) && quiesce_close(engine, false)) {
		/* Each piece that moves is looked for in what was submitted and not read (alive.c). */
		intake_read(engine);
		quiesce_fetch_wishes(engine);
		quiesce_open(engine);
	}
	engine->moves.waits_keep = WAITS_KEEP_BLOCKS;
	scheduler_forget_wishes(&engine->scheduler);
}
