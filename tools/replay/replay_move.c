/*
 * Simulates the mover as far as it takes time: shim/mover/schedule.c and migrate.c with the driver's calls replaced by
 * their durations. In `fast` mode an evicted piece is unmapped and copied, and stays unmapped on the host; a fetched
 * piece is copied and mapped. The mover is one thread: it does one thing after the other, while the links continue.
 */
#include "tools/replay/replay_internal.h"

#include "shim/plan/move_limits.h"

#include <string.h>

/* Duration, in us, of reading a submission: reading a record and informing the plan. */
#define HEAR_US 0.7
/* Maximum number of names of one submission that are remembered (predict.h). */
#define HEARD_MOST  16384
#define PATIENCE_US 50e3

static uint64_t move_reserve(const struct run *run)
{
	return move_limits_reserve(run->device_units * JOB_UNIT, run->job->most_units * JOB_UNIT) / JOB_UNIT;
}

uint64_t move_ahead_units(const struct run *run)
{
	return move_limits_ahead(run->device_units * JOB_UNIT) / JOB_UNIT;
}

uint64_t move_free(const struct run *run)
{
	uint64_t taken = run->in_use + (run->outside + JOB_UNIT - 1) / JOB_UNIT;

	return taken < run->device_units ? run->device_units - taken : 0;
}

void move_listen(struct run *run)
{
	uint32_t pieces[HEARD_MOST];

	for (; run->heard < run->tried; run->heard++) {
		const struct job_event *event = &run->job->events[run->heard];
		uint32_t n = event->n < HEARD_MOST ? event->n : HEARD_MOST;

		if (event->kind != JOB_LAUNCH || !n)
			continue;
		for (uint32_t i = 0; i < n; i++)
			pieces[i] = run->job->named[event->from + i].piece;
		plan_note(run->plan, event->function, pieces, n);
		run->now += HEAR_US;
	}
}

bool move_has_room(const struct run *run, uint32_t piece, bool in)
{
	uint32_t units = run->job->units[piece];

	return in ? move_free(run) >= units : run->on_host + units <= run->host_units;
}

