// SPDX-License-Identifier: Apache-2.0
/*
 * gpu_job.h with jobs on GPUs that are a few numbers, in virtual time. Each process looks when chance lets it, at what
 * the others have published by then, and takes some time for each step.
 */
#include "shim/plan/gpu_job.h"
#include "test/check.h"
#include "test/test.h"
#include "test/unit/seed.h"

#define QUANTUM (20 * MS)

enum { MOST = 12, DEVICES = 3 };

struct process {
	bool alive, busy; /* busy: in a step until `until` */
	uint32_t device, job;
	enum gpu_job_step step;
	uint64_t until;
	struct gpu_job_lead lead;
	struct gpu_job_claim claim; /* its own; what the others see is in the seat */
	uint64_t served, n, worked;
};

/* GPUs, and what is published about them. */
static struct scene {
	uint64_t now;
	unsigned n;
	uint32_t fails; /* one of so many tries to stop or to return fails; 0: none */
	uint32_t rests; /* one of so many looks while it is away sees it begin or cease to wait for its turn; 0: none */
	struct process processes[MOST];
	struct gpu_job_view view; /* all seats: what is published */
	struct gpu_turn_member members[MOST];
} scene;

static uint32_t seat_of(unsigned process)
{
	/* Seats are ordered by device; the slot is the number of the process. */
	for (uint32_t i = 0; i < scene.view.n; i++)
		if (scene.view.seats[i].slot == process)
			return i;
	return 0;
}

static void begin(void)
{
	memset(&scene, 0, sizeof(scene));
	scene.now = 1000 * MS;
	for (unsigned i = 0; i < GPU_JOB_DEVICES; i++)
		scene.view.turns[i] = (struct gpu_job_turn){.on = true, .number = 1, .holder = GPU_TURN_NOBODY};
}

/* job: its name. */
static void add(uint32_t device, uint32_t job)
{
	struct process *process = &scene.processes[scene.n];

	*process = (struct process){.alive = true, .device = device, .job = job};
	process->claim = (struct gpu_job_claim){.process = 1000 + scene.n,
						.name = job,
						.phase = GPU_JOB_LEAVE,
						.state = RESIDENCE_AWAY,
						.wants = scene.now};
	uint32_t at = scene.view.n++;

	for (; at && scene.view.seats[at - 1].device > device; at--)
		scene.view.seats[at] = scene.view.seats[at - 1];
	scene.view.seats[at] =
	    (struct gpu_job_seat){.device = device, .slot = scene.n, .takes_part = true, .claim = process->claim};
	scene.n++;
}

/* A job of two, each on a GPU of its own, of which it has the turn. */
static void begin_pair(void)
{
	begin();
	for (uint32_t i = 0; i < 2; i++) {
		add(i, 1);
		scene.view.turns[i].holder = i;
	}
	gpu_job_find(&scene.view);
}

/* ---- what a process does: as lifecycle/turn.c ---- */

/* The members of its device, folded. Stores the unit of the process and which process stands for each unit. */
static struct gpu_turn_view fold(struct gpu_job_view *view, struct gpu_turn_member units[MOST], uint32_t *ret_self,
				 uint32_t first[MOST])
{
	const uint32_t me = view->self;
	const struct gpu_job_seat *self = &view->seats[me];
	uint32_t n = 0, numbers[MOST], unit[MOST], who[MOST], holder = GPU_TURN_NOBODY;
	struct gpu_turn_view turns = {.now = scene.now, .total = 16 * GIB, .members = scene.members, .on = true};

	for (uint32_t i = 0; i < view->n; i++) {
		const struct gpu_job_seat *seat = &view->seats[i];
		const struct process *process = &scene.processes[seat->slot];

		if (seat->device != self->device)
			continue;
		scene.members[n] =
		    (struct gpu_turn_member){.needs = 10 * GIB,
					     .claim = {.kind = seat->takes_part ? GPU_TURN_ON : GPU_TURN_OFF,
						       .weight = 1,
						       .beat = scene.now,
						       .quantum = QUANTUM,
						       .patience = 1000 * MS,
						       .served = process->served,
						       .n = process->n}};
		view->self = i;
		scene.members[n].claim.waits = gpu_job_waits(view);
		who[n] = seat->slot;
		numbers[n++] = seat->job;
	}
	view->self = me;
	turns.n = n;
	turns.n = gpu_job_fold(&turns, numbers, units, unit);
	for (uint32_t i = n; i-- > 0;) {
		if (who[i] == self->slot)
			*ret_self = unit[i];
		if (who[i] == view->turns[self->device].holder)
			holder = unit[i];
		first[unit[i]] = who[i];
	}
	turns.members = units;
	turns.holder = holder;
	turns.since = scene.processes[self->slot].worked;
	return turns;
}

