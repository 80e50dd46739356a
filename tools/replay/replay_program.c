// SPDX-License-Identifier: Apache-2.0
/*
 * Simulates the program and the GPU. A submission whose pieces are all in device memory goes to the GPU; any other
 * waits until the mover has answered. The GPU takes the same time for each submission, and longer if it must read over
 * the link.
 */
#include "shim/plan/governor.h"
#include "shim/plan/piece_sizes.h"
#include "shim/plan/tensors.h"
#include "tools/replay/replay_internal.h"

/* Maximum number of submissions by which the program is ahead of the GPU: the length of drivers' queues. */
#define RUN_AHEAD 1024
#define WAKE_US   20

void run_place(struct run *run, uint32_t piece, enum plan_place where)
{
	run->spots[piece].where = (uint8_t)where;
	if (run->plan)
		plan_set(run->plan, piece, run->job->units[piece],
			 run->spots[piece].stays && where != PLAN_GONE ? PLAN_PINNED : where);
}

const struct job_event *run_waiter(const struct run *run)
{
	return run->asked && !run->answered ? &run->job->events[run->next] : NULL;
}

void run_answer(struct run *run)
{
	run->answered = true;
	run->cpu = run->now + WAKE_US;
}

/* ---- allocations ---- */

/* The figures are reported as they were before that allocation. */
static void program_fail(struct run *run, enum run_end end, const struct job_event *event)
{
	run->failed = true;
	run->result->end = end;
	run->result->block = event->block;
	run->result->rule = event->rule;
	run->result->submitted = run->submitted;
}

static void note_used(struct run *run)
{
	run->result->device_used = run->in_use * JOB_UNIT + run->outside;
	run->result->host_used = run->on_host * JOB_UNIT;
}

void run_note_peaks(struct run *run)
{
	uint64_t device = run->in_use * JOB_UNIT + run->outside, host = run->on_host * JOB_UNIT;

	run->result->peak_device = device > run->result->peak_device ? device : run->result->peak_device;
	run->result->peak_host = host > run->result->peak_host ? host : run->result->peak_host;
}

bool run_take_device(struct run *run, uint32_t units)
{
	uint32_t size = units < SIZES ? units : SIZES - 1;

	run->in_use += units;
	if (run->warm[size]) {
		run->warm[size]--;
		return true;
	}
	for (uint32_t s = SIZES - 1; s > 0 && run->unmade < units; s--)
		for (; run->warm[s] && run->unmade < units; run->warm[s]--)
			run->unmade += s;
	run->unmade -= run->unmade < units ? run->unmade : units;
	return false;
}

void run_give(struct run *run, uint32_t units, enum plan_place where)
{
	run->on_host -= where == PLAN_HOST ? units : 0;
	if (where != PLAN_DEVICE)
		return;
	run->in_use -= units;
	run->warm[units < SIZES ? units : SIZES - 1]++;
}

static bool program_fits(const struct run *run, uint32_t units)
{
	return run->in_use + units + (run->outside + JOB_UNIT - 1) / JOB_UNIT <= run->device_units;
}

/* As spill_room_for_new() of the library. Returns true if the allocation now waits for room. */
static bool waits_for_room(struct run *run, const struct job_event *event)
{
	uint64_t units = 0;

	for (uint32_t i = 0; i < event->n; i++)
		units += run->job->units[run->job->named[event->from + i].piece];
	if (run->room_made || run->setting->mode < POLICY_SPILL_EXACT || event->place == POLICY_PLACE_HOST ||
	    !event->movable || !plan_knows(run->plan) || units > move_limits_new(run->device_units) ||
	    program_fits(run, (uint32_t)units))
		return false;
	run->room = (uint32_t)units;
	return true;
}

/* Places one piece of a new block. */
static enum run_end place_piece(struct run *run, uint32_t piece, const struct job_event *event)
{
	uint32_t units = run->job->units[piece];
	bool device = event->place != POLICY_PLACE_HOST && program_fits(run, units);
	struct spot *spot = &run->spots[piece];

	*spot = (struct spot){.stays = !event->movable};
	if (!device && (event->place == POLICY_PLACE_DEVICE || run->setting->mode == POLICY_SPILL_OFF))
		return RUN_NO_DEVICE;
	if (!device && run->on_host + units > run->host_units)
		return RUN_NO_MEMORY;
	if (device)
		run_take_device(run, units);
	else
		run->on_host += units;
	if (!device && !run->spilled && run->plan) {
		run->spilled = true;
		live_listen(run);
		live_restart(run);
	}
	run_place(run, piece, device ? PLAN_DEVICE : PLAN_HOST);
	return RUN_DONE;
}

