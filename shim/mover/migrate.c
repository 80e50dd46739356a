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
#include "shim/base/log.h"
#include "shim/driver/real.h"
#include "shim/mover/mover_internal.h"

bool migrate_any(const struct engine *engine)
{
	return engine->moves.out.n || engine->moves.in.n || engine->rests.n;
}

/* ---- source and destination ---- */

/* A block that the program wants on the host goes there rather than to a peer. */
static bool wants_host(struct engine *engine, uint32_t piece, enum chunk_place to)
{
	const struct block_state *block = to == CHUNK_DEVICE ? NULL : piece_block_state(engine, piece);

	return block && piece_wants_host(engine, block);
}

/* Makes a spare for the piece. Host memory that the heaps of other devices keep free counts as available, too. */
static bool make_spare(struct engine *engine, uint32_t piece, enum chunk_place to, unsigned units)
{
	if (wants_host(engine, piece, to) && heap_make_host_spare(engine->heap, units) == SW_OK)
		return true;
	if (heap_make_spare(engine->heap, to, units) == SW_OK)
		return true;
	bool more = to == CHUNK_DEVICE ? engine_recall_lent(engine, units) : device_make_host_room(engine->device);
	return more && heap_make_spare(engine->heap, to, units) == SW_OK;
}

/* in_place: as in migration_begin(). */
static enum sw_status with_spare(struct engine *engine, uint32_t piece, enum chunk_place to, struct deferred_map *rest,
				 bool in_place, struct migration *transit)
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
		status = rest ? migration_turn(engine->heap, in_place, transit)
			      : migration_begin(engine->heap, piece, to, in_place, transit);
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
		if (migration_unmap(&move->transit) == CUDA_SUCCESS)
			move->mapped = MAPPED_NONE;
	return move->mapped != MAPPED_NEW;
}

static enum block_state_where old_place(const struct move *move)
{
	return move->transit.from == CHUNK_DEVICE ? BLOCK_STATE_DEVICE : BLOCK_STATE_HOST;
}

static void map_again(struct engine *engine, struct move *move, bool new)
{
	if (move->mapped == MAPPED_NONE && piece_map(engine, &move->transit, new ? PIECE_NEW : PIECE_OLD, &new))
		move->mapped = new ? MAPPED_NEW : MAPPED_OLD;
}

/* Maps the old memory again, unless it stayed mapped. */
static void map_old(struct engine *engine, struct move *move)
{
	map_again(engine, move, false);
}

/* Ends a move without effect: the piece stays where it was. */
static enum migrate_answer migrate_undo(struct engine *engine, struct move *move)
{
	map_old(engine, move);
	piece_arrived(engine, &move->transit, old_place(move), move->is_raised);
	return MIGRATE_FAILED;
}

/* ---- beginning ---- */

/* A deferred map stays in the list, unmapped. */
static enum migrate_answer undo_turn(struct engine *engine, struct deferred_map *rest, struct move *move)
{
	heap_give_spare(engine->heap, &move->transit);
	rest->transit = move->transit;
	return MIGRATE_FAILED;
}

/* Returns whether a submission keeps the piece from leaving for this place. */
static bool is_kept(struct engine *engine, uint32_t piece, enum chunk_place to)
{
	return piece_is_busy(engine, piece, to == CHUNK_DEVICE || engine->moves.exchanges);
}

/* Takes the piece away from submissions and unmaps it. Returns MIGRATE_BUSY if one uses it, or the process ends. */
static enum migrate_answer take_away(struct engine *engine, struct move *move)
{
	piece_raise(engine, &move->transit);
	move->is_raised = true;
	if (!engine_hears_all(engine) || is_kept(engine, move->transit.piece, move->transit.to) ||
	    engine_is_over(engine)) {
		migrate_undo(engine, move);
		return MIGRATE_BUSY;
	}
	if (migration_unmap(&move->transit) != CUDA_SUCCESS)
		return migrate_undo(engine, move);
	move->mapped = MAPPED_NONE;
	return MIGRATE_BEGUN;
}

