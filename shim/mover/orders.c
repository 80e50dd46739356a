// SPDX-License-Identifier: Apache-2.0
/*
 * Gaps by order of another thread (engine_ask): memory leaves, because the process is suspended, for a turn, or to make
 * room, and comes back; given units are fetched; the mode changes.
 */
#include "shim/context/context.h"
#include "shim/heap/block_unmapped.h"
#include "shim/mover/mover.h"

/*
 * Returns whether the piece should leave its place: not if it is on the host, on a peer that goes on lending, or gone.
 */
static bool should_leave(struct engine *engine, uint32_t piece)
{
	enum chunk_place place = piece_place(engine, piece);

	return place == CHUNK_DEVICE || (place == CHUNK_PEER && quiesce_is_held(engine));
}

static bool is_dead(struct engine *engine, uint32_t piece)
{
	enum chunk_place place;
	uint32_t units, block;

	return heap_piece(engine->heap, piece, &units, &place, &block) && alive_is_none(engine, block, piece);
}

/* Logs what the party that lent the GPU does not get back. */
static void say_what_stays(struct engine *engine)
{
	uint64_t staying = heap_pinned_device(engine->heap);
	char bytes[32];

	if (staying)
		log_once(
		    "suspended, but %s of device memory stay there: rules say movable: no, or others know where it is",
		    log_bytes(bytes, sizeof(bytes), staying));
}

/* Returns why a piece did not leave, or SW_OK if its staying prevents nothing. */
static enum sw_status why_not(struct engine *engine, uint32_t piece, enum migrate_answer answer)
{
	uint64_t bytes = piece_bytes(engine, piece);
	bool pinned = atomic_load(&engine->arena->states[piece].where) == BLOCK_STATE_PINNED;

	/* A piece that was freed meanwhile, or is pinned, does not prevent the suspension. */
	if (answer == MIGRATE_BEGUN || !should_leave(engine, piece) || (answer == MIGRATE_FAILED && pinned))
		return SW_OK;
	if (answer != MIGRATE_NO_ROOM)
		return SW_DRIVER;
	return heap_free_bytes(engine->heap, CHUNK_HOST) < bytes ? SW_NO_MEMORY : SW_NO_HOST_MEMORY;
}

/* What leaves in a suspension without a copy, one step at a time. */
struct beside {
	struct piece_list dead; /* nothing was alive in them when they were looked at */
	unsigned next;
};

/* Moves the dead pieces that should leave out of the list. Returns their bytes. */
static uint64_t set_dead_apart(struct engine *engine, struct piece_list *list, struct beside *beside)
{
	uint64_t bytes = 0;
	unsigned kept = 0;

	for (unsigned i = 0; i < list->n; i++) {
		uint32_t piece = list->at[i];

		if (should_leave(engine, piece) && is_dead(engine, piece) && piece_list_add(&beside->dead, piece))
			bytes += piece_bytes(engine, piece);
		else
			list->at[kept++] = piece;
	}
	list->n = kept;
	return bytes;
}

/*
 * In the gap of a suspension, while copies run: takes the memory away from one dead piece, or gives one free chunk back
 * to the driver. Each takes 20 to 40 us of this thread (docs/facts.md, Mapping), which would be added to the time of
 * the copies otherwise. Measured (H200, GPT of 14.3 GiB of which half is dead): 148 ms in `exact` and 149 in `fast`;
 * 165 and 180 when all of this came after the copies. Returns false if there is nothing to do.
 */
static bool leave_beside(struct engine *engine, struct beside *beside)
{
	if (beside->next < beside->dead.n) {
		unbacked_take(engine, beside->dead.at[beside->next++]);
		return true;
	}
	uint64_t idle = heap_idle(engine->heap, CHUNK_DEVICE);
	return idle && heap_trim(engine->heap, idle - 1, heap_idle(engine->heap, CHUNK_HOST)) == 0 &&
	       heap_idle(engine->heap, CHUNK_DEVICE) < idle;
}

/* Ends copies that are done; else does what can be done beside them; else waits a moment. beside: NULL: maps. */
static void wait_for_copies(struct engine *engine, struct beside *beside)
{
	if (!migrate_finish(engine) && !(beside ? leave_beside(engine, beside) : deferred_map_map(engine)))
		quiesce_nap(engine);
}

