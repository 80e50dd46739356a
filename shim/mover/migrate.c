// SPDX-License-Identifier: Apache-2.0
/*
 * Migration of a piece. There are two queues, one each way, each with a stream, so that both copy engines work at once.
 * Copies in a queue end in the order in which they began.
 *
 *   fast, evict    Raise `unmapped`, see that no submission pins the block or has a ticket for it, unmap the piece,
 *                  copy through the aliases. When the copy has ended, the device chunk is free, and the piece is a
 *                  deferred map until the host copy is mapped at its address.
 *   fast, fetch    The same; when the copy has ended, the device chunk is mapped.
 *   in a gap       Nothing runs, so the device side is copied at the program's address. An evicted piece is unmapped
 *                  when the copy has ended, is a deferred map until there is nothing better to do, and is mapped
 *                  before the gap ends. A fetched piece is mapped first and filled afterwards.
 *
 * This one thread makes all changes of mappings: within one reservation the driver makes them one after another, and
 * favours a caller that asks without a pause. Measured (H200, driver 580): a second thread that mapped got through once
 * in 20 ms.
 *
 * Whatever the driver refuses, one copy holds the data, and that copy is mapped again: the old one until the exchange,
 * the new one after it. A refused call is repeated for a tenth of a second, a mapping for 5 s (piece_map); the block
 * stays `unmapped` meanwhile, so that no submission that names it runs. After that moving ends, and no submission is
 * held back any more.
 */
#include "shim/base/array.h"
#include "shim/mover/mover.h"

#include <string.h>

/* ---- deferred maps ---- */

/*
 * Deferred maps: pieces on the host that are not mapped. Mapping host memory takes half as long as copying it
 * (docs/facts.md, Host memory). Therefore an evicted piece is mapped when there is time for it or when a submission
 * needs it, and in any case before a gap ends. In a gap, a piece that is about to be fetched may be unmapped before
 * there is room for it.
 */

struct deferred_map *deferred_map_find(struct engine *engine, uint32_t piece)
{
	for (unsigned i = 0; i < engine->deferred.n; i++)
		if (engine->deferred.at[i].migration.piece == piece)
			return &engine->deferred.at[i];
	return NULL;
}

/*
 * Adds a piece as the newest one. is_empty: nothing was copied into the memory that it has now. The caller must ensure
 * that there is room for it.
 */
static void deferred_map_add(struct engine *engine, const struct migration *migration, bool is_empty)
{
	engine->deferred.at[engine->deferred.n++] =
	    (struct deferred_map){.migration = *migration, .since = clock_now(), .is_empty = is_empty};
}

static void deferred_map_drop(struct engine *engine, struct deferred_map *deferred)
{
	size_t behind = (size_t)(engine->deferred.at + engine->deferred.n-- - (deferred + 1));

	memmove(deferred, deferred + 1, behind * sizeof(*deferred));
}

/* ---- mapping ---- */

/* ns: how long the copy of one piece, and those that are queued before it, may take. */
#define COPY_NS 1000000000

/* Gives a piece that is mapped nowhere a spare of the device as its new memory, if there is one. */
static bool turn_to_device(struct engine *engine, bool in_place, struct migration *migration)
{
	enum sw_status status = migration_turn(engine->heap, in_place, migration);

	if (status == SW_NO_MEMORY && heap_make_spare(engine->heap, CHUNK_DEVICE, migration->units, true) == SW_OK)
		status = migration_turn(engine->heap, in_place, migration);
	return status == SW_OK;
}

/*
 * The driver maps no host memory, for which it needs large page tables. Gives the piece memory of the device, filled,
 * if there is some: the tables of that are small.
 */
static void fill_on_device(struct engine *engine, struct migration *migration)
{
	if (engine_is_dead(engine) || !link_open(engine) || !turn_to_device(engine, false, migration))
		return;
	link_let_go(engine, true);
	CUresult result = link_fill(engine, migration);
	if (!link_is_idle_by(engine->link.stream_in, clock_now() + COPY_NS))
		migration_leave_spare(engine->heap, migration);
	else if (result != CUDA_SUCCESS)
		heap_give_spare(engine->heap, migration);
}

