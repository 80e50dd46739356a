/*
 * Simulates `exact` mode. When a submission waits, the device is quiesced: the GPU finishes what it has. Then the
 * pieces that are wanted and those that are predicted are copied and mapped while nothing runs. The mover does all
 * mappings, and each takes longer while copies run.
 */
#include "tools/replay/replay_internal.h"

#include "shim/plan/move_limits.h"

static void gap_wish(struct run *run, uint32_t piece, uint64_t when)
{
	if (run->n_wishes == WISHES)
		return;
	run->wishes[run->n_wishes] = piece;
	run->wish_when[run->n_wishes++] = when;
	run->wish_units += run->job->units[piece];
	plan_set(run->plan, piece, run->job->units[piece], PLAN_MOVING);
}

static void gap_collect(struct run *run, const struct job_event *waiter)
{
	uint64_t ahead = move_ahead_units(run), when;
	uint32_t piece;

	run->n_wishes = run->next_wish = run->early = 0;
	run->wish_units = 0;
	for (uint32_t i = 0; i < waiter->n; i++) {
		piece = run->job->named[waiter->from + i].piece;
		if (run->spots[piece].where == PLAN_HOST && !run->spots[piece].stays)
			gap_wish(run, piece, plan_now(run->plan));
	}
	while (run->n_wishes && run->wish_units < ahead && plan_fetch(run->plan, ahead, &piece, &when))
		gap_wish(run, piece, when);
}

/* Only blocks named by the waiting submission stay in place. */
static bool is_spoken_for(void *argument, uint32_t piece)
{
	const struct run *run = argument;
	const struct job_event *waiter = run_waiter(run);

	for (uint32_t i = 0; waiter && i < waiter->n; i++)
		if (run->job->block_of[run->job->named[waiter->from + i].piece] == run->job->block_of[piece])
			return true;
	return false;
}

static bool make_room(struct run *run, unsigned at)
{
	uint32_t victim;

	for (;;) {
		if (plan_victim(run->plan, run->wish_when[at], run->job->units[run->wishes[at]], is_spoken_for, run,
				&victim) != PLAN_FOUND)
			return false;
		if (move_has_room(run, victim, false)) {
			move_begin_out(run, victim, true);
			return true;
		}
		if (run->out.n || run->n_refused == 64)
			return run->out.n != 0;
		plan_set(run->plan, victim, run->job->units[victim], PLAN_PINNED);
		run->refused[run->n_refused++] = victim;
	}
}

/* Serves one wish. Returns true if it is done. */
static bool gap_grant(struct run *run, unsigned at)
{
	uint32_t piece = run->wishes[at], units = run->job->units[piece];

	if (run->in.n >= MOVES_AT_ONCE)
		return false;
	if (move_has_room(run, piece, true)) {
		move_begin_in(run, piece, true);
		return true;
	}
	if (run->out.n >= MOVES_AT_ONCE || (run->out.n && move_free(run) + run->out.units >= units) ||
	    make_room(run, at) || run->out.n)
		return false;
	run_place(run, piece, PLAN_HOST);
	return true;
}

static void go_ahead(struct run *run)
{
	uint64_t wanted = 0;

	for (unsigned i = run->next_wish; i < run->n_wishes && run->out.n < MOVES_AT_ONCE; i++) {
		wanted += run->job->units[run->wishes[i]];
		if (wanted > move_free(run) + run->out.units && !make_room(run, i))
			return;
	}
}

/* Maps evicted pieces, in the order of their evictions. */
static bool map_rest(struct run *run)
{
	if (!run->n_maps)
		return false;
	uint32_t piece = run->maps[run->map_head];
	bool busy = run->in.n || run->out.n;
	struct run_map_cost cost = busy ? run->costs->map_host_busy : run->costs->map_host;

	run->map_head = (run->map_head + 1) % (run->job->n_pieces + 1);
	run->n_maps--;
	/* The piece may have been fetched again meanwhile. */
	if (run->spots[piece].rests) {
		run->spots[piece].rests = false;
		run->now += run_map_us(run, cost, piece);
	}
	return true;
}