static void pass(uint32_t device, uint32_t to)
{
	scene.view.turns[device].number++;
	scene.view.turns[device].holder = to;
}

static void publish(unsigned i)
{
	scene.view.seats[seat_of(i)].claim = scene.processes[i].claim;
}

/* What this process reads; a view has room for many more seats than are used. */
static void read_view(struct gpu_job_view *ret_view, unsigned i)
{
	memcpy(ret_view, &scene.view, offsetof(struct gpu_job_view, seats) + scene.view.n * sizeof(*scene.view.seats));
	ret_view->self = seat_of(i);
	gpu_job_find(ret_view);
}

static void give_on(struct gpu_job_view *view, struct gpu_turn_view *turns, struct gpu_turn_member *units,
		    uint32_t self, const uint32_t first[MOST])
{
	turns->holder = GPU_TURN_NOBODY;
	units[self].claim.waits = 0;
	uint32_t next = gpu_turn_next(turns);

	next = next == GPU_TURN_NOBODY ? next : first[next];
	pass(view->seats[view->self].device, next);
	gpu_job_given(view, next);
}

/* While its memory leaves. */
static void look_while_leaving(unsigned i)
{
	struct gpu_turn_member units[MOST];
	static struct gpu_job_view view; /* large */
	uint32_t self = 0, first[MOST];

	scene.view.now = scene.now;
	read_view(&view, i);
	struct gpu_turn_view turns = fold(&view, units, &self, first);
	if (turns.holder == self && gpu_job_speaks(&view) && gpu_job_is_done(&view))
		give_on(&view, &turns, units, self, first);
}

static void look(struct seed *dice, unsigned i)
{
	struct process *process = &scene.processes[i];
	struct gpu_turn_member units[MOST];
	static struct gpu_job_view view; /* large */
	uint32_t self = 0, first[MOST];

	if (scene.rests && process->claim.state == RESIDENCE_AWAY && !seed_below(dice, scene.rests))
		process->claim.wants = process->claim.wants ? 0 : scene.now;
	publish(i);
	scene.view.now = scene.now;
	read_view(&view, i);
	struct gpu_turn_view turns = fold(&view, units, &self, first);

	process->claim.over = 0;
	if (turns.holder == GPU_TURN_NOBODY) {
		uint32_t next = gpu_turn_next(&turns);

		if (next != GPU_TURN_NOBODY)
			pass(process->device, first[next]);
	} else if (gpu_job_speaks(&view) && gpu_job_is_done(&view)) {
		give_on(&view, &turns, units, self, first);
	} else if (gpu_job_speaks(&view) && gpu_job_holds(&view) && process->claim.state == RESIDENCE_RUNS) {
		process->claim.over = gpu_turn_next(&turns) != self;
	}
	if (gpu_job_leads(&view))
		gpu_job_choose(&view, &process->lead, &process->claim);
	else
		gpu_job_follow(&view, &process->claim);
	process->step = gpu_job_next(&view, &process->claim);
	process->busy = process->step != GPU_JOB_STAYS;
	process->until = scene.now + seed_below(dice, 8) * MS;
	/* No memory moves while any of the job runs. */
	if (process->step == GPU_JOB_LEAVES || process->step == GPU_JOB_RETURNS)
		for (unsigned j = 0; j < scene.n; j++)
			assert_false(scene.processes[j].alive && scene.processes[j].job == process->job &&
				     scene.processes[j].claim.state == RESIDENCE_RUNS);
	/* Nor without the turn, which it may have just given on. */
	read_view(&view, i);
	assert_true(process->step != GPU_JOB_RETURNS || gpu_job_holds(&view));
	if (process->step == GPU_JOB_OPENS && process->claim.state == RESIDENCE_BACK)
		for (unsigned j = 0; j < scene.n; j++)
			assert_false(scene.processes[j].alive && scene.processes[j].job == process->job &&
				     scene.processes[j].claim.state == RESIDENCE_AWAY);
	publish(i);
}