static void deferred_map_map_one(struct engine *engine, struct deferred_map *deferred)
{
	struct migration migration = deferred->migration;
	uint64_t begun = clock_now();
	bool is_new;

	if (!piece_map_soon(engine, &migration, PIECE_OLD, &is_new)) {
		fill_on_device(engine, &migration);
		piece_map(engine, &migration, PIECE_EITHER, &is_new);
	}
	if (is_new) {
		move_stats_whole(engine, &migration, begun, migration_bytes(&migration));
		migration_exchange(engine->heap, &migration, false);
	}
	deferred_map_drop(engine, deferred);
	/* If nothing can be mapped, submissions are not held back for ever (see finish_in()). */
	piece_arrived(engine, &migration, is_new ? BLOCK_STATE_DEVICE : BLOCK_STATE_HOST, true);
}

bool deferred_map_map(struct engine *engine)
{
	for (unsigned i = 0; i < engine->deferred.n; i++) {
		if (engine->deferred.at[i].comes)
			continue;
		deferred_map_map_one(engine, &engine->deferred.at[i]);
		return true;
	}
	return false;
}

bool deferred_map_awaited(struct engine *engine)
{
	struct deferred_maps *deferred = &engine->deferred;
	bool any = false;

	for (unsigned i = 0; i < deferred->n;) {
		i += migration_first_awaited(engine->heap, &deferred->at[i].migration, sizeof(deferred->at[i]),
					     deferred->n - i);
		if (i == deferred->n)
			break;
		deferred_map_map_one(engine, &deferred->at[i]);
		any = true;
	}
	return any;
}

bool deferred_map_serve(struct engine *engine)
{
	bool any = false;

	while (atomic_load(&engine->channel.everything.waits) && deferred_map_map(engine))
		any = true;
	if (heap_has_given(engine->heap) || heap_is_awaited(engine->heap))
		any |= deferred_map_awaited(engine);
	return any;
}

void deferred_map_map_of(struct engine *engine, uint32_t block_unit, uint64_t but)
{
	for (unsigned i = 0; i < engine->deferred.n;) {
		const struct migration *migration = &engine->deferred.at[i].migration;

		if (migration->block_unit == block_unit && engine->by_piece.at[migration->piece].stamp != but)
			deferred_map_map_one(engine, &engine->deferred.at[i]);
		else
			i++;
	}
}

/* ---- unmapping early ---- */

bool deferred_map_unmap_early(struct engine *engine, uint32_t piece)
{
	struct migration migration;

	/* Slots must stay free for pieces that are evicted. */
	if (engine->deferred.n >= DEFERRED_MAPS / 2 || migration_pin(engine->heap, piece, false, &migration) != SW_OK)
		return false;
	if (migration_unmap(&migration) != CUDA_SUCCESS) {
		migration_end(engine->heap, &migration);
		return false;
	}
	piece_raise(engine, &migration);
	deferred_map_add(engine, &migration, false);
	engine->deferred.at[engine->deferred.n - 1].comes = true;
	return true;
}

void deferred_map_give_up_early(struct engine *engine)
{
	for (unsigned i = 0; i < engine->deferred.n; i++)
		engine->deferred.at[i].comes = false;
}

/* ---- source and destination ---- */

/* Makes a spare for the piece. Host memory that the heaps of other devices keep free counts as available, too. */
static bool make_spare(struct engine *engine, uint32_t piece, enum chunk_place to, unsigned units)
{
	const struct block_state *block = to == CHUNK_DEVICE ? NULL : piece_block_state(engine, piece);

	/* A block that the program wants on the host goes there rather than to a peer, and not from peer to peer. */
	bool wants = block && piece_wants_host(engine, block);
	bool lend = !wants || piece_place(engine, piece) != CHUNK_PEER || heap_wanted(engine->heap);
	if (wants && heap_make_spare(engine->heap, CHUNK_HOST, units, false) == SW_OK)
		return true;
	if (heap_make_spare(engine->heap, to, units, lend) == SW_OK)
		return true;
	bool more = to == CHUNK_DEVICE ? engine_recall_lent(engine, units) : device_make_host_room(engine->device);
	return more && heap_make_spare(engine->heap, to, units, lend) == SW_OK;
}