/*
 * `bytes` are to be copied. Pinning host memory takes ten times as long as copying: if less than half of it is pinned,
 * what is dead leaves before the first copy. The host budget must have room for all, as what is dead takes a part of
 * it.
 */
static void leave_before(struct engine *engine, struct beside *beside, uint64_t bytes)
{
	if (heap_idle(engine->heap, CHUNK_HOST) < bytes / 2 &&
	    heap_free_bytes(engine->heap, CHUNK_HOST) >= heap_made_device(engine->heap))
		while (!engine_is_over(engine) && leave_beside(engine, beside))
			;
}

/*
 * Evicts pieces until `bytes` are free; also pieces on peers, if they no longer lend (heap_lend). Those go to the host
 * directly, because the device may have no room for them. If the process is about to be suspended, they are not mapped
 * there: the party that waits for the device need not wait for that.
 * dead_beside: pieces in which nothing is alive leave without a copy, before the others or while they are copied, and
 * count first.
 * Returns the obstacle: SW_NO_MEMORY for the host budget, SW_NO_HOST_MEMORY for memory of the system or of the library,
 * SW_DRIVER for the driver, SW_BUSY for the end of the process.
 */
static enum sw_status all_out(struct engine *engine, uint64_t bytes, bool dead_beside)
{
	struct piece_list list = piece_list_all(engine, true);
	bool maps = !quiesce_is_held(engine);
	enum sw_status status = list.at ? SW_OK : SW_NO_HOST_MEMORY;
	struct beside beside = {0};
	uint64_t begun = dead_beside ? set_dead_apart(engine, &list, &beside) : 0;
	/* Held before, it stays held on failure, while others wait. A failed suspension must have given up little. */
	bool early = !maps && atomic_load(&engine->quiesce.reasons);
	uint64_t stays = heap_pinned_device(engine->heap) + heap_idle(engine->heap, CHUNK_DEVICE);

	if (early)
		leave_before(engine, &beside,
			     beyond(smaller(bytes, beyond(heap_made_device(engine->heap), stays)), begun));
	for (unsigned i = 0; i < list.n && begun < bytes && !engine_is_over(engine);) {
		if (!should_leave(engine, list.at[i])) {
			i++;
			continue;
		}
		/* A thread waits to pin a piece that is mapped nowhere, or has no memory. The rest may take seconds. */
		if (!maps && heap_is_awaited(engine->heap)) {
			deferred_map_awaited(engine);
			unbacked_serve(engine);
		}
		if (engine->moves.out.n < MOVES_AT_ONCE) {
			uint64_t size = piece_bytes(engine, list.at[i]);
			enum migrate_answer answer = migrate_begin(engine, list.at[i], CHUNK_HOST, true);

			/* A second attempt, because the driver may refuse temporarily. */
			if (answer == MIGRATE_FAILED)
				answer = migrate_begin(engine, list.at[i], CHUNK_HOST, true);
			enum sw_status one = why_not(engine, list.at[i++], answer);
			status = one == SW_OK ? status : one;
			begun += answer == MIGRATE_BEGUN ? size : 0;
			if (answer == MIGRATE_NO_ROOM)
				break;
			/* While memory is pinned for each, no copy is waited for: what has left is given back here. */
			if (early && migrate_finish(engine))
				leave_beside(engine, &beside);
			continue;
		}
		wait_for_copies(engine, maps ? NULL : &beside);
	}
	while (!maps && migrate_in_flight(engine) && !engine_is_dead(engine))
		wait_for_copies(engine, &beside);
	while (!maps && status == SW_OK && !engine_is_over(engine) && leave_beside(engine, &beside))
		;
	if (maps)
		quiesce_finish(engine);
	free(beside.dead.at);
	free(list.at);
	if (engine_is_dead(engine))
		return SW_DRIVER;
	return status == SW_OK && engine_is_over(engine) ? SW_BUSY : status;
}

/* Returns the bytes of pieces that should have left: the copy is made, but the driver does not unmap the original. */
static uint64_t left_behind(struct engine *engine)
{
	struct piece_list list = piece_list_all(engine, true);
	uint64_t bytes = 0;

	for (unsigned i = 0; i < list.n; i++) {
		const struct unit_state *piece = &engine->arena->states[list.at[i]];

		if (should_leave(engine, list.at[i]) && atomic_load(&piece->where) != BLOCK_STATE_PINNED)
			bytes += (uint64_t)piece->units_of_piece * HEAP_UNIT;
	}
	free(list.at);
	return bytes;
}