static void finish(struct seed *dice, unsigned i)
{
	struct process *process = &scene.processes[i];
	bool fails = scene.fails && !seed_below(dice, scene.fails);

	process->busy = false;
	if (process->step == GPU_JOB_RETURNS || process->step == GPU_JOB_OPENS)
		process->claim.ran = scene.view.turns[process->device].number;
	if (fails && (process->step == GPU_JOB_STOPS || process->step == GPU_JOB_RETURNS))
		process->claim.failed = process->claim.attempt;
	else if (process->step == GPU_JOB_STOPS)
		process->claim.state = RESIDENCE_STOPPED;
	else if (process->step == GPU_JOB_LEAVES)
		process->claim.state = RESIDENCE_AWAY;
	else if (process->step == GPU_JOB_RETURNS)
		process->claim.state = RESIDENCE_BACK;
	if (process->step == GPU_JOB_OPENS) {
		if (process->claim.state == RESIDENCE_BACK)
			process->n++, process->worked = scene.now;
		process->claim.state = RESIDENCE_RUNS;
	}
	process->claim.wants = process->claim.state == RESIDENCE_AWAY ? scene.now : 0;
	publish(i);
}

/* Of each GPU, at most one job runs. */
static void check(void)
{
	for (unsigned i = 0; i < scene.n; i++)
		for (unsigned j = 0; j < i; j++) {
			const struct process *a = &scene.processes[i], *b = &scene.processes[j];

			assert_false(a->alive && b->alive && a->device == b->device && a->job != b->job &&
				     a->claim.state == RESIDENCE_RUNS && b->claim.state == RESIDENCE_RUNS);
		}
}

static void run_for(struct seed *dice, uint64_t ns)
{
	for (uint64_t end = scene.now + ns; scene.now < end; scene.now += MS / 2) {
		for (unsigned i = 0; i < scene.n; i++) {
			struct process *process = &scene.processes[i];

			if (!process->alive)
				continue;
			if (process->claim.state == RESIDENCE_RUNS)
				process->served += MS / 2 * 100;
			if (process->busy && scene.now >= process->until)
				finish(dice, i);
			else if (process->busy && process->step == GPU_JOB_LEAVES && !seed_below(dice, 6))
				look_while_leaving(i);
			else if (!process->busy && !seed_below(dice, 6))
				look(dice, i);
		}
		check();
	}
}

static void kill_one(unsigned i)
{
	uint32_t seat = seat_of(i), *holder = &scene.view.turns[scene.processes[i].device].holder;

	scene.processes[i].alive = false;
	/* The account gives its turn to another process of the job. */
	bool held = *holder == i;

	if (held)
		*holder = GPU_TURN_NOBODY;
	for (unsigned j = 0; j < scene.n && held && *holder == GPU_TURN_NOBODY; j++)
		if (scene.processes[j].alive && scene.processes[j].device == scene.processes[i].device &&
		    gpu_job_share(&scene.processes[j].claim, &scene.processes[i].claim))
			*holder = j;
	scene.view.n--;
	for (; seat < scene.view.n; seat++)
		scene.view.seats[seat] = scene.view.seats[seat + 1];
}

/* Each process that lives gets so many turns in that time, or runs for as long as they take: it may be alone. */
static void all_get_turns(struct seed *dice, uint64_t ns, uint64_t turns)
{
	uint64_t from[MOST], served[MOST];

	for (unsigned i = 0; i < scene.n; i++) {
		from[i] = scene.processes[i].n;
		served[i] = scene.processes[i].served;
	}
	run_for(dice, ns);
	for (unsigned i = 0; i < scene.n; i++)
		assert_true(!scene.processes[i].alive || scene.processes[i].n >= from[i] + turns ||
			    scene.processes[i].served >= served[i] + turns * QUANTUM * 100);
}