/* in_place: as in migration_begin(). */
static enum sw_status with_spare(struct engine *engine, uint32_t piece, enum chunk_place to,
				 struct deferred_map *deferred, bool in_place, struct migration *migration)
{
	enum sw_status status = SW_NO_MEMORY;

	for (int tries = 0; tries < 2 && status == SW_NO_MEMORY; tries++) {
		unsigned units = engine->arena->states[piece].units_of_piece;

		if (tries && !make_spare(engine, piece, to, units))
			break;
		/*
		 * New device memory is mapped at its alias here. That is quick while no copies run that contend with
		 * it.
		 */
		link_let_go(engine, !tries || to == CHUNK_HOST);
		status = deferred ? migration_turn(engine->heap, in_place, migration)
				  : migration_begin(engine->heap, piece, to, in_place, migration);
		link_let_go(engine, true);
	}
	return status;
}

/*
 * Unmaps the new memory from the program's address; no copy of it may be in flight. Returns false if the driver
 * refuses.
 */
static bool remove_new(struct move *move)
{
	unsigned tries = 0;

	while (move->mapped == MAPPED_NEW && engine_tries(&tries))
		if (migration_unmap(&move->migration) == CUDA_SUCCESS)
			move->mapped = MAPPED_NONE;
	return move->mapped != MAPPED_NEW;
}

static enum block_state_where old_place(const struct move *move)
{
	return move->migration.from == CHUNK_DEVICE ? BLOCK_STATE_DEVICE : BLOCK_STATE_HOST;
}

static void map_again(struct engine *engine, struct move *move, bool new)
{
	if (move->mapped == MAPPED_NONE && piece_map(engine, &move->migration, new ? PIECE_NEW : PIECE_OLD, &new))
		move->mapped = new ? MAPPED_NEW : MAPPED_OLD;
}

/* Ends a move without effect: the piece stays where it was. */
static enum migrate_answer migrate_undo(struct engine *engine, struct move *move)
{
	map_again(engine, move, false);
	piece_arrived(engine, &move->migration, old_place(move), move->is_raised);
	return MIGRATE_FAILED;
}

/* ---- beginning ---- */

/* Ends a move that has just begun, without effect. A deferred map (NULL: none) stays in the list, unmapped. */
static enum migrate_answer undo_begin(struct engine *engine, struct deferred_map *deferred, struct move *move)
{
	if (!deferred)
		return migrate_undo(engine, move);
	heap_give_spare(engine->heap, &move->migration);
	deferred->migration = move->migration;
	return MIGRATE_FAILED;
}

/* Takes the piece away from submissions and unmaps it. Returns MIGRATE_BUSY if one uses it, or the process ends. */
static enum migrate_answer take_away(struct engine *engine, struct move *move)
{
	piece_raise(engine, &move->migration);
	move->is_raised = true;
	if (!engine_hears_all(engine) ||
	    piece_is_busy(engine, move->migration.piece, move->migration.to == CHUNK_DEVICE) ||
	    engine_is_over(engine)) {
		migrate_undo(engine, move);
		return MIGRATE_BUSY;
	}
	if (migration_unmap(&move->migration) != CUDA_SUCCESS)
		return migrate_undo(engine, move);
	move->mapped = MAPPED_NONE;
	return MIGRATE_BEGUN;
}

/* Returns whether the piece can leave without a copy: nothing in it is alive. */
static bool leaves_empty(struct engine *engine, uint32_t piece)
{
	const struct block_state *block = piece_block_state(engine, piece);
	uint32_t block_unit = block ? (uint32_t)(block - engine->arena->block_states) : 0;

	if (!block || !engine->lifetimes || piece_is_discarded(engine, block_unit, piece))
		return false;
	alive_hear(engine);
	return alive_is_none(engine, block_unit, piece);
}