/*
 * Gives the memory back to the driver. Returns SW_DRIVER if some of it stays, because the party that lent the GPU must
 * not take it for free.
 */
static enum sw_status give_to_driver(struct engine *engine)
{
	uint64_t held = heap_trim(engine->heap, 0, heap_idle(engine->heap, CHUNK_HOST)) + left_behind(engine);
	char bytes[32];

	if (held)
		log_line("not suspended: the driver does not take back %s of device memory",
			 log_bytes(bytes, sizeof(bytes), held));
	return held ? SW_DRIVER : SW_OK;
}

/*
 * Reads what was submitted and reported before the gap: what is dead is copied if it is named by a submission that was
 * not read. Other threads may go on reporting, and a record may stay incomplete.
 */
#define READS 64

/* In a gap: reads what was submitted and reported before it. */
static void quiesce_read_all(struct engine *engine)
{
	alive_hear(engine);
	for (unsigned i = 0; i < READS && intake_read(engine); i++)
		;
}

/*
 * Rounds, because threads go on allocating. New blocks start on the host by now (quiesce.residence); an allocation that
 * was in progress before usually appears by the second round.
 */
#define TURNS 3

/* Evicts everything. */
static enum sw_status empty(struct engine *engine)
{
	enum sw_status status = SW_OK;

	for (unsigned turn = 0; turn < TURNS && status == SW_OK; turn++)
		status = all_out(engine, UINT64_MAX, !engine->poisons);
	/* What could not leave without memory of the host leaves as everything else. */
	if (status == SW_OK)
		status = all_out(engine, UINT64_MAX, false);
	engine->stats.why_out = TRACE_WHY_ROOM;
	return status == SW_OK ? give_to_driver(engine) : status;
}

/*
 * Evicts until the heap holds at most `keep` bytes of the device: free memory first, then what is dead, which takes no
 * copy. What does not leave stays, and is the heap's as before.
 */
static enum sw_status shrink(struct engine *engine, uint64_t keep)
{
	enum sw_status status = SW_OK;

	for (unsigned turn = 0; turn < TURNS && status == SW_OK; turn++) {
		heap_trim(engine->heap, 0, heap_idle(engine->heap, CHUNK_HOST));
		uint64_t made = heap_made_device(engine->heap);
		if (made <= keep)
			break;
		status = all_out(engine, made - keep, !engine->poisons);
	}
	engine->stats.why_out = TRACE_WHY_ROOM;
	heap_trim(engine->heap, 0, heap_idle(engine->heap, CHUNK_HOST));
	return status;
}

/* It is held: nothing runs, and no submission passes the gate. */
static enum sw_status leave_more(struct engine *engine, uint64_t keep)
{
	uint64_t before = heap_made_device(engine->heap);
	enum sw_status status = SW_OK;

	if (before > keep && before - keep > heap_pinned_device(engine->heap)) {
		if (!link_open(engine))
			return SW_BUSY;
		engine->link.in_gap = true;
		engine->stats.why_out = TRACE_WHY_SUSPEND;
		status = keep ? shrink(engine, keep) : empty(engine);
		engine->link.in_gap = false;
	}
	uint64_t after = heap_made_device(engine->heap);
	engine->quiesce.left_bytes += before > after ? before - after : 0;
	return status;
}

/* It runs. stays: once the gap has begun it is held, also with what could not leave; unless the engine has died. */
static enum sw_status leave(struct engine *engine, uint64_t keep, bool stays)
{
	uint64_t before = heap_made_device(engine->heap);