/* ---- who is of one job ---- */

static struct gpu_job_claim of(uint64_t process, uint64_t name)
{
	return (struct gpu_job_claim){.process = process, .name = name};
}

TEST(jobs_are_found_by_names_and_processes)
{
	static const uint64_t names[] = {0, 8, 7, 0, 7, 8, 0};
	static const uint64_t processes[] = {100, 101, 102, 100, 104, 105, 106};
	static const uint32_t jobs[] = {0, 1, 2, 0, 2, 1, 6};
	static struct gpu_job_view view;

	view = (struct gpu_job_view){.n = 7};
	for (uint32_t i = 0; i < view.n; i++)
		view.seats[i] = (struct gpu_job_seat){.takes_part = true, .claim = of(processes[i], names[i])};
	gpu_job_find(&view);
	for (uint32_t i = 0; i < view.n; i++)
		assert_int_equal(view.seats[i].job, jobs[i]);
	/* A seat that has no name yet is of the job of its process. */
	view.seats[6].claim = of(105, 0);
	gpu_job_find(&view);
	assert_int_equal(view.seats[6].job, 1);
	view.seats[6].claim = of(106, 0);
	gpu_job_find(&view);
	view.self = 6;
	assert_false(gpu_job_is_many(&view));
	view.self = 5;
	assert_true(gpu_job_is_many(&view));
	/* A rest counts for all of the job. */
	view.seats[1].claim.refuses_until = 5;
	assert_int_equal(gpu_job_refuses_until(&view), 5);
	view.self = 6;
	assert_int_equal(gpu_job_refuses_until(&view), 0);
	/* Nobody is of a job by an id that is not there. */
	struct gpu_job_claim a = of(0, 0), b = of(0, 0);
	assert_false(gpu_job_share(&a, &b));
}

TEST(a_job_is_one_member_of_turns)
{
	struct gpu_turn_member members[5], units[5];
	uint32_t numbers[] = {3, 1, 3, 1, 3}, unit[5];
	struct gpu_turn_view view = {.now = 1000 * MS, .total = 16 * GIB, .members = members, .n = 5};

	for (uint32_t i = 0; i < 5; i++)
		members[i] = (struct gpu_turn_member){.needs = (1 + i) * GIB,
						      .may_have = GIB,
						      .stuck = i,
						      .claim = {.kind = i == 4   ? GPU_TURN_OFF
									: i == 2 ? GPU_TURN_ON
										 : GPU_TURN_AUTO,
								.weight = 1 + i,
								.beat = view.now - i,
								.away = i != 3,
								.waits = i * MS,
								.idle = i == 1 ? 0 : 5 + i}};
	assert_int_equal(gpu_job_fold(&view, numbers, units, unit), 3);
	static const uint32_t expected[] = {0, 1, 0, 1, 2};
	assert_memory_equal(unit, expected, sizeof(expected));
	assert_int_equal(units[0].needs, 4 * GIB);
	assert_int_equal(units[0].may_have, 2 * GIB);
	assert_int_equal(units[0].stuck, 2);
	assert_int_equal(units[0].claim.kind, GPU_TURN_ON);
	assert_int_equal(units[0].claim.weight, 3);
	assert_int_equal(units[0].claim.beat, view.now);
	assert_int_equal(units[0].claim.waits, 2 * MS);
	assert_int_equal(units[0].claim.idle, 7);
	assert_int_equal(units[0].claim.away, 1);
	assert_int_equal(units[1].claim.kind, GPU_TURN_AUTO);
	assert_int_equal(units[1].claim.away, 0);
	assert_int_equal(units[1].claim.idle, 0);
	assert_int_equal(units[1].claim.waits, MS);
	assert_int_equal(units[2].claim.kind, GPU_TURN_OFF);
	assert_int_equal(units[2].needs, 5 * GIB);
}

