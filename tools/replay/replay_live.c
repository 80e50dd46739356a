/*
 * What the mover hears of the program in a simulated run: submissions, and births and deaths. As in shim/mover/alive.c, the
 * map of what is alive follows them in their order, the plan is told which pieces are dead, and only what is alive is
 * copied.
 */
#include "shim/plan/sizes.h"
#include "shim/plan/tensor_extents.h"
#include "tools/replay/replay_internal.h"

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

static const struct live_now in_the_end = {.done = UINT64_MAX, .unfinished = true};

/* Updates what the plan knows of the pieces that these bytes touch. */
static void tell_plan(struct run *run, uint64_t begin, uint64_t end)
{
	const struct job *job = run->job;
	uint64_t last = (end + JOB_UNIT - 1) / JOB_UNIT;

	for (uint64_t unit = begin / JOB_UNIT; unit < last && unit < job->n_units;) {
		uint32_t piece = job->piece_at[unit];
		uint64_t from = job->unit_of[piece], to = from + job->units[piece];

		if (run->spots[piece].where != PLAN_GONE)
			plan_set_dead(
			    run->plan, piece,
			    live_map_dead_share(run->live.map, from * JOB_UNIT, to * JOB_UNIT, in_the_end, PLAN_DEAD));
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
