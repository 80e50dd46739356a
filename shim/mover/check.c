// SPDX-License-Identifier: Apache-2.0
/*
 * check.c: checked launches (submit/check.h), on the mover's thread: the gap in which one launch runs, while what may
 * move and is not named is unmapped.
 */
#include "shim/base/array.h"
#include "shim/mover/mover.h"
#include "shim/submit/check.h"

#define LOOK_NS 20000

/* Unmaps what the launch does not name, until a thread waits for the heap. */
static void take_away(struct engine *engine, struct unbacked *away)
{
	struct piece_list list = piece_list_all(engine, true);

	for (unsigned i = 0; i < list.n && !heap_is_awaited(engine->heap); i++) {
		uint32_t piece = list.at[i];
		const struct block_state *block = piece_block_state(engine, piece);

		/* What is kept on the device (piece.c) does not move. */
		if (!block || engine->by_piece.at[piece].kept || check_names(&engine->channel.check, block) ||
		    !ARRAY_ROOM(away->at, away->n, away->room, ARRAY_MOST) ||
		    migration_pin(engine->heap, piece, true, &away->at[away->n]) != SW_OK)
			continue;
		if (migration_unmap(&away->at[away->n]) == CUDA_SUCCESS)
			away->n++;
		else
			migration_end(engine->heap, &away->at[away->n]);
	}
	free(list.at);
}

/* Maps the pieces again. faulted: the context is dead, and the driver need not succeed. */
static void give_back(struct engine *engine, struct unbacked *away, bool faulted)
{
	bool unused;

	for (unsigned i = 0; i < away->n; i++) {
		struct migration *migration = &away->at[i];

		if (migration_map(engine->heap, migration, false) != CUDA_SUCCESS && !faulted)
			piece_map(engine, migration, PIECE_OLD, &unused);
		migration_end(engine->heap, migration);
		piece_tell_plan(engine, migration->piece);
	}
	free(away->at);
}

/* In a gap: lets the launch pass, and waits for it. Returns how that ended. */
static enum check_stage wait_for_launch(struct engine *engine)
{
	struct check *check = &engine->channel.check;
	uint64_t until = clock_now() + CHECK_NS;
	enum check_stage stage = CHECK_OPEN;

	atomic_store(&check->stage, CHECK_OPEN);
	while (atomic_load(&check->stage) == CHECK_OPEN && !heap_is_awaited(engine->heap) && !engine_is_over(engine) &&
	       clock_now() < until)
		clock_sleep(LOOK_NS);
	return atomic_compare_exchange_strong(&check->stage, &stage, CHECK_CUT) ? CHECK_CUT : stage;
}

static void run_in_gap(struct engine *engine)
{
	struct check *check = &engine->channel.check;
	enum check_stage stage = CHECK_REFUSED;
	struct unbacked away = {0};

	/* While the process is stopped for another device, no launch may pass. */
	if (!mover_state.quiescing.n_held) {
		take_away(engine, &away);
		check->why = away.n ? LEFT_AWAITED : LEFT_STILL;
		/* Nothing can be refuted where nothing is unmapped. */
		if (away.n && !heap_is_awaited(engine->heap))
			stage = wait_for_launch(engine);
	}
	give_back(engine, &away, stage == CHECK_FAULTED);
	if (stage == CHECK_FAULTED)
		engine_die(engine, "a checked launch has used memory that it does not name");
	quiesce_open(engine);
	/* A check that was cut is the thread's. */
	if (stage != CHECK_CUT)
		atomic_store(&check->stage, stage == CHECK_REFUSED ? CHECK_REFUSED : CHECK_IDLE);
}

void check_run(struct engine *engine, bool drained)
{
	struct check *check = &engine->channel.check;
	enum check_stage asked = CHECK_ASKED;

	if (!atomic_compare_exchange_strong(&check->stage, &asked, CHECK_TAKEN))
		return;
	check->why = engine->exact ? LEFT_STILL : heap_is_awaited(engine->heap) ? LEFT_AWAITED : LEFT_BUSY;
	if (check->why == LEFT_BUSY && drained && !quiesce_is_held(engine) && mode_close_all(engine))
		run_in_gap(engine);
	else
		atomic_store(&check->stage, CHECK_REFUSED);
}