/* Unmaps the pieces to fetch next while there is no room for them yet. */
static bool unmap_early(struct run *run)
{
	if (run->early < run->next_wish)
		run->early = run->next_wish;
	if (run->early >= run->n_wishes)
		return false;
	move_unmap_host(run, run->wishes[run->early++]);
	return true;
}

static void pass_time(struct run *run)
{
	double next = 1e300;

	if (run->in.n)
		next = run->in.at[run->in.head].end;
	if (run->out.n && run->out.at[run->out.head].end < next)
		next = run->out.at[run->out.head].end;
	if (next != 1e300)
		run->now = (next > run->now ? next : run->now) + run->costs->look_us;
}

static void run_gap(struct run *run)
{
	run->n_refused = 0;
	while (run->next_wish < run->n_wishes) {
		while (run->next_wish < run->n_wishes && gap_grant(run, run->next_wish))
			run->next_wish++;
		go_ahead(run);
		if (!move_see(run, true) && !map_rest(run) && !unmap_early(run))
			pass_time(run);
	}
	while (run->in.n || run->out.n)
		if (!move_see(run, true) && !map_rest(run))
			pass_time(run);
	/* Pieces that were unmapped and not fetched are mapped again. */
	for (unsigned i = 0; i < run->early; i++)
		if (run->spots[run->wishes[i]].where == PLAN_HOST && run->spots[run->wishes[i]].rests)
			run->maps[(run->map_head + run->n_maps++) % (run->job->n_pieces + 1)] = run->wishes[i];
	while (map_rest(run))
		;
	for (unsigned i = 0; i < run->n_refused; i++)
		run_place(run, run->refused[i], PLAN_DEVICE);
}

/* ---- for new blocks, as quiesce_orders.c has it ---- */

static bool send_out(struct run *run, uint64_t when)
{
	uint32_t victim;

	if (plan_victim(run->plan, when, 0, is_spoken_for, run, &victim) != PLAN_FOUND ||
	    !move_has_room(run, victim, false))
		return false;
	move_begin_out(run, victim, true);
	return true;
}

static void send_out_for_new(struct run *run)
{
	uint64_t now = plan_now(run->plan), later = now + move_limits_not_soon(plan_period(run->plan));
	uint64_t all = run->room + move_ahead_units(run);

	for (;;) {
		uint64_t there = move_free(run) + run->out.units;

		if (there < all && run->out.n < MOVES_AT_ONCE && send_out(run, there < run->room ? now : later))
			continue;
		if (!run->out.n)
			break;
		if (!move_see(run, true) && !map_rest(run))
			pass_time(run);
	}
	while (map_rest(run))
		;
}

static void stop_gpu(struct run *run)
{
	double idle = run->finish[run->submitted];

	run->now = (idle > run->now ? idle : run->now) + run->costs->gap_us;
	run->done = run->submitted;
	run->result->gaps += run->counts;
}

static void make_room_for_new(struct run *run)
{
	uint32_t victim;

	if (plan_victim(run->plan, plan_now(run->plan), 0, NULL, NULL, &victim) == PLAN_FOUND) {
		stop_gpu(run);
		send_out_for_new(run);
		run->cpu = run->now;
	}
	run->room = 0;
	run->room_made = true;
}

/* Returns whether any piece could be evicted for the first wish. Otherwise stopping the GPU is useless. */
static bool is_worth_it(struct run *run)
{
	uint32_t victim;

	return run->n_wishes &&
	       (move_has_room(run, run->wishes[0], true) ||
		plan_victim(run->plan, run->wish_when[0], 0, is_spoken_for, run, &victim) == PLAN_FOUND);
}

bool gap_round(struct run *run)
{
	const struct job_event *waiter;

	move_listen(run);
	if (run->room) {
		make_room_for_new(run);
		return true;
	}
	waiter = run_waiter(run);
	if (!waiter)
		return false;
	gap_collect(run, waiter);
	if (is_worth_it(run)) {
		/* The GPU must first finish the submissions in flight. */
		stop_gpu(run);
		run_gap(run);
	}
	for (unsigned i = run->next_wish; i < run->n_wishes; i++)
		run_place(run, run->wishes[i], PLAN_HOST);
	run_answer(run);
	return true;
}