/* In place: maps the new memory instead of the old, to be filled. */
static bool put_new(struct engine *engine, struct move *move)
{
	if (move->mapped == MAPPED_OLD && migration_unmap(&move->migration) != CUDA_SUCCESS)
		return false;
	move->mapped = MAPPED_NONE;
	if (migration_map(engine->heap, &move->migration, true) != CUDA_SUCCESS)
		return false;
	move->mapped = MAPPED_NEW;
	return true;
}

/* Ends a move whose new memory is mapped and filled. */
static void settle_new(struct engine *engine, struct move *move)
{
	move_stats_moved(engine, move);
	migration_exchange(engine->heap, &move->migration, false);
	piece_arrived(engine, &move->migration, BLOCK_STATE_DEVICE, move->is_raised);
}

/*
 * In place: the copy failed, and the driver does not unmap the new memory, so the only way is to fill it after all. If
 * that fails, too, the contents are lost, and the log says so; a driver that refuses both has lost the context.
 */
static enum migrate_answer fill_after_all(struct engine *engine, struct deferred_map *deferred, struct move *move)
{
	const struct migration *migration = &move->migration;
	CUresult result = link_fill(engine, migration);

	if (result != CUDA_SUCCESS || !link_settle(engine->link.stream_in)) {
		migration_leave_spare(engine->heap, &move->migration);
		engine_die(engine,
			   "memory that was to be filled can neither be copied to nor unmapped; its contents are lost");
		return undo_begin(engine, deferred, move);
	}
	if (deferred)
		deferred_map_drop(engine, deferred);
	settle_new(engine, move);
	return MIGRATE_BEGUN;
}

enum migrate_answer migrate_begin(struct engine *engine, uint32_t piece, enum chunk_place to, bool gap)
{
	struct queue *queue = to == CHUNK_HOST ? &engine->moves.out : &engine->moves.in;
	struct deferred_map *deferred = to == CHUNK_DEVICE ? deferred_map_find(engine, piece) : NULL;
	struct move *move = &queue->at[(queue->head + queue->n) % MOVES];

	if (queue->n == MOVES)
		return MIGRATE_NO_ROOM;
	if (!deferred && !gap && piece_is_busy(engine, piece, to == CHUNK_DEVICE))
		return MIGRATE_BUSY;
	move->migration = deferred ? deferred->migration : (struct migration){0};
	move->is_empty = deferred ? deferred->is_empty : !gap && to == CHUNK_HOST && leaves_empty(engine, piece);
	enum sw_status status =
	    with_spare(engine, piece, to, deferred, gap || (move->is_empty && !engine->poisons), &move->migration);
	if (status != SW_OK)
		return status == SW_NO_MEMORY ? MIGRATE_NO_ROOM : MIGRATE_FAILED;
	move->mapped = deferred ? MAPPED_NONE : MAPPED_OLD;
	move->is_raised = deferred;
	move->is_back = move->is_measured = false;
	if (!deferred && !gap) {
		enum migrate_answer answer = take_away(engine, move);
		if (answer != MIGRATE_BEGUN)
			return answer;
		/* What was submitted until the piece was taken away may have brought something to life. */
		if (move->is_empty && !alive_is_none(engine, move->migration.block_unit, piece)) {
			migrate_undo(engine, move);
			return MIGRATE_BUSY;
		}
	}
	if (gap && to == CHUNK_DEVICE && !put_new(engine, move))
		return undo_begin(engine, deferred, move);
	move_stats_begin(engine, move);
	CUresult result = link_copy(engine, move, gap);
	if (result != CUDA_SUCCESS) {
		move_stats_end(engine, move, true);
		log_once("copying memory to the %s: %s", to == CHUNK_HOST ? "host" : "device", real_error_name(result));
		if (!remove_new(move))
			return fill_after_all(engine, deferred, move);
		return undo_begin(engine, deferred, move);
	}
	if (deferred)
		deferred_map_drop(engine, deferred);
	queue->n++;
	queue->bytes += migration_bytes(&move->migration);
	plan_set(engine->plan, piece, move->migration.units, PLAN_MOVING);
	return MIGRATE_BEGUN;
}

