// SPDX-License-Identifier: Apache-2.0
/*
 * A run: what the mover does, and the loop in which it and the program take turns.
 */
#include "tools/replay/replay_internal.h"
#include "tools/common/grow.h"

#include <stdlib.h>

/*
 * Simulates the mover as far as it takes time. The library's scheduler decides; here the driver's calls that carry its
 * decisions out are replaced by their durations. In `fast` mode an evicted piece is unmapped and copied, and stays
 * unmapped on the host; a fetched piece is copied and mapped. In `exact` mode the device is quiesced when a submission
 * waits: the GPU finishes what it has, then everything is copied and mapped while nothing runs. The mover is one
 * thread: it does one thing after the other, while the links continue.
 */

/* Bytes after each of which the link to the host loses breath_us in a gap. */
#define BREATH ((uint64_t)16 << 20)

static uint64_t move_free(const struct run *run)
{
	uint64_t taken = run->in_use + (run->outside + JOB_UNIT - 1) / JOB_UNIT;

	return taken < run->device_units ? run->device_units - taken : 0;
}

static double move_rate(const struct run *run)
{
	double share = run->setting->mode == POLICY_SPILL_FAST ? run->costs->fast_share : run->costs->share;

	return run->costs->gb_per_s * share * 1e3; /* bytes per us */
}

/* bytes: how many of the piece are copied. */
static void move_start(struct run *run, struct lane *lane, uint32_t piece, uint64_t bytes, double more_us)
{
	double begin = lane->free > run->now ? lane->free : run->now;

	lane->free = begin + (double)bytes / move_rate(run) + more_us;
	lane->at[(lane->head + lane->n++) % MOVES] = (struct moving){piece, lane->free};
	lane->units += run->job->units[piece];
	run_place(run, piece, PLAN_MOVING);
	run_note_peaks(run);
}

/* Maps device memory: at once, or when copies to the host allow it. */
static void map_device(struct run *run, bool gap)
{
	bool busy = run->out.n && run->out.free > run->now;

	run->now += busy ? run->costs->turn_us : run->costs->map_us;
	for (unsigned i = 0; busy && !gap && i < run->out.n; i++)
		run->out.at[(run->out.head + i) % MOVES].end += run->costs->pause_us;
	if (busy && !gap)
		run->out.free += run->costs->pause_us;
}

static void move_unmap_host(struct run *run, uint32_t piece)
{
	bool busy = run->in.n && run->in.free > run->now;
	struct run_map_cost cost = busy ? run->costs->unmap_host_busy : run->costs->unmap_host;

	if (!run->spots[piece].rests)
		run->now += run_map_us(run, cost, piece);
	run->spots[piece].rests = true;
}

static void move_begin_in(struct run *run, uint32_t piece, bool gap)
{
	struct spot *spot = &run->spots[piece];
	uint32_t units = run->job->units[piece];
	/* As in shim/mover/migrate.c: whatever was born where nothing is mapped, nobody can have written there. */
	uint64_t bytes = spot->empty ? 0 : live_bytes(run, piece, gap);

	run->now += run->costs->begin_us;
	if (!run_take_device(run, units)) {
		run->now += gap ? 0 : run->costs->remake_us;
		run->result->remade += run->counts;
	}
	if (gap) {
		move_unmap_host(run, piece);
		map_device(run, true);
	} else if (!spot->rests) {
		run->now += run_map_us(run, run->costs->unmap_host, piece);
	}
	move_start(run, &run->in, piece, bytes, 0);
	if (run->counts) {
		run->result->bytes_in += (double)bytes;
		run->result->dead_in += (double)(units * JOB_UNIT - bytes);
		run->result->moves_in++;
	}
}

static void move_begin_out(struct run *run, uint32_t piece, bool gap)
{
	uint32_t units = run->job->units[piece];
	uint64_t bytes = live_bytes(run, piece, gap);
	double breath_us = run->costs->breath_us * (double)((bytes + BREATH - 1) / BREATH);

	run->now += run->costs->begin_us + (gap ? 0 : run->costs->unmap_us);
	run->on_host += units;
	run->spots[piece].empty = !bytes;
	move_start(run, &run->out, piece, bytes, gap ? breath_us : 0);
	if (run->counts) {
		run->result->bytes_out += (double)bytes;
		run->result->dead_out += (double)(units * JOB_UNIT - bytes);
		run->result->moves_out++;
	}
}