/* It gives such a turn on (gpu_job_is_done), and must not take memory for it in the same look. */
TEST(a_job_does_not_return_to_a_turn_that_it_does_not_want)
{
	struct gpu_job_claim claim = {.phase = GPU_JOB_LEAVE, .state = RESIDENCE_AWAY};
	struct gpu_job_lead lead = {0};

	begin_pair();
	for (uint32_t i = 0; i < 2; i++)
		scene.view.seats[i].claim.wants = 0;
	assert_true(gpu_job_leads(&scene.view) && gpu_job_is_done(&scene.view));
	assert_false(gpu_job_choose(&scene.view, &lead, &claim));
	assert_int_equal(claim.phase, GPU_JOB_LEAVE);
	/* As soon as one of it does, it returns. */
	scene.view.seats[1].claim.wants = scene.now;
	assert_false(gpu_job_is_done(&scene.view));
	assert_false(gpu_job_choose(&scene.view, &lead, &claim));
	assert_int_equal(claim.phase, GPU_JOB_RETURN);
}

/* One that ends runs and has nothing to return; the leader would order a return and take it back at each look. */
TEST(a_job_does_not_return_while_one_of_it_runs)
{
	struct gpu_job_claim claim = {.phase = GPU_JOB_RUN, .state = RESIDENCE_AWAY};
	struct gpu_job_lead lead = {0};

	begin_pair();
	for (uint32_t i = 0; i < 2; i++)
		scene.view.seats[i].claim.phase = GPU_JOB_RUN;
	scene.view.seats[1].claim.state = RESIDENCE_RUNS;
	assert_true(gpu_job_leads(&scene.view));
	for (unsigned look = 0; look < 4; look++) {
		gpu_job_choose(&scene.view, &lead, &claim);
		assert_int_equal(claim.phase, GPU_JOB_RUN);
	}
	assert_int_equal(gpu_job_next(&scene.view, &claim), GPU_JOB_RETURNS);
}

/* Its memory is back, and it goes on, when the leader orders a stop: it runs a moment later. */
TEST(no_memory_leaves_before_one_that_just_goes_on_has_read_the_order)
{
	struct gpu_job_claim *seats[2];
	struct gpu_job_lead lead = {0};

	begin_pair();
	for (uint32_t i = 0; i < 2; i++)
		seats[i] = &scene.view.seats[i].claim;
	seats[0]->phase = GPU_JOB_STOP_ALL;
	seats[0]->attempt = 7;
	seats[0]->state = RESIDENCE_STOPPED;
	seats[1]->attempt = 6;
	seats[1]->state = RESIDENCE_BACK;
	struct gpu_job_claim claim = *seats[0];
	assert_false(gpu_job_choose(&scene.view, &lead, &claim));
	assert_int_equal(claim.phase, GPU_JOB_STOP_ALL);
	seats[1]->attempt = 7;
	assert_false(gpu_job_choose(&scene.view, &lead, &claim));
	assert_int_equal(claim.phase, GPU_JOB_LEAVE);
}

/* The next job fetches its memory meanwhile; one that has not read that all leave may go on. */
TEST(the_turn_is_given_on_while_memory_leaves)
{
	begin_pair();
	for (uint32_t i = 0; i < 2; i++) {
		scene.view.seats[i].claim.state = RESIDENCE_STOPPED;
		scene.view.seats[i].claim.wants = 0;
	}
	for (enum gpu_job_phase phase = GPU_JOB_RUN; phase <= GPU_JOB_RETURN; phase++) {
		scene.view.seats[1].claim.phase = phase;
		assert_true(gpu_job_is_done(&scene.view) == (phase == GPU_JOB_LEAVE));
	}
	scene.view.seats[1].claim.phase = GPU_JOB_LEAVE;
	scene.view.seats[1].claim.state = RESIDENCE_RUNS;
	assert_false(gpu_job_is_done(&scene.view));
	scene.view.seats[1].claim.state = RESIDENCE_AWAY;
	assert_true(gpu_job_is_done(&scene.view));
	/* Another one leads by now, and has not said so: what is away will follow it, and what is stopped may go on. */
	struct gpu_job_claim *leader = &scene.view.seats[0].claim;
	scene.view.seats[1].claim.state = RESIDENCE_STOPPED;
	leader->state = RESIDENCE_AWAY;
	for (leader->phase = GPU_JOB_RUN; leader->phase <= GPU_JOB_RETURN; leader->phase++)
		assert_true(gpu_job_is_done(&scene.view) == (leader->phase == GPU_JOB_LEAVE));
	leader->phase = GPU_JOB_LEAVE;
	leader->attempt++;
	assert_false(gpu_job_is_done(&scene.view));
}