/* ---- ending ---- */

/* The copy has ended: maps the device memory in place of the host memory, unless it is mapped already. */
static void finish_in(struct engine *engine, struct move *move)
{
	struct migration *migration = &move->migration;
	bool is_new = true;

	if (move->mapped != MAPPED_NEW) {
		link_let_go(engine, false);
		/*
		 * If neither can be mapped, submissions are not held back for ever: one that touches the memory gets an
		 * error from the GPU.
		 */
		piece_map(engine, migration, PIECE_EITHER, &is_new);
	}
	move_stats_end(engine, move, !is_new);
	if (is_new)
		settle_new(engine, move);
	else
		piece_arrived(engine, migration, BLOCK_STATE_HOST, move->is_raised);
}

static void finish_out(struct engine *engine, struct move *move)
{
	if (move->mapped == MAPPED_OLD) {
		if (migration_unmap(&move->migration) != CUDA_SUCCESS) {
			move_stats_end(engine, move, true);
			piece_arrived(engine, &move->migration, old_place(move), false);
			return;
		}
		piece_raise(engine, &move->migration);
	}
	move_stats_moved(engine, move);
	move_stats_end(engine, move, false);
	migration_exchange(engine->heap, &move->migration, false);
	deferred_map_add(engine, &move->migration, !move->copied);
	/* For the plan the piece is on the host: it may be fetched again at once. */
	plan_set(engine->plan, move->migration.piece, move->migration.units, PLAN_HOST);
}

/* The piece stays at its destination, where it is mapped. lost: copies into the old memory may still be in flight. */
static void settle_out(struct engine *engine, struct move *move, bool lost)
{
	move_stats_end(engine, move, false);
	move_stats_moved(engine, move);
	migration_exchange(engine->heap, &move->migration, lost);
	piece_arrived(engine, &move->migration, BLOCK_STATE_HOST, move->is_raised);
}

static bool finish_queue(struct engine *engine, struct queue *queue)
{
	bool any = false;

	while (queue->n) {
		struct move *move = &queue->at[queue->head];
		CUresult result = REAL(cuEventQuery)(move->event);

		if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
			engine_doubt(engine, result);
			return any;
		}
		/* A dead context gives neither of these answers. */
		engine->health.doubts = 0;
		if (result == CUDA_ERROR_NOT_READY)
			return any;
		bool out = move->migration.to != CHUNK_DEVICE && !move->is_back;
		if (out && engine->deferred.n == DEFERRED_MAPS && !deferred_map_map(engine))
			return any;
		if (out && !pte_contention_learn(engine, move))
			return any;
		if (!move->is_back) /* the time of a move that was taken back says nothing about the link */
			link_ended(queue, move);
		queue->head = (queue->head + 1) % MOVES;
		queue->n--;
		queue->bytes -= migration_bytes(&move->migration);
		engine->moves.n_back -= move->is_back;
		if (out) {
			finish_out(engine, move);
		} else if (!move->is_back) {
			finish_in(engine, move);
		} else if (move->mapped == MAPPED_NEW) {
			settle_out(engine, move, false);
		} else {
			/* It was taken back: the spare is free again, and the piece may move. */
			move_stats_end(engine, move, true);
			migrate_undo(engine, move);
		}
		any = true;
	}
	return any;
}

bool migrate_finish(struct engine *engine)
{
	bool any = finish_queue(engine, &engine->moves.out);

	if (engine->moves.in.n) {
		any |= finish_queue(engine, &engine->moves.in);
		link_let_go(engine, true);
	}
	return any;
}

/* ---- copies that make no progress ---- */

#define STUCK_NS     50000000
#define STUCK_FACTOR 8
/* The limit while the speed of the link is unknown. */
#define STUCK_FIRST_NS 500000000

static bool is_stuck(const struct queue *queue)
{
	const struct move *head = &queue->at[queue->head];
	uint64_t least = queue->unit_ns ? STUCK_NS : STUCK_FIRST_NS;
	uint64_t since = head->begun > queue->ended ? head->begun : queue->ended;

	return queue->n && clock_now() - since > least + STUCK_FACTOR * queue->unit_ns * head->migration.units;
}