/* The piece has arrived. If it was freed on the way, it disappears. */
static void move_arrive(struct run *run, uint32_t piece, enum plan_place where)
{
	struct spot *spot = &run->spots[piece];
	uint32_t units = run->job->units[piece];

	run_give(run, units, where == PLAN_DEVICE ? PLAN_HOST : PLAN_DEVICE);
	spot->rests = where == PLAN_HOST;
	spot->empty &= spot->rests;
	run_place(run, piece, where);
	if (!spot->doomed)
		return;
	spot->doomed = false;
	run_give(run, units, where);
	run_place(run, piece, PLAN_GONE);
}

static uint32_t take_ended(struct run *run, struct lane *lane)
{
	uint32_t piece = lane->at[lane->head].piece;

	lane->head = (lane->head + 1) % MOVES;
	lane->n--;
	lane->units -= run->job->units[piece];
	return piece;
}

static bool has_ended(const struct run *run, const struct lane *lane)
{
	return lane->n && lane->at[lane->head].end <= run->now;
}

/* In a gap: the piece, which is on the host, must still be mapped. */
static void maps_add(struct run *run, uint32_t piece)
{
	run->maps[(run->map_head + run->n_maps++) % (run->job->n_pieces + 1)] = piece;
}

static void map_host(struct run *run, uint32_t piece)
{
	bool busy = run->in.n || run->out.n;

	run->spots[piece].rests = run->spots[piece].empty = false;
	run->now += run_map_us(run, busy ? run->costs->map_host_busy : run->costs->map_host, piece);
}

/* In a gap: maps evicted pieces, in the order of their evictions. */
static bool map_rest(struct run *run)
{
	if (!run->n_maps)
		return false;
	uint32_t piece = run->maps[run->map_head];

	run->map_head = (run->map_head + 1) % (run->job->n_pieces + 1);
	run->n_maps--;
	/* The piece may have been fetched again meanwhile. */
	if (run->spots[piece].rests)
		map_host(run, piece);
	return true;
}

/* Handles copies that have ended. Returns whether there were any. */
static bool move_see(struct run *run, bool gap)
{
	bool any = false;

	for (; has_ended(run, &run->out); any = true) {
		uint32_t piece = take_ended(run, &run->out);

		run->now += gap ? run->costs->unmap_us : 0;
		move_arrive(run, piece, PLAN_HOST);
		if (gap && run->spots[piece].where == PLAN_HOST)
			maps_add(run, piece);
	}
	for (; has_ended(run, &run->in); any = true) {
		uint32_t piece = take_ended(run, &run->in);

		if (!gap)
			map_device(run, false);
		move_arrive(run, piece, PLAN_DEVICE);
	}
	return any;
}

/* ---- what the scheduler asks for ---- */

static struct scheduler_lane lane_of(const struct run *run, const struct lane *lane)
{
	return (struct scheduler_lane){.n = lane->n,
				       .bytes = lane->units * JOB_UNIT,
				       .unit_ns = (uint64_t)((double)JOB_UNIT / move_rate(run) * 1e3)};
}

static void hand_look(void *hand, struct scheduler_view *ret_view)
{
	const struct run *run = hand;

	*ret_view = (struct scheduler_view){.budget = run->device_units * JOB_UNIT,
					    .largest = run->job->most_units * JOB_UNIT,
					    .free = move_free(run) * JOB_UNIT,
					    .in = lane_of(run, &run->in),
					    .out = lane_of(run, &run->out)};
}

static uint32_t hand_units(void *hand, uint32_t piece)
{
	const struct run *run = hand;

	return run->job->units[piece];
}

static enum plan_place hand_where(void *hand, uint32_t piece)
{
	const struct run *run = hand;

	return run->spots[piece].stays ? PLAN_PINNED : (enum plan_place)run->spots[piece].where;
}

static enum migrate_answer hand_fetch(void *hand, uint32_t piece, bool ahead, bool gap)
{
	struct run *run = hand;

	(void)ahead;
	if (!gap && !run->spots[piece].rests && run->used[run->job->block_of[piece]] > run->done)
		return MIGRATE_BUSY;
	if (run->in.n == MOVES || move_free(run) < run->job->units[piece])
		return MIGRATE_NO_ROOM;
	move_begin_in(run, piece, gap);
	return MIGRATE_BEGUN;
}