	if (capture_is_open() || !link_open(engine) || !quiesce_close(engine, true))
		return SW_BUSY;
	quiesce_read_all(engine);
	engine->stats.why_out = TRACE_WHY_SUSPEND;
	heap_lend(engine->heap, false);
	atomic_store(&engine->quiesce.residence, RESIDENCE_STOPPED);
	enum sw_status status = keep ? shrink(engine, keep) : empty(engine);
	if (status != SW_OK)
		quiesce_finish(engine);
	stays &= !engine_is_dead(engine);
	if (status != SW_OK && !stays && unbacked_give(engine)) {
		/* Evicted memory is fetched again as it is used. */
		atomic_store(&engine->quiesce.residence, RESIDENCE_RUNS);
		heap_lend(engine->heap, true);
		quiesce_open(engine);
		return status;
	}
	/* Others have taken what was given back: the gate must not open before there is memory again. */
	if (status != SW_OK && !stays)
		log_line("what was given back is not there any more; work waits until it can be had (spillway resume)");
	/* Memory that threads freed meanwhile has been given back with the rest. */
	uint64_t after = heap_made_device(engine->heap);
	engine->quiesce.left_bytes = before > after ? before - after : 0;
	if (!keep && status == SW_OK)
		say_what_stays(engine);
	quiesce_keep_closed(engine);
	return status;
}

/* ns: a process that does not end its turn lets others wait, and is asked again. */
#define LEAVE_PATIENCE 200000000

static enum sw_status hold(struct engine *engine, const struct order *order)
{
	/* An attempt that is given up doubles it; other gaps go by what they have seen themselves. */
	uint64_t before = engine->quiesce.patience;
	uint64_t keep = order->to == RESIDENCE_STOPPED ? UINT64_MAX : order->bytes;
	bool turn = order->reason == RESIDENCE_TURN;

	if (turn)
		engine->quiesce.patience = LEAVE_PATIENCE;
	enum sw_status status = quiesce_is_held(engine) ? leave_more(engine, keep) : leave(engine, keep, turn);
	if (turn)
		engine->quiesce.patience = before;
	if (quiesce_is_held(engine) && order->to == RESIDENCE_AWAY && (turn || status == SW_OK))
		atomic_store(&engine->quiesce.residence, RESIDENCE_AWAY);
	unsigned others = atomic_load(&engine->quiesce.reasons) & ~(unsigned)order->reason;
	/* A leave for the user that failed holds nothing. But a closed gate is held by somebody. */
	bool holds = quiesce_is_held(engine) && (turn || status == SW_OK || !others);
	atomic_store(&engine->quiesce.reasons, others | (holds ? order->reason : 0u));
	return status;
}

/* Returns whether the piece left the device, and the program does not want it on the host. */
static bool should_return(struct engine *engine, uint32_t piece)
{
	if (piece_place(engine, piece) != CHUNK_HOST ||
	    atomic_load(&engine->arena->states[piece].where) == BLOCK_STATE_PINNED)
		return false;
	const struct block_state *state = piece_block_state(engine, piece);
	return state && !piece_wants_host(engine, state);
}

/* ns: looks for room while none of it is taken by a copy in flight */
#define ROOM_LOOK_NS 100000

/* While copies run, or there is no room: gives memory to one piece that has none, or waits a moment. */
static void return_beside(struct engine *engine)
{
	if (migrate_finish(engine))
		return;
	/* A thread waits for a piece that is mapped nowhere, to pin it. */
	if (heap_is_awaited(engine->heap) && deferred_map_map(engine))
		return;
	if (unbacked_give_one(engine))
		return;
	/* A thread may wait for a piece without memory, or has freed one. */
	unbacked_serve(engine);
	if (engine->moves.in.n)
		quiesce_nap(engine);
	else
		clock_sleep(ROOM_LOOK_NS);
}

/*
 * Fetches what has left, until the budget is full and will not grow. It need not be mapped on the host before, and
 * nothing runs. A piece that does not move stays where it is, and is fetched as it is used.
 */
static void all_in(struct engine *engine)
{
	/* With those that have left and are mapped nowhere. */
	struct piece_list list = piece_list_all(engine, false);
	bool full = false;

	engine->link.in_gap = true;
	for (unsigned i = 0; (i < list.n || engine->unbacked.n) && !full;) {
		int room = atomic_load(&engine->orders.room);
		bool comes = room == ORDER_ROOM_COMES;

		if (room == ORDER_ROOM_LOST || engine_is_over(engine) || (i == list.n && !comes))
			break;
		if (i < list.n && !should_return(engine, list.at[i])) {
			i++;
			continue;
		}
		uint64_t bytes = i < list.n ? piece_bytes(engine, list.at[i]) : UINT64_MAX;
		if (i == list.n || engine->moves.in.n >= MOVES_AT_ONCE ||
		    (comes && heap_free_bytes(engine->heap, CHUNK_DEVICE) < bytes)) {
			return_beside(engine);
			continue;
		}
		if (migrate_begin(engine, list.at[i], CHUNK_DEVICE, true) != MIGRATE_NO_ROOM)
			i++;
		else if (comes)
			return_beside(engine);
		else
			full = true;
	}
	while (engine->moves.in.n && !engine_is_dead(engine))
		if (!migrate_finish(engine))
			quiesce_nap(engine);
	engine->link.in_gap = false;
	free(list.at);
}

