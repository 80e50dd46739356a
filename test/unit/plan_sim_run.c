/*
 * Time in a simulation is in microseconds. The GPU runs launches in order; the CPU submits one when all its pieces are
 * in device memory. The mover answers to every event (a submission, the end of a transfer, of a launch): what the
 * waiting launch lacks comes first, then what the plan wants; for each a victim is sent out when there is no room. A
 * piece counts against the budget from the moment it is chosen until it is out. The link is full duplex.
 */
#include "test/unit/plan_sim.h"
#include "shim/plan/plan.h"

#include <stdlib.h>
#include <time.h>

#define QUEUE 256

struct transfer {
	uint32_t piece;
	double done; /* < 0: waits for room */
};

struct queue {
	struct transfer item[QUEUE];
	unsigned head, n;
	double link_free; /* when the link can take the next */
};

struct run {
	const struct sim_trace *trace;
	const struct sim_setting *setting;
	struct sim_result *result;
	struct plan *plan;
	double now;
	uint8_t *place;      /* by piece */
	uint32_t *last;      /* by piece: the last launch that named it, from 1 */
	uint64_t used_units; /* in device memory or on the way, both ways, or promised to what waits for room */
	uint64_t leaving;    /* of these, on the way out */
	struct queue in, out;
	double *finish;           /* by launch, from 1: when the GPU is past it */
	uint32_t submitted, done; /* launches */
	const struct sim_event *waiting;
	bool measuring;
	double clock_ns; /* what measuring itself costs */
};

static double clock_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double plan_begin(const struct run *run)
{
	return run->setting->time_plan && run->measuring ? clock_now() : 0;
}

static void plan_end(struct run *run, double begin)
{
	if (begin != 0) {
		run->result->plan_ns += clock_now() - begin - run->clock_ns;
		run->result->plan_calls++;
	}
}

static void set(struct run *run, uint32_t piece, enum plan_place place)
{
	double begin = plan_begin(run);

	plan_set(run->plan, piece, run->trace->units[piece], place);
	plan_end(run, begin);
	run->place[piece] = (uint8_t)place;
}

static bool busy(void *argument, uint32_t piece)
{
	struct run *run = argument;

	return run->last[piece] > run->done;
}

static void transfer_start(struct run *run, struct queue *queue, struct transfer *transfer)
{
	double bytes = (double)(run->trace->units[transfer->piece] * SIM_UNIT);
	double begin = queue->link_free > run->now ? queue->link_free : run->now;

	queue->link_free = begin + bytes / (run->setting->gb_per_s * 1e3);
	transfer->done = queue->link_free + run->setting->latency_us;
	if (run->measuring)
		*(queue == &run->in ? &run->result->bytes_in : &run->result->bytes_out) += (uint64_t)bytes;
}

static void queue_add(struct run *run, struct queue *queue, uint32_t piece, bool start)
{
	struct transfer *transfer = &queue->item[(queue->head + queue->n++) % QUEUE];

	*transfer = (struct transfer){.piece = piece, .done = -1};
	set(run, piece, PLAN_MOVING);
	if (start)
		transfer_start(run, queue, transfer);
}

/* Send victims out until the piece has room, now or when they are out. False: not possible at this time. */
static bool make_room(struct run *run, uint32_t units, uint64_t when)
{
	while (run->used_units - run->leaving + units > run->setting->budget_units) {
		uint32_t victim;

		if (run->out.n >= run->setting->in_flight)
			return false;
		double begin = plan_begin(run);
		enum plan_answer answer =
		    plan_victim(run->plan, when, run->setting->order ? units : 0, busy, run, &victim);
		plan_end(run, begin);
		if (answer != PLAN_FOUND)
			return false;
		if (run->place[victim] != PLAN_DEVICE || busy(run, victim))
			abort(); /* what the planner must never do */
		run->leaving += run->trace->units[victim];
		run->result->victims += run->measuring;
		queue_add(run, &run->out, victim, true);
	}
	return true;
}

static bool wanted(struct run *run, uint32_t *ret_piece, uint64_t *ret_when)
{
	const struct sim_event *event = run->waiting;

	for (uint32_t i = 0; event && i < event->n; i++)
		if (run->place[run->trace->pieces[event->from + i]] == PLAN_HOST) {
			*ret_piece = run->trace->pieces[event->from + i];
			*ret_when = plan_now(run->plan);
			return true;
		}
	double begin = plan_begin(run);
	bool found = plan_fetch(run->plan, run->setting->ahead_units, ret_piece, ret_when);
	plan_end(run, begin);
	return found;
}

static void mover(struct run *run)
{
	uint32_t piece;
	uint64_t when;

	while (run->in.n < run->setting->in_flight && wanted(run, &piece, &when)) {
		if (run->place[piece] != PLAN_HOST)
			abort();
		if (!make_room(run, run->trace->units[piece], when))
			break;
		run->used_units += run->trace->units[piece];
		run->result->fetches += run->measuring;
		queue_add(run, &run->in, piece, false);
	}
	/* In order: the first that has no room yet keeps the others back, they were promised it. */
	uint64_t promised = 0;
	for (unsigned i = 0; i < run->in.n; i++)
		if (run->in.item[(run->in.head + i) % QUEUE].done < 0)
			promised += run->trace->units[run->in.item[(run->in.head + i) % QUEUE].piece];
	for (unsigned i = 0; i < run->in.n; i++) {
		struct transfer *transfer = &run->in.item[(run->in.head + i) % QUEUE];
		uint32_t units = run->trace->units[transfer->piece];

		if (transfer->done >= 0)
			continue;
		if (run->used_units - promised + units > run->setting->budget_units)
			break;
		promised -= units;
		transfer_start(run, &run->in, transfer);
	}
}