static enum migrate_answer hand_evict(void *hand, uint32_t piece, bool gap)
{
	struct run *run = hand;

	if (run->out.n == MOVES || run->on_host + run->job->units[piece] > run->host_units)
		return MIGRATE_NO_ROOM;
	move_begin_out(run, piece, gap);
	return MIGRATE_BEGUN;
}

static bool hand_is_idle(void *hand)
{
	const struct run *run = hand;

	return run->done == run->submitted;
}

static void hand_put_aside(void *hand, uint32_t piece)
{
	struct run *run = hand;

	if (run->n_aside > run->job->n_pieces)
		return;
	run->aside[run->n_aside++] = piece;
	plan_set(run->plan, piece, run->job->units[piece], PLAN_PINNED);
}

static void hand_use_there(void *hand, uint32_t piece)
{
	struct run *run = hand;

	run->spots[piece].comes = false;
}

static void hand_tell_plan(void *hand, uint32_t piece)
{
	struct run *run = hand;

	run_place(run, piece, (enum plan_place)run->spots[piece].where);
}

/* Pieces that the waiting submission names stay in place. */
static bool hand_is_in_use(void *hand, uint32_t piece)
{
	const struct run *run = hand;
	const struct job_event *waiter = run_waiter(run);

	for (uint32_t i = 0; waiter && i < waiter->n; i++)
		if (run->job->named[waiter->from + i].piece == piece)
			return true;
	return false;
}

static bool hand_is_busy(void *hand, uint32_t piece)
{
	const struct run *run = hand;

	return run->used[run->job->block_of[piece]] > run->done || hand_is_in_use(hand, piece);
}

static void move_init(struct run *run)
{
	static const struct scheduler_ops ops = {
	    .look = hand_look,
	    .units = hand_units,
	    .where = hand_where,
	    .fetch = hand_fetch,
	    .evict = hand_evict,
	    .is_idle = hand_is_idle,
	    .put_aside = hand_put_aside,
	    .use_there = hand_use_there,
	    .tell_plan = hand_tell_plan,
	    .is_busy = hand_is_busy,
	    .is_in_use = hand_is_in_use,
	};

	run->scheduler.ops = &ops;
	run->scheduler.hand = run;
	run->scheduler.plan = run->plan;
}

/* ---- beside kernels ---- */

static void see_progress(struct run *run)
{
	if (run->done == run->seen)
		return;
	run->seen = run->done;
	run->progressed = run->now;
	run->scheduler.stalled = false;
	while (run->n_aside)
		hand_tell_plan(run, run->aside[--run->n_aside]);
}

/* Maps what is unmapped of the submission's blocks, but not what is about to be fetched. */
static void map_blocks_of(struct run *run, const struct job_event *waiter)
{
	for (uint32_t i = 0; i < waiter->n; i++) {
		uint32_t named = run->job->named[waiter->from + i].piece, block = run->job->block_of[named];

		for (int side = -1; side <= 1; side += 2)
			for (uint32_t piece = side < 0 ? named : named + 1;
			     piece < run->job->n_pieces && run->job->block_of[piece] == block;
			     piece += (uint32_t)side) {
				struct spot *spot = &run->spots[piece];

				if (spot->where != PLAN_HOST || !spot->rests || spot->comes)
					continue;
				map_host(run, piece);
			}
	}
}

/* Returns whether anything was done. */
static bool see_to_waiter(struct run *run)
{
	const struct job_event *waiter = run_waiter(run);
	double before = run->now, since = run->asked_at > run->progressed ? run->asked_at : run->progressed;
	enum scheduler_wait answer = SCHEDULER_GIVEN_UP;

	run->scheduler.starving = false;
	if (!waiter)
		return false;
	unsigned n = live_names(run, waiter);
	for (unsigned i = 0; i < n; i++)
		run->spots[run->named[i]].comes = !run->scheduler.stalled;
	if (!run->scheduler.stalled)
		answer =
		    scheduler_wait(&run->scheduler,
				   &(struct scheduler_named){
				       .pieces = run->named, .n = n, .age = (uint64_t)((before - run->asked_at) * 1e3)},
				   (uint64_t)((before - since) * 1e3));
	for (unsigned i = 0; i < n && answer == SCHEDULER_GIVEN_UP; i++)
		run->spots[run->named[i]].comes = false;
	map_blocks_of(run, waiter);
	if (answer == SCHEDULER_WAITS)
		return run->now != before;
	run_answer(run);
	return true;
}

