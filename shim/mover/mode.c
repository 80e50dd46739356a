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
 *                   comes before this; small blocks, and those that a rule keeps, since they are on the device (piece.c).
 *                   Of the latter some may have left in `exact`, so they are fetched before the mode changes.
 */
#include "shim/context/capture.h"
#include "shim/base/lock.h"
#include "shim/heap/block_unmapped.h"
#include "shim/mover/mover_internal.h"
#include "shim/mover/mover_state.h"
#include "shim/submit/submission.h"

#include <stdlib.h>

enum plan_way mode_way(const struct heap *heap, bool exact)
{
	uint64_t in_use, left;

	if (heap_lent(heap, &in_use, &left))
		return PLAN_TO_PEERS;
	return exact ? PLAN_IN_GAPS : PLAN_BESIDE_KERNELS;
}

/* Locking: the caller holds QUIESCE, in a gap or while the process is suspended. */
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

static void begin_anew(struct engine *engine)
{
	move_governor_restart(&engine->governor);
	/* Allocations that wait for room do not wait in `exact`. */
	atomic_fetch_add(&engine->new_blocks.hopeless, 1);
}

static void go(struct engine *engine, bool exact)
{
	set_exact(engine, exact);
	if (!exact && engine->lifetimes)
		heap_follow_reports(engine->heap, 0, UINT32_MAX);
}

/*
 * The gate is closed, and what was submitted is done, but no gap is open. What is away comes back in the new mode, as
 * after a suspension that began in it.
 */
static enum sw_status change_suspended(struct engine *engine, bool exact)
{
	lock_take(&mover_state.quiescing.lock);
	go(engine, exact);
	lock_drop(&mover_state.quiescing.lock);
	tell_plan(engine);
	begin_anew(engine);
	return SW_OK;
}

/* Begins a gap of the whole process in which no capture is open and nothing is in flight. */
static bool close_all(struct engine *engine)
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

static bool is_all_mapped(const struct engine *engine)
{
	return !migrate_any(engine) && !atomic_load(&engine->channel.dead);
}

enum sw_status mode_to_exact(struct engine *engine)
{
	if (engine->exact)
		return SW_OK;
	if (quiesce_is_held(engine))
		return change_suspended(engine, true);
	if (!close_all(engine))
		return SW_BUSY;
	bool may = is_all_mapped(engine);
	if (may) {
		go(engine, true);
		tell_plan(engine);
	}
	quiesce_open(engine);
	begin_anew(engine);
	return may ? SW_OK : SW_DRIVER;
}

/* ---- to fast ---- */

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
	uint64_t planned[2] = {0};
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
	if (atomic_load(&engine->channel.dead))
		return SW_DRIVER;
	return list.n ? SW_NO_MEMORY : SW_OK;
}

/* In a gap. */
static enum sw_status go_fast(struct engine *engine)
{
	if (!is_all_mapped(engine))
		return SW_DRIVER;
	go(engine, false);
	enum sw_status status = tell_plan(engine) ? bring_what_stays(engine) : SW_NO_HOST_MEMORY;
	if (status != SW_OK) {
		go(engine, true);
		tell_plan(engine);
	}
	return status;
}

enum sw_status mode_to_fast(struct engine *engine)
{
	if (!engine->exact)
		return SW_OK;
	/* Before the first ticket; from then on it reads all records of the log. */
	if (!engine->claims)
		engine->claims = inflight_new(engine->arena, &engine->channel.tape);
	if (!engine->claims)
		return SW_NO_HOST_MEMORY;
	if (quiesce_is_held(engine))
		return change_suspended(engine, false);
	if (!close_all(engine))
		return SW_BUSY;
	enum sw_status status = go_fast(engine);
	quiesce_open(engine);
	begin_anew(engine);
	return status;
}

/* ---- by order ---- */

/* Evicts whatever is not among these units, in no order, until `bytes` are free: for what must come now. */
static void clear_for(struct engine *engine, uint32_t unit, uint32_t end, uint64_t bytes)
{
	struct piece_list list = piece_list_all(engine, true);

	for (unsigned i = 0; i < list.n && !engine_is_over(engine); i++) {
		while (engine->moves.out.n >= MOVES_AT_ONCE && !atomic_load(&engine->channel.dead))
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
 * From now on no piece of these units leaves; n 0: any may again. Among themselves the plan would let the one leave that
 * was used the longest time ago, for another one of the same allocation.
 */
static void set_brings(struct engine *engine, uint32_t unit, uint32_t n)
{
	uint32_t first = n ? unit : engine->brings, end = n ? unit + n : engine->brings_end, piece, past;

	engine->brings = first;
	engine->brings_end = n ? end : first;
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

	if (atomic_load(&engine->quiesce.residence) != RESIDENCE_RUNS || !close_all(engine))
		return SW_BUSY;
	for (uint32_t at = unit; at < end; at = past) {
		past = at + 1;
		if (piece_at_unit(engine, at, &piece, &past) && !is_there(engine, piece))
			listed &= piece_list_add(&list, piece);
	}
	set_brings(engine, unit, n);
	fetch_all(engine, &list);
	for (unsigned i = 0; i < list.n; i++)
		bytes += engine->arena->states[list.at[i]].units_of_piece * HEAP_UNIT;
	if (bytes) {
		clear_for(engine, unit, end, bytes);
		fetch_all(engine, &list);
	}
	set_brings(engine, 0, 0);
	quiesce_open(engine);
	free(list.at);
	return list.n || !listed ? SW_NO_MEMORY : SW_OK;
}