static enum sw_status fetch(struct engine *engine)
{
	/*
	 * Where no more room comes, the pieces without memory have what there is: the others have their contents on the
	 * host, where they can be used.
	 */
	if (atomic_load(&engine->orders.room) != ORDER_ROOM_COMES && !unbacked_give(engine))
		return SW_NO_MEMORY;
	if (link_open(engine))
		all_in(engine);
	if (atomic_load(&engine->orders.room) == ORDER_ROOM_LOST)
		return SW_BUSY;
	/* What was waited for has not come. */
	if (!unbacked_give(engine))
		return SW_NO_MEMORY;
	atomic_store(&engine->quiesce.residence, RESIDENCE_BACK);
	return SW_OK;
}

enum sw_status quiesce_reside(struct engine *engine, const struct order *order, uint64_t *bytes)
{
	struct quiesce *quiesce = &engine->quiesce;
	bool user = order->reason == RESIDENCE_USER,
	     leaves = order->to == RESIDENCE_STOPPED || order->to == RESIDENCE_AWAY;
	enum sw_status status = leaves ? hold(engine, order) : SW_OK;
	unsigned others = atomic_load(&quiesce->reasons) & ~(unsigned)order->reason;

	*bytes = quiesce_is_held(engine) ? quiesce->left_bytes : 0;
	if (leaves || !quiesce_is_held(engine))
		return status;
	/* It goes on when it is its turn. What has left need not be mapped where it is now. */
	if (user && others)
		atomic_store(&quiesce->reasons, others);
	if (others)
		return user ? SW_OK : SW_BUSY;
	/* Earlier measurements of whether moving pays are void. */
	trial_init(&engine->governor.trial);
	if (!user)
		status = fetch(engine);
	return status == SW_OK && order->to == RESIDENCE_RUNS ? quiesce_resume(engine, false) : status;
}

enum sw_status quiesce_make_room(struct engine *engine, uint64_t bytes)
{
	if (capture_is_open() || quiesce_is_held(engine))
		return SW_NOT_SUPPORTED;
	if (!link_open(engine) || !quiesce_close(engine, false))
		return SW_BUSY;
	all_out(engine, bytes, false);
	quiesce_open(engine);
	heap_trim(engine->heap, 0, heap_idle(engine->heap, CHUNK_HOST));
	return SW_OK;
}

/* ---- for new blocks ---- */

/*
 * A new block that starts on the host is usually fetched for the kernel that is launched next. That takes a gap, and
 * copies contents that mean nothing. If room is made first, one gap serves many new blocks. In the replay model, a
 * training job that allocates all it needs in each step takes 543 ms a step without this and 403 with it; with steps of
 * different sizes 545 and 367.
 */
enum sw_status quiesce_room_for_new(struct engine *engine, uint64_t bytes)
{
	if (!plan_knows(engine->plan) || !schedule_may_move(engine) || clock_now() < engine->quiesce.not_before ||
	    !scheduler_gap_pays_for_new(&engine->scheduler) || !link_open(engine) || !quiesce_close(engine, false))
		return SW_BUSY;
	bool can = true;
	while (!engine_is_over(engine) && scheduler_gap_round_for_new(&engine->scheduler, bytes, &can))
		wait_for_copies(engine, NULL);
	quiesce_finish(engine);
	quiesce_open(engine);
	return SW_OK;
}

/* ---- changes of mode ---- */