/* Returns whether the piece can leave without a copy: nothing in it is alive. */
static bool leaves_empty(struct engine *engine, uint32_t piece)
{
	const struct block_state *block = piece_block_state(engine, piece);
	uint32_t block_unit = block ? (uint32_t)(block - engine->arena->marks) : 0;

	if (!block || !engine->lifetimes || piece_is_discarded(engine, block_unit, piece))
		return false;
	alive_hear(engine);
	return alive_is_none(engine, block_unit, piece);
}

/* In place: maps the new memory instead of the old, to be filled. */
static bool put_new(struct engine *engine, struct move *move)
{
	if (move->mapped == MAPPED_OLD && migration_unmap(&move->transit) != CUDA_SUCCESS)
		return false;
	move->mapped = MAPPED_NONE;
	if (migration_map(engine->heap, &move->transit, true) != CUDA_SUCCESS)
		return false;
	move->mapped = MAPPED_NEW;
	return true;
}

/* Ends a move whose new memory is mapped and filled. */
static void settle_new(struct engine *engine, struct move *move)
{
	move_stats_moved(engine, move);
	migration_exchange(engine->heap, &move->transit);
	piece_arrived(engine, &move->transit, BLOCK_STATE_DEVICE, move->is_raised);
}

/*
 * In place: the copy failed, and the driver does not unmap the new memory, so the only way is to fill it after all. If
 * that fails, too, the contents are lost, and the log says so; a driver that refuses both has lost the context.
 */
static enum migrate_answer fill_after_all(struct engine *engine, struct deferred_map *rest, struct move *move)
{
	const struct migration *transit = &move->transit;
	CUresult result = link_fill(engine, transit);

	if (result != CUDA_SUCCESS || !link_settle(engine->link.stream_in)) {
		migration_leave_spare(engine->heap, &move->transit);
		engine_die(engine,
			   "memory that was to be filled can neither be copied to nor unmapped; its contents are lost");
		return rest ? undo_turn(engine, rest, move) : migrate_undo(engine, move);
	}
	if (rest)
		deferred_map_drop(engine, rest);
	settle_new(engine, move);
	return MIGRATE_BEGUN;
}

enum migrate_answer migrate_begin(struct engine *engine, uint32_t piece, enum chunk_place to, bool gap)
{
	struct queue *queue = to == CHUNK_HOST ? &engine->moves.out : &engine->moves.in;
	struct deferred_map *rest = to == CHUNK_DEVICE ? deferred_map_find(engine, piece) : NULL;
	struct move *move = &queue->at[(queue->head + queue->n) % MOVES];

	if (queue->n == MOVES)
		return MIGRATE_NO_ROOM;
	if (!rest && !gap && is_kept(engine, piece, to))
		return MIGRATE_BUSY;
	move->transit = rest ? rest->transit : (struct migration){0};
	move->is_empty = rest ? rest->is_empty : !gap && to == CHUNK_HOST && leaves_empty(engine, piece);
	enum sw_status status =
	    with_spare(engine, piece, to, rest, gap || (move->is_empty && !engine->poisons), &move->transit);
	if (status != SW_OK)
		return status == SW_NO_MEMORY ? MIGRATE_NO_ROOM : MIGRATE_FAILED;
	move->mapped = rest ? MAPPED_NONE : MAPPED_OLD;
	move->is_raised = rest;
	move->is_back = move->is_measured = false;
	if (!rest && !gap) {
		enum migrate_answer answer = take_away(engine, move);
		if (answer != MIGRATE_BEGUN)
			return answer;
		/* What was submitted until the piece was taken away may have brought something to life. */
		if (move->is_empty && !alive_is_none(engine, move->transit.block_unit, piece)) {
			migrate_undo(engine, move);
			return MIGRATE_BUSY;
		}
	}
	if (gap && to == CHUNK_DEVICE && !put_new(engine, move))
		return rest ? undo_turn(engine, rest, move) : migrate_undo(engine, move);
	move_stats_begin(engine, move);
	CUresult result = link_copy(engine, move, gap);
	if (result != CUDA_SUCCESS) {
		move_stats_end(engine, move, true);
		log_once("copying memory to the %s: %s", to == CHUNK_HOST ? "host" : "device", real_error_name(result));
		if (!remove_new(move))
			return fill_after_all(engine, rest, move);
		return rest ? undo_turn(engine, rest, move) : migrate_undo(engine, move);
	}
	if (rest)
		deferred_map_drop(engine, rest);
	queue->n++;
	queue->bytes += migration_bytes(&move->transit);
	plan_set(engine->plan, piece, move->transit.units, PLAN_MOVING);
	return MIGRATE_BEGUN;
}

