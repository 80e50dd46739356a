/*
 * Recall of memory of this heap that other devices have lent and need back (budget.h). A piece goes from where it is to
 * a peer that has room, or to the host, so no other memory has to leave the device for it. In `fast`, pieces leave
 * beside what runs, like all evictions. In `exact`, they leave in separate gaps, with host memory pinned before:
 * another device waits for the memory, so this one does not stand still for more than a few pieces, and then runs for
 * as long as the gap took.
 *
 * A busy piece is tried again. A piece that must stay (pin.c) stays.
 */
#include "shim/mover/mover_internal.h"

/* ns: between two searches of the heap, and between two attempts if there is no room. */
#define LOOK_NS 1000000
#define FULL_NS 200000000

static void recall_hear(void *argument, uint32_t piece)
{
	struct engine *engine = argument;

	piece_list_add(&engine->recall.pieces, piece);
}

static bool is_lent(const struct engine *engine, uint32_t piece, uint32_t *ret_units)
{
	enum chunk_place place;
	uint32_t block;

	return heap_piece(engine->heap, piece, ret_units, &place, &block) && place == CHUNK_PEER;
}

static void recall_rest(struct engine *engine, uint64_t ns)
{
	engine->recall.not_before = clock_now() + ns;
}

/* Begins to move the next piece. Returns false if there is none, or no room. */
static bool send_next(struct engine *engine, bool gap)
{
	uint32_t units;

	while (engine->recall.pieces.n) {
		uint32_t piece = engine->recall.pieces.at[--engine->recall.pieces.n];

		if (!is_lent(engine, piece, &units))
			continue;
		enum migrate_answer answer = migrate_begin(engine, piece, CHUNK_HOST, gap);
		if (answer == MIGRATE_NO_ROOM)
			recall_rest(engine, FULL_NS);
		if (answer == MIGRATE_BEGUN || answer == MIGRATE_NO_ROOM)
			return answer == MIGRATE_BEGUN;
	}
	recall_rest(engine, LOOK_NS);
	return false;
}

/* Pins host memory for the next pieces, before the device is quiesced. */
static void pin_for_next(struct engine *engine)
{
	uint64_t bytes = 0;
	uint32_t units;

	for (unsigned i = 0; i < MOVES_AT_ONCE && i < engine->recall.pieces.n; i++) {
		if (!is_lent(engine, engine->recall.pieces.at[engine->recall.pieces.n - 1 - i], &units))
			continue;
		bytes += units * HEAP_UNIT;
		if (heap_idle_host(engine->heap) < bytes && heap_make_host_spare(engine->heap, units) != SW_OK)
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
		recall_rest(engine, clock_now() - begun);
}

void recall_run(struct engine *engine)
{
	uint64_t wanted = heap_wanted(engine->heap), now = wanted ? clock_now() : 0;

	if (!wanted || now < engine->recall.not_before || !schedule_can_move(engine) || !link_open(engine) ||
	    (engine->exact && now < engine->quiesce.not_before))
		return;
	heap_give_back_lent(engine->heap);
	if (!engine->recall.pieces.n)
		heap_wanted_pieces(engine->heap, recall_hear, engine);
	if (!engine->recall.pieces.n) {
		recall_rest(engine, LOOK_NS);
		return;
	}
	if (engine->exact) {
		send_in_gap(engine, wanted);
		return;
	}
	while (schedule_may_evict(engine) && engine->moves.out.bytes < wanted && send_next(engine, false))
		;
}