/*
 * Changes between `exact` and `fast`. Each is made in a gap of the whole process: nothing runs on any device, and no
 * submission is inside the driver.
 *
 *   fast -> exact   `exact` has everything mapped when something runs. All copies have ended and every piece that is
 *                   away is mapped on the host before the mode changes.
 *
 *   exact -> fast   `fast` unmaps a piece only if no submission uses its block. What was submitted before is done, so
 *                   nothing need be known of it. What is submitted later has a ticket or pins its blocks, because
 *                   SUBMISSION_TICKETS is set in the gap; what was read before that, and may have listed too few
 *                   blocks, counts as what may touch anything (admit.c). What graphs and arrays of pointers name is
 *                   read in both modes. What may be reached without being named stays where it is: what the program
 *                   has placed, and what textures and tensor maps keep the address of, since heap_set_beside(), which
 *                   comes before this; what stays in `fast` by its size or a rule, since it is on the device
 *                   (piece.c).
 *                   Of the latter some may have left in `exact`, so they are fetched before the mode changes.
 */

enum plan_way mode_way(const struct heap *heap, bool exact)
{
	uint64_t in_use, left;

	if (heap_lent(heap, &in_use, &left))
		return PLAN_TO_PEERS;
	return exact ? PLAN_IN_GAPS : PLAN_BESIDE_KERNELS;
}

/* What stays on the device differs. Returns false if there is no memory for it. */
static bool tell_plan(struct engine *engine)
{
	struct piece_list list = piece_list_all(engine, false);

	for (unsigned i = 0; i < list.n; i++)
		piece_tell_plan(engine, list.at[i]);
	free(list.at);
	return list.at != NULL;
}

/* Locking: the caller must hold QUIESCE, in a gap or while the process is suspended. */
static void set_exact(struct engine *engine, bool exact)
{
	struct alive_state *const state = &mover_state.alive;

	lock_take(&state->lock);
	state->n_fast += exact ? -1u : 1;
	if (!exact)
		submission_set_beside(true);
	atomic_store(&engine->exact, exact);
	if (!state->n_fast)
		submission_set_beside(false);
	lock_drop(&state->lock);
	plan_set_way(engine->plan, mode_way(engine->heap, exact));
	if (!exact && engine->lifetimes)
		heap_follow_reports(engine->heap, 0, UINT32_MAX);
}

bool mode_close_all(struct engine *engine)
{
	if (capture_is_open() || !link_open(engine) || !quiesce_close(engine, true))
		return false;
	quiesce_read_all(engine);
	quiesce_finish(engine);
	if (!capture_is_open())
		return true;
	quiesce_open(engine);
	return false;
}

static bool is_there(struct engine *engine, uint32_t piece)
{
	return atomic_load(&engine->arena->states[piece].where) != BLOCK_STATE_HOST ||
	       !piece_block_state(engine, piece);
}

/* Fetches these pieces, in the order of the list. Leaves in it those that are neither on the device nor gone then. */
static void fetch_all(struct engine *engine, struct piece_list *list)
{
	unsigned left = 0;

	for (unsigned i = 0; i < list->n && !engine_is_over(engine);) {
		for (; i < list->n && engine->scheduler.wishes.n < WISHES; i++)
			scheduler_wish(&engine->scheduler, list->at[i], plan_now(engine->plan));
		quiesce_fetch_wishes(engine);
		scheduler_forget_wishes(&engine->scheduler);
	}
	for (unsigned i = 0; i < list->n; i++)
		if (!is_there(engine, list->at[i]))
			list->at[left++] = list->at[i];
	list->n = left;
}

/* Attempts to fetch a piece, because the driver may refuse temporarily. */
#define TRIES 3

/* Fetches what stays on the device in `fast`, as far as its shares go, which hold what is there already. */
static enum sw_status bring_what_stays(struct engine *engine)
{
	struct piece_list list = piece_list_all(engine, true);
	uint64_t planned[KEEP_REASONS] = {0};
	unsigned n = 0;

	if (!list.at)
		return SW_NO_HOST_MEMORY;
	for (unsigned i = 0; i < list.n; i++)
		if (piece_should_come(engine, list.at[i], planned))
			list.at[n++] = list.at[i];
	list.n = n;
	for (unsigned tries = 0; tries < TRIES && list.n && !engine_is_over(engine); tries++)
		fetch_all(engine, &list);
	free(list.at);
	if (engine_is_dead(engine))
		return SW_DRIVER;
	return list.n ? SW_NO_MEMORY : SW_OK;
}

static enum sw_status change_in_gap(struct engine *engine, bool exact)
{
	if (migrate_any(engine) || engine_is_dead(engine))
		return SW_DRIVER;
	set_exact(engine, exact);
	bool told = tell_plan(engine);
	enum sw_status status = exact ? SW_OK : told ? bring_what_stays(engine) : SW_NO_HOST_MEMORY;
	if (status != SW_OK) {
		set_exact(engine, true);
		tell_plan(engine);
	}
	return status;
}