/* ---- ending ---- */

/* The copy has ended: maps the device memory in place of the host memory, unless it is mapped already. */
static void finish_in(struct engine *engine, struct move *move)
{
	struct migration *transit = &move->transit;
	bool is_new = true;

	if (move->mapped != MAPPED_NEW) {
		link_let_go(engine, false);
		/*
		 * If neither can be mapped, submissions are not held back for ever: one that touches the memory gets an
		 * error from the GPU.
		 */
		piece_map(engine, transit, PIECE_EITHER, &is_new);
	}
	move_stats_end(engine, move, !is_new);
	if (is_new)
		settle_new(engine, move);
	else
		piece_arrived(engine, transit, BLOCK_STATE_HOST, move->is_raised);
}

static void finish_out(struct engine *engine, struct move *move)
{
	if (move->mapped == MAPPED_OLD) {
		if (migration_unmap(&move->transit) != CUDA_SUCCESS) {
			move_stats_end(engine, move, true);
			piece_arrived(engine, &move->transit, old_place(move), false);
			return;
		}
		piece_raise(engine, &move->transit);
	}
	move_stats_moved(engine, move);
	move_stats_end(engine, move, false);
	migration_exchange(engine->heap, &move->transit);
	deferred_map_add(engine, &move->transit, !move->copied);
	/* For the plan the piece is on the host: it may be fetched again at once. */
	plan_set(engine->plan, move->transit.piece, move->transit.units, PLAN_HOST);
}

/* The piece stays at its destination, where it is mapped. lost: copies into the old memory may still be in flight. */
static void settle_out(struct engine *engine, struct move *move, bool lost)
{
	move_stats_end(engine, move, false);
	move_stats_moved(engine, move);
	if (lost)
		migration_exchange_lost(engine->heap, &move->transit);
	else
		migration_exchange(engine->heap, &move->transit);
	piece_arrived(engine, &move->transit, BLOCK_STATE_HOST, move->is_raised);
}

/* The copy of a move that was taken back has ended: the spare is free again, and the piece may move. */
static void finish_back(struct engine *engine, struct move *move)
{
	engine->moves.n_back--;
	if (move->mapped == MAPPED_NEW) {
		settle_out(engine, move, false);
		return;
	}
	move_stats_end(engine, move, true);
	migrate_undo(engine, move);
}

static void finish_one(struct engine *engine, struct move *move)
{
	if (move->is_back)
		finish_back(engine, move);
	else if (move->transit.to != CHUNK_DEVICE)
		finish_out(engine, move);
	else
		finish_in(engine, move);
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
		bool out = move->transit.to != CHUNK_DEVICE && !move->is_back;
		if (out && engine->rests.n == DEFERRED_MAPS && !deferred_map_map(engine))
			return any;
		if (out && !pte_contention_learn(engine, move))
			return any;
		if (!move->is_back) /* the time of a move that was taken back says nothing about the link */
			link_ended(queue, move);
		queue->head = (queue->head + 1) % MOVES;
		queue->n--;
		queue->bytes -= migration_bytes(&move->transit);
		finish_one(engine, move);
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

	return queue->n && clock_now() - since > least + STUCK_FACTOR * queue->unit_ns * head->transit.units;
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
	piece_set_where(engine, &move->transit, move->is_measured ? BLOCK_STATE_HOST : old_place(move));
	piece_lower(engine, &move->transit);
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
	return !atomic_load(&engine->channel.dead);
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
				migration_leave_spare(engine->heap, &move->transit);
			migrate_undo(engine, move);
		}
		queue->bytes = 0;
	}
}