/* An allocation waits for room. Returns whether it goes on. */
static bool see_to_new(struct run *run)
{
	bool hopeful = !run->scheduler.stalled && scheduler_for_new(&run->scheduler, run->room * JOB_UNIT);

	if (hopeful && move_free(run) < run->room)
		return false;
	run->room = 0;
	run->room_made = true;
	run->cpu = run->now;
	return true;
}

static bool look_ahead(struct run *run)
{
	double before = run->now;

	if (!run->scheduler.stalled)
		scheduler_ahead(&run->scheduler);
	return run->now != before;
}

/* Does everything that the mover does at one moment, in `fast`. Returns whether there was anything to do. */
static bool move_round(struct run *run)
{
	live_listen(run);
	see_progress(run);
	bool any = move_see(run, false);

	if (any)
		run_catch_up(run);
	any |= see_to_waiter(run);
	any |= run->room ? see_to_new(run) : look_ahead(run);
	return any;
}

/* ---- in gaps ---- */

static void gap_begin(struct run *run)
{
	double idle = run->finish[run->submitted];

	run->now = (idle > run->now ? idle : run->now) + run->costs->gap_us;
	run->done = run->submitted;
	run->result->gaps += run->counts;
}

/* Passes the time until the next copy ends. */
static void gap_nap(struct run *run)
{
	double next = 1e300;

	if (run->in.n)
		next = run->in.at[run->in.head].end;
	if (run->out.n && run->out.at[run->out.head].end < next)
		next = run->out.at[run->out.head].end;
	if (next != 1e300)
		run->now = (next > run->now ? next : run->now) + run->costs->look_us;
}

/* Unmaps a piece that will be fetched. Returns false if there is none. */
static bool gap_unmap_early(struct run *run)
{
	uint32_t piece;

	if (!scheduler_gap_early(&run->scheduler, &piece))
		return false;
	move_unmap_host(run, piece);
	return true;
}

static void gap_end(struct run *run)
{
	const struct wishes *wishes = &run->scheduler.wishes;

	while (run->in.n || run->out.n)
		if (!move_see(run, true) && !map_rest(run))
			gap_nap(run);
	/* Pieces that were unmapped and not fetched are mapped again. */
	for (unsigned i = 0; i < wishes->early; i++)
		if (run->spots[wishes->at[i].piece].where == PLAN_HOST && run->spots[wishes->at[i].piece].rests)
			maps_add(run, wishes->at[i].piece);
	while (map_rest(run))
		;
	scheduler_gap_end(&run->scheduler);
}

static void gap_for_new(struct run *run)
{
	bool can = true;

	if (scheduler_gap_pays_for_new(&run->scheduler)) {
		gap_begin(run);
		while (scheduler_gap_round_for_new(&run->scheduler, run->room * JOB_UNIT, &can))
			if (!move_see(run, true) && !map_rest(run))
				gap_nap(run);
		gap_end(run);
		run->cpu = run->now;
	}
	run->room = 0;
	run->room_made = true;
}

/* Does everything that the mover does at one moment, in `exact`. Returns whether there was anything to do. */
static bool gap_round(struct run *run)
{
	live_listen(run);
	if (run->room) {
		gap_for_new(run);
		return true;
	}
	const struct job_event *waiter = run_waiter(run);
	if (!waiter)
		return false;
	scheduler_wish_named(&run->scheduler,
			     &(struct scheduler_named){.pieces = run->named, .n = live_names(run, waiter)});
	scheduler_wish_ahead(&run->scheduler);
	if (scheduler_gap_pays(&run->scheduler)) {
		gap_begin(run);
		while (scheduler_has_wishes(&run->scheduler)) {
			scheduler_gap_round(&run->scheduler);
			if (!move_see(run, true) && !map_rest(run) && !gap_unmap_early(run))
				gap_nap(run);
		}
		gap_end(run);
	}
	scheduler_forget_wishes(&run->scheduler);
	run_answer(run);
	return true;
}

/*
 * Runs a job: the program and the mover in turn, until the job is over.
 */

#define PATIENCE_US 50e3