static void finish_transfers(struct run *run)
{
	struct transfer *transfer;

	while (run->out.n && (transfer = &run->out.item[run->out.head])->done <= run->now) {
		run->out.head = (run->out.head + 1) % QUEUE;
		run->out.n--;
		run->used_units -= run->trace->units[transfer->piece];
		run->leaving -= run->trace->units[transfer->piece];
		set(run, transfer->piece, PLAN_HOST);
	}
	while (run->in.n && (transfer = &run->in.item[run->in.head])->done >= 0 && transfer->done <= run->now) {
		run->in.head = (run->in.head + 1) % QUEUE;
		run->in.n--;
		set(run, transfer->piece, PLAN_DEVICE);
	}
}

static bool complete(const struct run *run)
{
	for (uint32_t i = 0; i < run->waiting->n; i++)
		if (run->place[run->trace->pieces[run->waiting->from + i]] != PLAN_DEVICE)
			return false;
	return true;
}

static void earlier(double *at, double candidate, double now)
{
	if (candidate > now && candidate < *at)
		*at = candidate;
}

/* To the next thing that happens. False: nothing ever will. */
static bool advance(struct run *run)
{
	double at = 1e300;

	if (run->in.n)
		earlier(&at, run->in.item[run->in.head].done, run->now);
	if (run->out.n)
		earlier(&at, run->out.item[run->out.head].done, run->now);
	if (run->done < run->submitted)
		earlier(&at, run->finish[run->done + 1], run->now);
	if (at == 1e300)
		return false;
	run->now = at;
	while (run->done < run->submitted && run->finish[run->done + 1] <= run->now)
		run->done++;
	finish_transfers(run);
	return true;
}

static bool launch(struct run *run, const struct sim_event *event)
{
	uint32_t number = run->submitted + 1;
	double submit_at = run->now + run->setting->submit_us;

	run->waiting = event;
	for (uint32_t i = 0; i < event->n; i++)
		run->last[run->trace->pieces[event->from + i]] = number;
	double begin = plan_begin(run);
	plan_note(run->plan, event->function, run->trace->pieces + event->from, event->n);
	plan_end(run, begin);
	run->result->foreseen += run->measuring && plan_knows(run->plan);
	for (;;) {
		mover(run);
		if (run->now >= submit_at && complete(run) && number - run->done <= run->setting->run_ahead)
			break;
		double before = run->now;
		if (!advance(run) || (before < submit_at && run->now > submit_at)) {
			if (run->now < submit_at || before < submit_at)
				run->now = submit_at; /* events in between are taken up at the next round */
			else
				return false;
			while (run->done < run->submitted && run->finish[run->done + 1] <= run->now)
				run->done++;
		}
	}
	double start =
	    run->submitted && run->finish[run->submitted] > run->now ? run->finish[run->submitted] : run->now;
	run->finish[number] = start + run->setting->launch_us;
	run->submitted = number;
	run->waiting = NULL;
	return true;
}

static void appear(struct run *run, const struct sim_event *event)
{
	for (uint32_t i = 0; i < event->n; i++) {
		uint32_t piece = run->trace->pieces[event->from + i], units = run->trace->units[piece];
		bool fits = run->used_units + units <= run->setting->budget_units;

		run->used_units += fits ? units : 0;
		set(run, piece, fits ? PLAN_DEVICE : PLAN_HOST);
	}
}

static void disappear(struct run *run, const struct sim_event *event)
{
	for (uint32_t i = 0; i < event->n; i++) {
		uint32_t piece = run->trace->pieces[event->from + i];

		while (run->place[piece] == PLAN_MOVING && advance(run))
			;
		if (run->place[piece] == PLAN_DEVICE)
			run->used_units -= run->trace->units[piece];
		set(run, piece, PLAN_GONE);
	}
}

static bool run_all(struct run *run)
{
	double begin = 0;

	for (uint32_t e = 0; e < run->trace->n_events; e++) {
		const struct sim_event *event = &run->trace->events[e];

		if (event->kind == SIM_NEW)
			appear(run, event);
		else if (event->kind == SIM_GONE)
			disappear(run, event);
		else if (!launch(run, event))
			return false;
		if (!run->measuring && run->submitted >= run->setting->from) {
			run->measuring = true;
			begin = run->submitted ? run->finish[run->submitted] : 0;
		}
	}
	run->result->ms = (run->finish[run->submitted] - begin) / 1e3;
	return true;
}

bool sim_run(const struct sim_trace *trace, const struct sim_setting *setting, struct sim_result *ret_result)
{
	struct run run = {
	    .trace = trace,
	    .setting = setting,
	    .result = ret_result,
	    .plan = plan_new(PLAN_BESIDE_KERNELS),
	    .place = calloc(trace->n_units, 1),
	    .last = calloc(trace->n_units, sizeof(uint32_t)),
	    .finish = calloc(trace->n_launches + 1, sizeof(double)),
	};

	*ret_result = (struct sim_result){0};
	run.clock_ns = 1e9;
	for (int i = 0; i < 1000; i++) {
		double begin = clock_now(), cost = clock_now() - begin;
		run.clock_ns = cost < run.clock_ns ? cost : run.clock_ns;
	}
	bool done = run_all(&run);
	plan_free(run.plan);
	free(run.place);
	free(run.last);
	free(run.finish);
	return done;
}