/* One has lost its turn, or has no memory: the others do not wait for room any more. */
TEST(memory_does_not_come_when_one_of_the_job_could_not)
{
	struct gpu_job_claim *leader = &scene.view.seats[0].claim, *other = &scene.view.seats[1].claim;

	begin_pair();
	for (uint32_t i = 0; i < 2; i++) {
		scene.view.seats[i].claim.phase = GPU_JOB_RETURN;
		scene.view.seats[i].claim.attempt = 3;
	}
	for (scene.view.self = 0; scene.view.self < 2; scene.view.self++) {
		assert_true(gpu_job_is_to_come(&scene.view));
		other->failed = 3;
		assert_false(gpu_job_is_to_come(&scene.view));
		other->failed = 2;
		leader->phase = GPU_JOB_LEAVE;
		assert_false(gpu_job_is_to_come(&scene.view));
		leader->phase = GPU_JOB_RUN;
		assert_true(gpu_job_is_to_come(&scene.view));
		scene.view.turns[scene.view.self].holder = GPU_TURN_NOBODY;
		assert_false(gpu_job_is_to_come(&scene.view));
		leader->phase = GPU_JOB_RETURN;
	}
}

TEST(all_of_a_job_run_or_none)
{
	struct seed dice = seed_start("gpu_job_test");

	begin();
	for (uint32_t i = 0; i < 3; i++)
		add(0, 1);
	for (uint32_t i = 0; i < 3; i++)
		add(0, 2 + i);
	all_get_turns(&dice, 5000 * MS, 10);
	/* A job's time counts once. */
	uint64_t job = scene.processes[0].served, other = scene.processes[3].served;
	assert_true(job > other / 2 && job < other * 2);
}

TEST(crossed_jobs_do_not_wait_for_each_other)
{
	struct seed dice = seed_start("gpu_job_test");

	/* Both on both GPUs. */
	begin();
	for (uint32_t i = 0; i < 4; i++)
		add(i % 2, 1 + i / 2);
	all_get_turns(&dice, 5000 * MS, 10);
	/* Three, in a circle of pairs of GPUs, each with two processes on one of them, and one alone on each. */
	begin();
	for (uint32_t i = 0; i < 3; i++) {
		add(i, 1 + i);
		add(i, 1 + i);
		add((i + 1) % 3, 1 + i);
		add(i, 10 + i);
	}
	all_get_turns(&dice, 10000 * MS, 5);
}

TEST(random_jobs_with_deaths_and_failures_go_on)
{
	struct seed dice = seed_start("gpu_job_test");

	for (unsigned round = 0; round < 20; round++) {
		begin();
		scene.fails = (uint32_t)seed_below(&dice, 2) * 20;
		scene.rests = (uint32_t)seed_below(&dice, 2) * 20;
		unsigned n = 4 + (unsigned)seed_below(&dice, MOST - 3), jobs = 2 + (unsigned)seed_below(&dice, 4);

		for (unsigned i = 0; i < n; i++)
			add((uint32_t)seed_below(&dice, DEVICES), 1 + (uint32_t)seed_below(&dice, jobs));
		for (unsigned i = 0; i < n / 2; i++) {
			unsigned dies = (unsigned)seed_below(&dice, n);

			run_for(&dice, seed_below(&dice, 1000) * MS);
			if (scene.processes[dies].alive)
				kill_one(dies);
		}
		all_get_turns(&dice, 8000 * MS, 2);
	}
}