static void move_start(struct run *run, struct lane *lane, uint32_t piece, double more_us)
{
	double bytes = (double)(run->job->units[piece] * JOB_UNIT);
	double begin = lane->free > run->now ? lane->free : run->now;

	double share = run->setting->mode == POLICY_SPILL_FAST ? run->costs->fast_share : run->costs->share;

	lane->free = begin + bytes / (run->costs->gb_per_s * share * 1e3) + more_us;
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

void move_unmap_host(struct run *run, uint32_t piece)
{
	bool busy = run->in.n && run->in.free > run->now;
	struct run_map_cost cost = busy ? run->costs->unmap_host_busy : run->costs->unmap_host;

	if (!run->spots[piece].rests)
		run->now += run_map_us(run, cost, piece);
	run->spots[piece].rests = true;
}

void move_begin_in(struct run *run, uint32_t piece, bool gap)
{
	struct spot *spot = &run->spots[piece];
	uint32_t units = run->job->units[piece];

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
	move_start(run, &run->in, piece, 0);
	if (run->counts) {
		run->result->bytes_in += (double)(units * JOB_UNIT);
		run->result->moves_in++;
	}
}

void move_begin_out(struct run *run, uint32_t piece, bool gap)
{
	uint32_t units = run->job->units[piece];

	run->now += run->costs->begin_us + (gap ? 0 : run->costs->unmap_us);
	run->on_host += units;
	move_start(run, &run->out, piece, gap ? run->costs->breath_us * ((units + 7) / 8) : 0);
	if (run->counts) {
		run->result->bytes_out += (double)(units * JOB_UNIT);
		run->result->moves_out++;
	}
}

/* The piece has arrived. If it was freed on the way, it disappears. */
void move_arrive(struct run *run, uint32_t piece, enum plan_place where)
{
	struct spot *spot = &run->spots[piece];
	uint32_t units = run->job->units[piece];

	if (where == PLAN_DEVICE) {
		run->on_host -= units;
	} else {
		run->in_use -= units;
		run->warm[units < SIZES ? units : SIZES - 1]++;
	}
	spot->rests = where == PLAN_HOST;
	run_place(run, piece, where);
	if (!spot->doomed)
		return;
	spot->doomed = false;
	if (where == PLAN_DEVICE) {
		run->in_use -= units;
		run->warm[units < SIZES ? units : SIZES - 1]++;
	} else {
		run->on_host -= units;
	}
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

bool move_see(struct run *run, bool gap)
{
	bool any = false;

	for (; has_ended(run, &run->out); any = true) {
		uint32_t piece = take_ended(run, &run->out);

		run->now += gap ? run->costs->unmap_us : 0;
		move_arrive(run, piece, PLAN_HOST);
		if (gap && run->spots[piece].where == PLAN_HOST) {
			run->maps[(run->map_head + run->n_maps++) % (run->job->n_pieces + 1)] = piece;
		}
	}
	for (; has_ended(run, &run->in); any = true) {
		uint32_t piece = take_ended(run, &run->in);

		if (!gap)
			map_device(run, false);
		move_arrive(run, piece, PLAN_DEVICE);
	}
	return any;
}

/* ---- choosing ---- */

static bool may_begin(const struct run *run, const struct lane *lane)
{
	uint64_t most = move_limits_under_way(run->device_units * JOB_UNIT, run->job->most_units * JOB_UNIT);

	return !lane->n || (lane->n < MOVES && lane->units * JOB_UNIT < most);
}

static bool cannot_leave(void *argument, uint32_t piece)
{
	const struct run *run = argument;
	const struct job_event *waiter = run_waiter(run);

	if (run_is_busy(argument, piece))
		return true;
	/* The blocks of a waiting submission must not be evicted. */
	for (uint32_t i = 0; waiter && i < waiter->n; i++)
		if (run->job->block_of[run->job->named[waiter->from + i].piece] == run->job->block_of[piece])
			return true;
	return false;
}

static enum plan_answer make_room(struct run *run, uint64_t when, uint32_t units, uint64_t wanted)
{
	enum plan_answer answer = PLAN_FOUND;
	uint32_t victim;

	while (answer == PLAN_FOUND && may_begin(run, &run->out) && move_free(run) + run->out.units < wanted) {
		answer = plan_victim(run->plan, when, units, cannot_leave, run, &victim);
		if (answer != PLAN_FOUND)
			break;
		if (!move_has_room(run, victim, false))
			answer = PLAN_NONE;
		else
			move_begin_out(run, victim, false);
	}
	return run->out.n ? PLAN_FOUND : answer;
}

/* Returns true if the fetch has begun; otherwise *ret_room says whether there may be room soon. */
static bool bring_in(struct run *run, uint32_t piece, uint64_t when, enum plan_answer *ret_room)
{
	uint32_t units = run->job->units[piece];

	if (move_has_room(run, piece, true)) {
		move_begin_in(run, piece, false);
		make_room(run, when, units, move_reserve(run));
		return true;
	}
	*ret_room = make_room(run, when, units, move_reserve(run) + units);
	return false;
}

/* Maps unmapped pieces of a block in addition to the wanted ones. */
static void map_rests(struct run *run, const struct job_event *waiter)
{
	for (uint32_t i = 0; i < waiter->n; i++) {
		uint32_t named = run->job->named[waiter->from + i].piece, block = run->job->block_of[named];

		for (int side = -1; side <= 1; side += 2)
			for (uint32_t piece = named + (uint32_t)side;
			     piece < run->job->n_pieces && run->job->block_of[piece] == block;
			     piece += (uint32_t)side) {
				struct spot *spot = &run->spots[piece];

				if (spot->where != PLAN_HOST || !spot->rests)
					continue;
				spot->rests = false;
				run->now += run_map_us(run, run->costs->map_host, piece);
			}
	}
}

/* Fetches what the waiting submission needs. Returns whether it should go on waiting. */
static bool move_want(struct run *run, const struct job_event *waiter)
{
	bool missing = false;

	for (uint32_t i = 0; i < waiter->n; i++) {
		uint32_t piece = run->job->named[waiter->from + i].piece;
		enum plan_answer room = PLAN_NONE;

		if (run->spots[piece].where == PLAN_MOVING) {
			missing = true;
		} else if (run->spots[piece].where == PLAN_HOST && !run->spots[piece].stays) {
			bool comes = run->in.n == MOVES || bring_in(run, piece, plan_now(run->plan), &room);

			run->starving |= !comes && room != PLAN_NONE;
			missing |= comes || room != PLAN_NONE;
		}
	}
	return missing;
}

static bool see_to_waiter(struct run *run)
{
	const struct job_event *waiter = run_waiter(run);
	double before = run->now;

	run->starving = false;
	if (!waiter)
		return false;
	if (!run->stalled && move_want(run, waiter))
		return run->now != before;
	map_rests(run, waiter);
	run_answer(run);
	return true;
}

static bool look_ahead(struct run *run)
{
	bool any = false;
	uint32_t piece;
	uint64_t when;

	for (unsigned tries = 0; !run->starving && !run->stalled && tries < 64 && may_begin(run, &run->in); tries++) {
		enum plan_answer room;
		uint64_t before = run->out.n;

		if (!plan_fetch(run->plan, move_ahead_units(run), &piece, &when))
			break;
		if (!bring_in(run, piece, when, &room))
			return any || run->out.n != before;
		any = true;
	}
	return any;
}

/* As schedule_for_new() of the library. Returns whether anything changed. */
static bool see_to_new(struct run *run)
{
	enum plan_answer room = make_room(run, plan_now(run->plan), 0, move_reserve(run) + run->room);

	if (move_free(run) < run->room && (run->out.n || (room != PLAN_NONE && run->done < run->submitted)))
		return false;
	run->room = 0;
	run->room_made = true;
	run->cpu = run->now;
	return true;
}

void move_give_up(struct run *run)
{
	run->now += PATIENCE_US;
	run->stalled = true;
}

bool move_round(struct run *run)
{
	move_listen(run);
	bool any = move_see(run, false);

	if (any)
		run_catch_up(run);
	any |= see_to_waiter(run);
	any |= run->room ? see_to_new(run) : look_ahead(run);
	return any;
}