static void program_appear(struct run *run, const struct job_event *event)
{
	note_used(run);
	for (uint32_t i = 0; i < event->n && !run->failed; i++) {
		enum run_end end = place_piece(run, run->job->named[event->from + i].piece, event);

		if (end != RUN_DONE)
			program_fail(run, end, event);
	}
	run_note_peaks(run);
}

static void program_disappear(struct run *run, const struct job_event *event)
{
	for (uint32_t i = 0; i < event->n; i++) {
		uint32_t piece = run->job->named[event->from + i].piece, units = run->job->units[piece];
		struct spot *spot = &run->spots[piece];

		if (spot->where == PLAN_MOVING) {
			spot->doomed = true;
			continue;
		}
		run_give(run, units, (enum plan_place)spot->where);
		run_place(run, piece, PLAN_GONE);
	}
}

static void program_charge(struct run *run, const struct job_event *event)
{
	if (event->kind == JOB_RELEASE) {
		run->outside -= event->bytes;
		return;
	}
	run->outside += event->bytes;
	run_note_peaks(run);
}

/* ---- submissions ---- */

static bool is_in(const struct run *run, const struct job_event *event)
{
	for (uint32_t i = 0; i < event->n; i++) {
		const struct spot *spot = &run->spots[run->job->named[event->from + i].piece];

		if (spot->where != PLAN_DEVICE && !(spot->stays && spot->where == PLAN_HOST))
			return false;
	}
	return true;
}

/* Returns the bytes that the submission reads over the link. */
static double over_link(const struct run *run, const struct job_event *event)
{
	double bytes = 0;

	for (uint32_t i = 0; i < event->n; i++) {
		const struct job_named *named = &run->job->named[event->from + i];

		if (run->spots[named->piece].where == PLAN_HOST)
			bytes += named->bytes;
	}
	return bytes;
}

/* Returns the bytes of the pieces that it uses and that are not on the device. */
static double elsewhere(const struct run *run, const struct job_event *event)
{
	uint64_t units = 0;

	for (uint32_t i = 0; i < event->n; i++) {
		uint32_t piece = run->job->named[event->from + i].piece;

		units += run->spots[piece].where == PLAN_DEVICE ? 0 : run->job->units[piece];
	}
	return (double)(units * JOB_UNIT);
}

static void program_submit(struct run *run, const struct job_event *event)
{
	uint64_t number = ++run->submitted;

	for (uint32_t i = 0; i < event->n; i++)
		run->used[run->job->block_of[run->job->named[event->from + i].piece]] = number;
	double start = run->finish[number - 1] > run->cpu ? run->finish[number - 1] : run->cpu;
	double bytes = over_link(run, event);

	run->finish[number] =
	    start + run->costs->launch_us + bytes * run->costs->still_factor / (run->costs->gb_per_s * 1e3);
	if (run->counts) {
		run->result->bytes_link += bytes;
		run->result->bytes_there += elsewhere(run, event);
		run->result->foreseen += run->plan && plan_knows(run->plan);
	}
	run->cpu += run->costs->submit_us;
	run->asked = run->answered = false;
	run->next++;
	if (!run->counts && run->submitted >= run->setting->steps.from) {
		run->counts = true;
		run->begin_us = run->finish[run->submitted];
	}
}

/*
 * Returns whether the block's piece numbers were those of a block that was freed during a move. The library would use
 * other addresses; the simulation waits for the move, which takes a millisecond.
 */
static bool is_on_its_way(const struct run *run, const struct job_event *event)
{
	for (uint32_t i = 0; i < event->n; i++)
		if (run->spots[run->job->named[event->from + i].piece].where == PLAN_MOVING)
			return true;
	return false;
}

/* Handles an allocation or a free. Returns false if it cannot be done yet. */
static bool step_memory(struct run *run, const struct job_event *event)
{
	switch (event->kind) {
	case JOB_NEW:
		if (is_on_its_way(run, event) || waits_for_room(run, event))
			return false;
		run->room_made = false;
		program_appear(run, event);
		break;
	case JOB_GONE:
		program_disappear(run, event);
		break;
	case JOB_DENIED:
		note_used(run);
		program_fail(run, RUN_DENIED, event);
		break;
	case JOB_CHARGE:
	case JOB_RELEASE:
		program_charge(run, event);
		break;
	default: /* what an allocator reports */
		break;
	}
	run->next++;
	if (run->tried < run->next)
		run->tried = run->next;
	return true;
}