struct run_costs run_costs_default(void)
{
	return (struct run_costs){
	    .gb_per_s = 50.6,
	    .share = 0.85,
	    .fast_share = 0.95,
	    .submit_us = 10,
	    .look_us = 20,
	    .begin_us = 15,
	    .unmap_us = 25,
	    .turn_us = 170,
	    .map_us = 40,
	    .pause_us = 80,
	    .remake_us = 250,
	    .map_host = {105, 7.8},
	    .map_host_busy = {190, 12.4},
	    .unmap_host = {32, 1.95},
	    .unmap_host_busy = {60, 4.5},
	    .breath_us = 17,
	    .gap_us = 100,
	    .still_factor = 1.55,
	};
}

static void run_moving(struct run *run)
{
	bool exact = run->setting->mode == POLICY_SPILL_EXACT;
	uint64_t rounds = 0;

	for (;;) {
		run_catch_up(run);
		if (run->failed || (run->next == run->job->n_events && !run->in.n && !run->out.n))
			return;
		if (run->setting->progress && ++rounds % 4096 == 0)
			run->setting->progress(run->setting->argument, (double)run->next / (double)run->job->n_events);
		double before = run->now;
		if (exact ? gap_round(run) : move_round(run))
			continue;
		double next = run_next(run);
		/*
		 * Reading submissions took time, and everything pending happened meanwhile: catch up with it first.
		 */
		if (next == 1e300 && run->now > before)
			continue;
		/* A program that waits in vain goes on when the scheduler has lost patience. */
		if (next == 1e300 && run_waiter(run)) {
			run->now += PATIENCE_US;
			continue;
		}
		if (next == 1e300) {
			run->failed = true;
			run->result->end = RUN_STUCK;
			run->result->submitted = run->submitted;
			return;
		}
		run->now = next + run->costs->look_us;
	}
}

static void run_finish(struct run *run)
{
	struct run_result *result = run->result;
	double n = run->setting->steps.n;
	double *const per_step[] = {&result->bytes_in,   &result->bytes_out,   &result->dead_in,  &result->dead_out,
				    &result->bytes_link, &result->bytes_there, &result->moves_in, &result->moves_out,
				    &result->gaps,       &result->remade,      &result->foreseen};

	if (run->submitted && !run->failed)
		result->step_ms = (run->finish[run->submitted] - run->begin_us) / 1e3 / n;
	for (size_t i = 0; i < sizeof(per_step) / sizeof(*per_step); i++)
		*per_step[i] /= n;
}

void run_job(const struct job *job, const struct run_setting *setting, struct run_result *ret_result)
{
	struct run run = {
	    .job = job,
	    .setting = setting,
	    .costs = &setting->costs,
	    .result = ret_result,
	    .spots = calloc((size_t)job->n_pieces + 1, sizeof(*run.spots)),
	    .used = calloc((size_t)job->n_lives + 1, sizeof(*run.used)),
	    .finish = calloc(job->n_launches + 1, sizeof(*run.finish)),
	    .maps = calloc((size_t)job->n_pieces + 1, sizeof(*run.maps)),
	    .named = calloc((size_t)job->n_pieces + 1, sizeof(*run.named)),
	    .aside = calloc((size_t)job->n_pieces + 1, sizeof(*run.aside)),
	    .device_units = setting->budget / JOB_UNIT,
	    .host_units = setting->host_budget / JOB_UNIT,
	    .unmade = setting->budget / JOB_UNIT,
	};

	*ret_result = (struct run_result){0};
	if (run_moves(&run))
		run.plan = plan_new(setting->mode == POLICY_SPILL_EXACT ? PLAN_IN_GAPS : PLAN_BESIDE_KERNELS);
	if (run.plan && job->model->n_births) {
		run.live.map = live_map_new(job->n_units * JOB_UNIT);
		run.live.own = calloc(UINT16_MAX + 1, sizeof(*run.live.own));
	}
	live_begin(&run);
	bool lives = !run.plan || !job->model->n_births || (run.live.map && run.live.own);
	if (!lives || !run.spots || !run.finish || !run.maps || !run.named || !run.aside || !run.used ||
	    (run_moves(&run) && !run.plan)) {
		ret_result->end = RUN_BROKEN;
	} else {
		move_init(&run);
		run.counts = setting->steps.from == 0;
		if (run_moves(&run)) {
			run_moving(&run);
		} else {
			run.now = 1e300;
			run_catch_up(&run);
		}
		run_finish(&run);
	}
	plan_free(run.plan);
	FREE_ALL(run.spots, run.finish, run.maps, run.named, run.aside, run.used, run.live.own);
	live_map_free(run.live.map);
}