enum sw_status mode_change(struct engine *engine, bool exact)
{
	enum sw_status status = SW_OK;

	if (engine->exact == exact)
		return SW_OK;
	/* Before the first ticket; from then on it reads all records of the log. */
	if (!exact && !engine->inflight)
		engine->inflight = inflight_new(engine->arena, &engine->channel.log);
	if (!exact && !engine->inflight)
		return SW_NO_HOST_MEMORY;
	if (quiesce_is_held(engine)) {
		/*
		 * The gate is closed, and what was submitted is done, but no gap is open. What is away comes back in
		 * the new mode, as after a suspension that began in it.
		 */
		lock_take(&mover_state.quiescing.lock);
		set_exact(engine, exact);
		lock_drop(&mover_state.quiescing.lock);
		tell_plan(engine);
	} else if (mode_close_all(engine)) {
		status = change_in_gap(engine, exact);
		quiesce_open(engine);
	} else {
		return SW_BUSY;
	}
	trial_init(&engine->governor.trial);
	/* Allocations that wait for room do not wait in `exact`. */
	atomic_fetch_add(&engine->new_blocks.hopeless, 1);
	return status;
}

/* ---- fetching by order ---- */

/* Evicts whatever is not among these units, in no order, until `bytes` are free: for what must come now. */
static void clear_for(struct engine *engine, uint32_t unit, uint32_t end, uint64_t bytes)
{
	struct piece_list list = piece_list_all(engine, true);

	for (unsigned i = 0; i < list.n && !engine_is_over(engine); i++) {
		while (engine->moves.out.n >= MOVES_AT_ONCE && !engine_is_dead(engine))
			if (!migrate_finish(engine))
				quiesce_nap(engine);
		if (heap_free_bytes(engine->heap, CHUNK_DEVICE) + engine->moves.out.bytes >= bytes)
			break;
		uint32_t past = list.at[i] + engine->arena->states[list.at[i]].units_of_piece;
		if (past <= unit || list.at[i] >= end)
			migrate_begin(engine, list.at[i], CHUNK_HOST, true);
	}
	free(list.at);
	quiesce_finish(engine);
}

/*
 * No piece of these units leaves from now on; n 0: any may again. Among themselves the plan would let one leave that
 * was used the longest time ago, for another one of the same allocation.
 */
static void set_brings(struct engine *engine, uint32_t unit, uint32_t n)
{
	uint32_t first = n ? unit : engine->brings, end = n ? unit + n : engine->brings_end, piece, past;

	engine->brings = first;
	engine->brings_end = n ? end : 0;
	for (uint32_t at = first; at < end; at = past) {
		past = at + 1;
		if (piece_at_unit(engine, at, &piece, &past))
			piece_tell_plan(engine, piece);
	}
}

enum sw_status mode_bring(struct engine *engine, uint32_t unit, uint32_t n)
{
	struct piece_list list = {0};
	uint32_t piece, past, end = unit + n;
	uint64_t bytes = 0;
	bool listed = true;

	if (atomic_load(&engine->quiesce.residence) != RESIDENCE_RUNS || !mode_close_all(engine))
		return SW_BUSY;
	for (uint32_t at = unit; at < end; at = past) {
		past = at + 1;
		if (piece_at_unit(engine, at, &piece, &past) && !is_there(engine, piece))
			listed &= piece_list_add(&list, piece);
	}
	set_brings(engine, unit, n);
	fetch_all(engine, &list);
	for (unsigned i = 0; i < list.n; i++)
		bytes += piece_bytes(engine, list.at[i]);
	if (bytes) {
		clear_for(engine, unit, end, bytes);
		fetch_all(engine, &list);
	}
	enum sw_status status = list.n || !listed ? SW_NO_MEMORY : SW_OK;
	/* Before anything can move again. */
	if (status == SW_OK && (migrate_any(engine) || engine_is_dead(engine) ||
				!heap_pin(engine->heap, arena_address(engine->arena, unit), n * HEAP_UNIT)))
		status = SW_BUSY;
	set_brings(engine, 0, 0);
	quiesce_open(engine);
	free(list.at);
	return status;
}