/* Handles one event of the program if it happens by now. Returns false if it is later or waits. */
static bool program_step(struct run *run)
{
	const struct job_event *event = &run->job->events[run->next];

	if (run->next == run->job->n_events || run->cpu > run->now || run->failed)
		return false;
	if (event->kind != JOB_LAUNCH)
		return step_memory(run, event);
	if (run->submitted >= RUN_AHEAD && run->finish[run->submitted - RUN_AHEAD + 1] > run->cpu) {
		run->cpu = run->finish[run->submitted - RUN_AHEAD + 1];
		return true;
	}
	if (run->tried <= run->next)
		run->tried = run->next + 1;
	/* A submission that has asked the mover waits for the answer. */
	if (run_moves(run) && !run->answered && (run->asked || !is_in(run, event))) {
		run->asked_at = run->asked ? run->asked_at : run->now;
		run->asked = true;
		return false;
	}
	program_submit(run, event);
	return true;
}

void run_catch_up(struct run *run)
{
	while (program_step(run))
		;
	while (run->done < run->submitted && run->finish[run->done + 1] <= run->now)
		run->done++;
}

static void program_earlier(double *at, double when, double now)
{
	if (when > now && when < *at)
		*at = when;
}

double run_next(const struct run *run)
{
	double at = 1e300;

	if (run->in.n)
		program_earlier(&at, run->in.at[run->in.head].end, run->now);
	if (run->out.n)
		program_earlier(&at, run->out.at[run->out.head].end, run->now);
	if (run->done < run->submitted)
		program_earlier(&at, run->finish[run->done + 1], run->now);
	if (run->next < run->job->n_events && !run_waiter(run) && !run->room)
		program_earlier(&at, run->cpu, run->now);
	return at;
}

/*
 * What the mover hears of the program in a simulated run: submissions, and births and deaths. As in shim/mover/alive.c,
 * the map of what is alive follows them in their order, the plan is told which pieces are dead, and only what is alive
 * is copied.
 */

/* Duration, in us, of reading a submission: reading a record and informing the plan. */
#define HEAR_US 0.7
/* Maximum number of names of one submission that are remembered (predict.h). */
#define HEARD_MOST 16384

/* As piece_at_unit() of shim/mover/piece.c. argument: the run. */
static bool live_piece_at(void *argument, uint32_t unit, uint32_t *ret_piece, uint32_t *ret_past)
{
	const struct run *run = argument;
	const struct job *job = run->job;
	uint32_t piece = unit < job->n_units ? job->piece_at[unit] : REPLAY_NONE;

	if (piece == REPLAY_NONE || run->spots[piece].where == PLAN_GONE)
		return false;
	*ret_piece = piece;
	*ret_past = job->unit_of[piece] + job->units[piece];
	return true;
}

void live_begin(struct run *run)
{
	bool fast = run->setting->mode == POLICY_SPILL_FAST;

	if (!run->live.map)
		return;
	plan_set_pieces(run->plan, live_piece_at, run);
	plan_set_whole(run->plan, fast ? (uint32_t)(tensor_extents_whole(run->setting->budget) / JOB_UNIT) : 0);
}

/* Updates what the plan knows of the pieces that these bytes touch. */
static void tell_plan(struct run *run, uint64_t begin, uint64_t end)
{
	const struct job *job = run->job;
	uint64_t last = (end + JOB_UNIT - 1) / JOB_UNIT;

	for (uint64_t unit = begin / JOB_UNIT; unit < last && unit < job->n_units;) {
		uint32_t piece = job->piece_at[unit];
		uint64_t from = job->unit_of[piece], to = from + job->units[piece];

		if (run->spots[piece].where != PLAN_GONE)
			plan_set_dead(run->plan, piece,
				      live_map_dead_share(run->live.map, from * JOB_UNIT, to * JOB_UNIT,
							  LIVE_IN_THE_END, PLAN_DEAD));
		unit = to;
	}
}

static void forget(struct run *run, const struct job_event *event)
{
	const struct job *job = run->job;

	for (uint32_t i = 0; i < event->n; i++) {
		uint32_t piece = job->named[event->from + i].piece, unit = job->unit_of[piece];
		uint64_t begin = unit * JOB_UNIT, end = begin + job->units[piece] * JOB_UNIT;

		if (unit == REPLAY_NONE)
			continue;
		live_map_forget(run->live.map, begin, end);
		plan_forget(run->plan, begin, end);
	}
}

/* What is known of a report, as a numbered submission would have it. */
static struct live_report report_of(const struct run *run, const struct job_event *event)
{
	return (struct live_report){
	    .number = run->live.number, .own = run->live.own[event->thread], .thread = event->thread};
}