bool migrate_is_stuck(const struct engine *engine)
{
	return is_stuck(&engine->moves.out) || is_stuck(&engine->moves.in);
}

/*
 * Submissions do not learn where the new memory is, and what the copy still reads is not freed: the piece cannot move
 * until the copy has ended. A piece that is being measured with goes on to its filled destination, and the memory that
 * is still written to is not freed.
 */
static void take_back(struct engine *engine, struct move *move)
{
	map_again(engine, move, move->is_measured);
	if (move->mapped == MAPPED_NONE)
		return;
	move->is_back = true;
	engine->moves.n_back++;
	piece_set_where(engine, &move->migration, move->is_measured ? BLOCK_STATE_HOST : old_place(move));
	piece_lower(engine, &move->migration);
	move->is_raised = false;
}

bool migrate_take_back(struct engine *engine)
{
	struct queue *const queues[] = {&engine->moves.out, &engine->moves.in};

	for (unsigned i = 0; i < 2; i++)
		for (unsigned n = 0; n < queues[i]->n; n++) {
			struct move *move = &queues[i]->at[(queues[i]->head + n) % MOVES];

			/* What is copied in place is mapped, either the old memory or the new. */
			if (move->mapped == MAPPED_NONE)
				take_back(engine, move);
		}
	return !engine_is_dead(engine);
}

/* The piece is at its destination; the memory that it left may still be written to. */
static void abandon_measured(struct engine *engine, struct move *move)
{
	bool ended = REAL(cuEventQuery)(move->event) == CUDA_SUCCESS;

	engine->moves.n_back -= move->is_back;
	map_again(engine, move, true);
	settle_out(engine, move, !ended);
}

void migrate_abandon(struct engine *engine)
{
	struct queue *const queues[] = {&engine->moves.out, &engine->moves.in};

	for (unsigned i = 0; i < 2; i++) {
		struct queue *queue = queues[i];

		for (; queue->n; queue->n--, queue->head = (queue->head + 1) % MOVES) {
			struct move *move = &queue->at[queue->head];

			if (move->is_measured && move->mapped != MAPPED_OLD) {
				abandon_measured(engine, move);
				continue;
			}
			/*
			 * In place the move cannot be undone while the copy runs. Nothing runs beside it, so it ends
			 * soon.
			 */
			if (move->mapped == MAPPED_NEW && link_settle(engine->link.stream_in)) {
				finish_in(engine, move);
				continue;
			}
			/* Copies out of a gap write there, too (link.c). */
			if (move->mapped == MAPPED_OLD && !move->is_back)
				link_settle(engine->link.stream_out);
			move_stats_end(engine, move, true);
			engine->moves.n_back -= move->is_back;
			bool removed = remove_new(move);

			if (REAL(cuEventQuery)(move->event) != CUDA_SUCCESS || !removed)
				migration_leave_spare(engine->heap, &move->migration);
			migrate_undo(engine, move);
		}
		queue->bytes = 0;
	}
}

/* ---- pieces without memory ---- */

/*
 * Pieces without memory. A piece in which nothing is alive would need host memory only to have an address that leads
 * somewhere, and mapping that takes 8 us a MiB (docs/facts.md, Host memory), half as long as a copy. While the process
 * is suspended no address is used. So its memory goes back to the driver, and it gets new memory when the process goes
 * on, before the gate opens: from the device, where 128 MiB take 50 us (Mapping), or, if others have the device by
 * then, from the host. The host budget is charged for it all the time, so that only the system itself can refuse that;
 * then the process stays suspended.
 *
 * If the process ends meanwhile, such a piece gets memory only if the heap has idle host memory: pinning more takes 0.2
 * s a GiB, others have the device, and the driver frees all of it next. A thread that goes on until then, and uses what
 * its allocator has given to nobody, or only since, meets an illegal address (spillway-limits(7)).
 *
 * To the heap such a piece is moving: its block can be freed, and whoever wants to pin it waits.
 */

