/*
 * `exact`: when a submission waits, the GPU comes to an end with what it has; then what is wanted and what is foreseen is
 * copied and mapped while nothing runs, and what came out is mapped by two threads, the mover and the mapper (mapper.c).
 */
#include "tools/replay_inside.h"

static void wish(struct run *run, uint32_t piece, uint64_t when)
{
	if (run->n_wishes == WISHES)
		return;
	run->wishes[run->n_wishes] = piece;
	run->wish_when[run->n_wishes++] = when;
	run->wish_units += run->job->units[piece];
	plan_set(run->plan, piece, run->job->units[piece], PLAN_MOVING);
}

static void collect(struct run *run, const struct job_event *waiter)
{
	uint64_t ahead = move_ahead_units(run), when;
	uint32_t piece;

	run->n_wishes = run->next_wish = 0;
	run->wish_units = 0;
	for (uint32_t i = 0; i < waiter->n; i++) {
		piece = run->job->named[waiter->from + i].piece;
		if (run->spots[piece].where == PLAN_HOST && !run->spots[piece].stays)
			wish(run, piece, plan_now(run->plan));
	}
	while (run->n_wishes && run->wish_units < ahead && plan_fetch(run->plan, ahead, &piece, &when))
		wish(run, piece, when);
}

/* Only what who waits has named keeps its place. */
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

/* True: the wish is over. */
static bool grant(struct run *run, unsigned at)
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

static double map_us(const struct run *run, uint32_t piece)
{
	bool busy = run->in.n || run->out.n;
	double us = busy ? run->costs->map_host_busy_us : run->costs->map_host_us;

	return us * 2 * run->job->units[piece];
}

/* The mapper takes what it can have begun by now. */
static void let_mapper_map(struct run *run)
{
	while (run->n_maps) {
		const struct mapping *first = &run->maps[run->map_head];
		double begin = run->mapper > first->given ? run->mapper : first->given;

		if (begin > run->now)
			return;
		run->mapper = begin + map_us(run, first->piece);
		run->spots[first->piece].rests = false;
		run->map_head = (run->map_head + 1) % (run->job->n_pieces + 1);
		run->n_maps--;
	}
}

/* The mover takes the latest itself. */
static bool map_beside(struct run *run)
{
	let_mapper_map(run);
	if (!run->n_maps)
		return false;
	const struct mapping *last = &run->maps[(run->map_head + run->n_maps - 1) % (run->job->n_pieces + 1)];
	run->n_maps--;
	run->spots[last->piece].rests = false;
	run->now += map_us(run, last->piece);
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
		while (run->next_wish < run->n_wishes && grant(run, run->next_wish))
			run->next_wish++;
		go_ahead(run);
		if (!move_see(run, true) && !map_beside(run))
			pass_time(run);
	}
	while (run->in.n || run->out.n)
		if (!move_see(run, true) && !map_beside(run))
			pass_time(run);
	while (map_beside(run))
		;
	run->now = run->mapper > run->now ? run->mapper : run->now;
	for (unsigned i = 0; i < run->n_refused; i++)
		run_place(run, run->refused[i], PLAN_DEVICE);
}

/* Could anything leave for the first wish? Else there is no use in stopping the GPU. */
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
	waiter = run_waiter(run);
	if (!waiter)
		return false;
	collect(run, waiter);
	if (is_worth_it(run)) {
		/* What the GPU has must end first. */
		double idle = run->finish[run->submitted];

		run->now = (idle > run->now ? idle : run->now) + run->costs->gap_us;
		run->done = run->submitted;
		run->mapper = run->now;
		run_gap(run);
		run->result->gaps += run->counts;
	}
	for (unsigned i = run->next_wish; i < run->n_wishes; i++)
		run_place(run, run->wishes[i], PLAN_HOST);
	run_answer(run);
	return true;
}
