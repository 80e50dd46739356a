/*
 * Simulates the program and the GPU. A submission whose pieces are all in device memory goes to the GPU; any other
 * waits until the mover has answered. The GPU takes the same time for each submission, and longer if it must read over
 * the link.
 */
#include "tools/replay/replay_internal.h"

#include "shim/plan/move_limits.h"

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
		if (spot->where == PLAN_DEVICE) {
			run->in_use -= units;
			run->warm[units < SIZES ? units : SIZES - 1]++;
		} else if (spot->where == PLAN_HOST) {
			run->on_host -= units;
		}
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
	if (run->tried <= run->next) {
		run->tried = run->next + 1;
		for (uint32_t i = 0; i < event->n; i++)
			run->last[run->job->block_of[run->job->named[event->from + i].piece]] = run->submitted + 1;
	}
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
	while (run->done < run->submitted && run->finish[run->done + 1] <= run->now) {
		run->done++;
	}
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