/* ---- taking ---- */

void unbacked_take(struct engine *engine, uint32_t piece)
{
	struct live_range alive[ALIVE_RANGES];
	uint64_t begun = clock_now();
	struct migration migration;

	/* What is dead is to be overwritten, which takes memory. */
	if (engine->poisons ||
	    !ARRAY_ROOM(engine->unbacked.at, engine->unbacked.n, engine->unbacked.room, ARRAY_MOST) ||
	    migration_begin_unbacked(engine->heap, piece, &migration) != SW_OK)
		return;
	/* The second call counts what is not copied. */
	if (!alive_is_none(engine, migration.block_unit, piece) || alive_ranges(engine, &migration, alive) != 0 ||
	    migration_unmap(&migration) != CUDA_SUCCESS) {
		migration_end(engine->heap, &migration);
		return;
	}
	move_stats_whole(engine, &migration, begun, 0);
	migration_exchange(engine->heap, &migration, false);
	/* As for all pieces of a suspended process, no submission waits for it: the gate is closed. */
	piece_set_where(engine, &migration, BLOCK_STATE_HOST);
	plan_set(engine->plan, piece, migration.units, PLAN_MOVING);
	engine->unbacked.at[engine->unbacked.n++] = migration;
}

/* ---- giving ---- */

static bool give_device(struct engine *engine, struct migration *migration)
{
	uint64_t begun = clock_now();

	if (!turn_to_device(engine, true, migration))
		return false;
	if (migration_map(engine->heap, migration, true) != CUDA_SUCCESS) {
		heap_give_spare(engine->heap, migration);
		return false;
	}
	move_stats_whole(engine, migration, begun, 0);
	alive_skip(migration, migration_bytes(migration));
	migration_exchange(engine->heap, migration, false);
	piece_arrived(engine, migration, BLOCK_STATE_DEVICE, false);
	return true;
}

static bool give_host(struct engine *engine, struct migration *migration)
{
	if (migration_back(engine->heap, migration, !spill_is_ending()) != SW_OK ||
	    migration_map(engine->heap, migration, false) != CUDA_SUCCESS)
		return false;
	piece_arrived(engine, migration, BLOCK_STATE_HOST, false);
	return true;
}

/* Ends the piece if its block was freed. */
static bool give_up(struct engine *engine, struct migration *migration)
{
	if (!migration_is_given(engine->heap, migration))
		return false;
	migration_end(engine->heap, migration);
	piece_tell_plan(engine, migration->piece);
	return true;
}

/* awaited: only those that a thread waits for. Returns whether all have memory. */
static bool give_each(struct engine *engine, bool device, bool host, bool awaited)
{
	struct unbacked *list = &engine->unbacked;
	unsigned kept = 0;

	for (unsigned i = 0; i < list->n; i++) {
		struct migration *migration = &list->at[i];

		if ((awaited && migration_first_awaited(engine->heap, migration, sizeof(*migration), 1)) ||
		    (!give_up(engine, migration) && !(device && !spill_is_ending() && give_device(engine, migration)) &&
		     !(host && give_host(engine, migration))))
			list->at[kept++] = *migration;
	}
	list->n = kept;
	return !kept;
}

bool unbacked_give_one(struct engine *engine)
{
	struct unbacked *list = &engine->unbacked;

	if (!list->n)
		return false;
	struct migration *last = &list->at[list->n - 1];
	if (!give_up(engine, last) &&
	    (heap_free_bytes(engine->heap, CHUNK_DEVICE) < migration_bytes(last) || !give_device(engine, last)))
		return false;
	list->n--;
	return true;
}

bool unbacked_give(struct engine *engine)
{
	return give_each(engine, true, false, false) || give_each(engine, false, true, false) || spill_is_ending();
}

void unbacked_serve(struct engine *engine)
{
	bool awaited = heap_is_awaited(engine->heap);

	if (engine->unbacked.n && (awaited || heap_has_given(engine->heap)))
		give_each(engine, false, awaited, true);
}