static void live_hear(struct run *run, const struct job_event *event)
{
	uint64_t begin = event->from, end = begin + event->bytes;
	struct live_range range;
	bool revived;

	if (!run->live.map)
		return;
	switch (event->kind) {
	case JOB_LAUNCH:
		run->live.number++;
		run->live.own[event->thread]++;
		live_map_heard(run->live.map, report_of(run, event));
		return;
	case JOB_GONE:
		forget(run, event);
		return;
	case JOB_KEPT:
		live_map_report(run->live.map, begin, end);
		plan_report(run->plan, begin, end);
		break;
	case JOB_BORN:
		live_map_birth(run->live.map, begin, end, report_of(run, event));
		plan_birth(run->plan, begin, end);
		break;
	case JOB_DIED:
		live_map_death(run->live.map, begin, end, report_of(run, event));
		plan_death(run->plan, begin, end);
		break;
	case JOB_REVIVED:
		live_map_name(run->live.map, begin, &range, &revived);
		break;
	case JOB_DOUBTED:
		live_map_distrust(run->live.map, begin, end);
		plan_forget(run->plan, begin, end);
		break;
	case JOB_ALL_DOUBTED:
		live_map_distrust_reported(run->live.map);
		plan_forget(run->plan, 0, run->job->n_units * JOB_UNIT);
		end = run->job->n_units * JOB_UNIT;
		break;
	default:
		return;
	}
	tell_plan(run, begin, end);
}

unsigned live_names(struct run *run, const struct job_event *event)
{
	for (uint32_t i = 0; i < event->n; i++)
		run->named[i] = run->job->named[event->from + i].piece;
	return event->n;
}

/* Tells the plan which tensors the launch names. */
static void name_tensors(struct run *run, const struct job_event *event)
{
	const struct job *job = run->job;
	uint64_t begins[INTAKE_NAMED_AT];
	unsigned n = 0;

	for (uint32_t i = 0; i < event->n_tensors && n < INTAKE_NAMED_AT; i++) {
		uint32_t what = job->tensors[event->tensors + i];

		if (what % 2)
			begins[n++] = job->tensor_begin[what / 2];
	}
	plan_name(run->plan, begins, n);
}

void live_listen(struct run *run)
{
	for (; run->heard < run->tried; run->heard++) {
		const struct job_event *event = &run->job->events[run->heard];

		live_hear(run, event);
		if (event->kind != JOB_LAUNCH || !event->n)
			continue;
		unsigned n = live_names(run, event);
		name_tensors(run, event);
		plan_note(run->plan, event->function, run->named, n < HEARD_MOST ? n : HEARD_MOST);
		run->now += HEAR_US;
	}
}

void live_restart(struct run *run)
{
	if (!run->live.map)
		return;
	live_map_restart(run->live.map);
	tell_plan(run, 0, run->job->n_units * JOB_UNIT);
}

/* Returns whether an event that the mover has not heard of may bring something in these bytes to life. */
static bool may_be_more(const struct run *run, uint32_t piece, uint64_t begin, uint64_t end)
{
	for (size_t at = run->heard; at < run->tried; at++) {
		const struct job_event *event = &run->job->events[at];

		if (event->kind >= JOB_KEPT && event->kind != JOB_DIED && event->kind != JOB_ENDED &&
		    (event->kind == JOB_ALL_DOUBTED || (event->from < end && event->from + event->bytes > begin)))
			return true;
		for (uint32_t i = 0; event->kind == JOB_LAUNCH && i < event->n; i++)
			if (run->job->named[event->from + i].piece == piece)
				return true;
	}
	return false;
}

uint64_t live_bytes(const struct run *run, uint32_t piece, bool gap)
{
	uint64_t all = run->job->units[piece] * JOB_UNIT, begin = run->job->unit_of[piece] * JOB_UNIT, alive = 0;
	bool idle = gap || run->done == run->submitted;
	struct live_now now = {.done = gap ? UINT64_MAX : run->done, .idle = idle ? run->submitted : 0};
	struct live_range parts[ALIVE_RANGES];

	if (!run->live.map || run->job->unit_of[piece] == REPLAY_NONE || may_be_more(run, piece, begin, begin + all))
		return all;
	unsigned n = live_map_alive(run->live.map, begin, begin + all, now, ALIVE_GAP, parts, ALIVE_RANGES);
	for (unsigned i = 0; i < n; i++)
		alive += parts[i].end - parts[i].begin;
	return alive;
}
