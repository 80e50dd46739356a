// SPDX-License-Identifier: Apache-2.0
/*
 * gpu_turn.h on a GPU that is a few numbers, in virtual time: jobs that work without a pause, in bursts, and at random.
 */
#include "shim/plan/gpu_turn.h"
#include "test/check.h"
#include "test/test.h"
#include "test/unit/seed.h"

#define SECOND UINT64_C(1000000000)
#define LOOK   (5 * MS)
#define TOTAL  (16 * GIB)

enum { MOST = 8, FIRST = 2 }; /* FIRST: a holder has so many switches before another goes first */

/* Work arrives by itself: `work` ns of it every `period`, or without end if that is 0. */
struct job {
	uint64_t work, period, until;              /* until: ns: it ends then; 0: never */
	uint64_t left, due;                        /* ns of work that has arrived; when the next arrives */
	uint64_t waited_most, answered_most, came; /* came: when the work that is left arrived */
	uint64_t left_before;                      /* of what arrived before */
	bool away, was_waiting;
};

/* A GPU and those that share it. */
static struct scene {
	struct gpu_turn_member members[MOST];
	struct job jobs[MOST];
	struct gpu_turn_view view;
	uint64_t cost;  /* ns of a switch */
	uint64_t idle;  /* ns in which nobody ran though somebody had work */
	uint64_t pause; /* ns: for so long a job that works has nothing to do at the moment at which its turn ends */
	unsigned switches;
} scene;

static void begin(uint64_t cost)
{
	memset(&scene, 0, sizeof(scene));
	scene.cost = cost;
	scene.view = (struct gpu_turn_view){
	    .now = 1000 * SECOND, .total = TOTAL, .members = scene.members, .on = true, .holder = GPU_TURN_NOBODY};
}

static void add(uint64_t needs, uint64_t weight, uint64_t work, uint64_t period)
{
	uint32_t i = scene.view.n++;

	scene.members[i] = (struct gpu_turn_member){
	    .needs = needs,
	    .claim = {.kind = GPU_TURN_ON, .weight = weight, .cost = scene.cost, .patience = 10 * SECOND}};
	scene.jobs[i] = (struct job){
	    .work = work, .period = period, .left = period ? 0 : UINT64_MAX, .due = scene.view.now, .away = true};
}

/* So many that always have work. */
static void begin_with(unsigned n, uint64_t cost)
{
	begin(cost);
	for (unsigned i = 0; i < n; i++)
		add(14 * GIB, 1, 0, 0);
}

/* One of them, and bursts of 50 ms. */
static void begin_with_bursts(uint64_t cost, uint64_t period)
{
	begin_with(1, cost);
	add(6 * GIB, 1, 50 * MS, period);
}

static void arrive(void)
{
	for (uint32_t i = 0; i < scene.view.n; i++) {
		struct job *job = &scene.jobs[i];

		if (!job->period || scene.view.now < job->due)
			continue;
		if (!job->left)
			job->came = scene.view.now;
		job->left += job->work;
		job->due += job->period;
	}
}

static void publish(void)
{
	for (uint32_t i = 0; i < scene.view.n; i++) {
		struct job *job = &scene.jobs[i];
		struct gpu_turn_claim *claim = &scene.members[i].claim;
		bool has_work = job->left && (!job->until || scene.view.now < job->until);

		claim->beat = scene.view.now;
		if (i == scene.view.holder) {
			claim->idle = has_work ? 0 : claim->idle ? claim->idle : scene.view.now;
			claim->waits = 0;
			job->was_waiting = false;
			continue;
		}
		claim->waits = !has_work ? 0 : claim->waits ? claim->waits : scene.view.now;
		if (has_work && !job->was_waiting)
			claim->served = gpu_turn_enter(&scene.view, i);
		job->was_waiting = has_work;
		if (has_work && scene.view.now - claim->waits > job->waited_most)
			job->waited_most = scene.view.now - claim->waits;
	}
}

static void pass(uint32_t next)
{
	uint32_t holder = scene.view.holder;

	if (holder != GPU_TURN_NOBODY) {
		struct gpu_turn_claim *claim = &scene.members[holder].claim;
		uint64_t ran = scene.view.now - scene.view.since;

		claim->burst = gpu_turn_burst(ran, claim->idle ? scene.view.now - claim->idle : scene.pause);
		claim->n++;
	}
	if (next == GPU_TURN_NOBODY)
		return;
	scene.view.holder = next;
	scene.view.now += scene.cost;
	scene.idle += scene.cost;
	scene.view.since = scene.view.now;
	scene.members[next].claim.idle = 0;
	scene.switches++;
}

static void run_for(uint64_t ns)
{
	for (uint64_t end = scene.view.now + ns; scene.view.now < end; scene.view.now += LOOK) {
		arrive();
		publish();
		uint32_t holder = scene.view.holder, next = gpu_turn_next(&scene.view);

		if (next != holder)
			pass(next);
		if (scene.view.holder == GPU_TURN_NOBODY)
			continue;
		struct job *job = &scene.jobs[scene.view.holder];
		struct gpu_turn_claim *claim = &scene.members[scene.view.holder].claim;

		claim->got += LOOK;
		claim->served = gpu_turn_serve(claim->served, claim->weight, LOOK);
		if (!job->left || job->left == UINT64_MAX)
			continue;
		job->left = job->left > LOOK ? job->left - LOOK : 0;
		uint64_t answer = scene.view.now - job->came;
		if (!job->left && answer > job->answered_most)
			job->answered_most = answer;
	}
}

/* Jain's index of the time got by weight, of those that always have work; times 1000. */
static uint64_t fairness(void)
{
	double sum = 0, squares = 0;
	unsigned n = 0;

	for (uint32_t i = 0; i < scene.view.n; i++) {
		if (scene.jobs[i].period || scene.jobs[i].until)
			continue;
		double x = (double)scene.members[i].claim.got / (double)scene.members[i].claim.weight / 1e6;

		sum += x;
		squares += x * x;
		n++;
	}
	return (uint64_t)(1000 * sum * sum / (n * squares));
}

TEST(time_is_divided_by_weight)
{
	static const uint64_t weights[][4] = {{1, 1}, {3, 1}, {1, 1, 1, 1}, {5, 2, 1}};

	for (unsigned i = 0; i < 4; i++) {
		begin(400 * MS);
		uint64_t most = 0;

		for (unsigned j = 0; j < 4 && weights[i][j]; j++) {
			add(14 * GIB, weights[i][j], 0, 0);
			most = weights[i][j] > most ? weights[i][j] : most;
		}
		/* Ten rounds. */
		unsigned n = scene.view.n;
		while (scene.members[n - 1].claim.n < 11)
			run_for(SECOND);
		run_for(SECOND);
		assert_in_range(fairness(), 980, 1000);
		for (uint32_t j = 0; j < n; j++)
			assert_true(scene.jobs[j].waited_most <= 10 * SECOND + 4 * scene.cost * FIRST);
	}
}

TEST(switches_cost_little)
{
	/* Patience allows long turns: 3 %. */
	begin_with(2, 100 * MS);
	run_for(200 * SECOND);
	assert_true(scene.switches > 40 && scene.idle * 100 <= 200 * SECOND * 4);
	assert_in_range(gpu_turn_quantum(&scene.view, 0), 3 * SECOND, 4 * SECOND);
	/* By patience, with four: each of them waits for three turns. */
	add(14 * GIB, 1, 0, 0);
	add(14 * GIB, 1, 0, 0);
	publish();
	for (unsigned i = 0; i < 4; i++)
		scene.members[i].claim.cost = scene.cost = 400 * MS;
	assert_in_range(gpu_turn_quantum(&scene.view, 0), 2800 * MS, 2801 * MS);
	/* One weighs more, and its turns are as much longer. */
	scene.members[0].claim.weight = 5;
	assert_in_range(gpu_turn_quantum(&scene.view, 1), 8400 * MS / 7, 8401 * MS / 7);
	scene.members[0].claim.weight = 1;
	/* At least half a second, at most 30 s, and what the policy says. */
	for (unsigned i = 0; i < 4; i++)
		scene.members[i].claim.patience = SECOND;
	assert_int_equal(gpu_turn_quantum(&scene.view, 0), SECOND / 2);
	for (unsigned i = 0; i < 4; i++) {
		scene.members[i].claim.patience = 1000 * SECOND;
		scene.members[i].claim.cost = 5 * SECOND;
	}
	assert_int_equal(gpu_turn_quantum(&scene.view, 0), 30 * SECOND);
	scene.members[0].claim.quantum = 20 * MS;
	assert_int_equal(gpu_turn_quantum(&scene.view, 0), 20 * MS);
}

TEST(nobody_is_disturbed_who_is_alone_with_work)
{
	begin_with(1, 400 * MS);
	add(14 * GIB, 1, 50 * MS, UINT64_MAX / 2);
	run_for(60 * SECOND);
	assert_true(scene.switches <= 4);
	assert_true(scene.members[0].claim.got > 55 * SECOND);
	/* Nobody has work: nobody's turn ends. */
	begin(400 * MS);
	add(14 * GIB, 1, 50 * MS, UINT64_MAX / 2);
	add(14 * GIB, 1, 50 * MS, UINT64_MAX / 2);
	run_for(60 * SECOND);
	assert_int_equal(scene.switches, 2);
}

/* Returns the longest time in which a burst was answered, of those in the next so many ns. */
static uint64_t answered_in(uint64_t ns)
{
	scene.jobs[1].answered_most = 0;
	run_for(ns);
	return scene.jobs[1].answered_most;
}

/* A burst of 50 ms every 2 s beside a job without a pause. */
TEST(bursts_go_first)
{
	begin_with_bursts(150 * MS, 2 * SECOND);
	run_for(20 * SECOND); /* until it is known that its turns are short */
	uint64_t before = scene.members[0].claim.got;
	assert_in_range(answered_in(100 * SECOND), 100 * MS, 300 * MS);
	assert_true(scene.members[0].claim.got - before >= 80 * SECOND);
	/* So it is where a switch costs much: no burst waits for the one before. */
	begin_with_bursts(440 * MS, 2 * SECOND);
	run_for(30 * SECOND);
	assert_in_range(answered_in(100 * SECOND), 400 * MS, 700 * MS);
	/*
	 * And soon after a beginning that takes longer: the first burst waits for what is left of the turn, no other
	 * does.
	 */
	begin_with_bursts(150 * MS, 2 * SECOND);
	run_for(10 * SECOND);
	scene.jobs[1].left = 3 * SECOND;
	run_for(10 * SECOND);
	assert_in_range(answered_in(20 * SECOND), 100 * MS, 300 * MS);
	/* Bursts that follow each other closely leave the other half of what they do not need themselves. */
	begin_with_bursts(150 * MS, 200 * MS);
	run_for(100 * SECOND);
	assert_true(scene.members[0].claim.got >= 35 * SECOND);
}

/* Returns whether all have done their work; who has takes no part any more. */
static bool is_all_done(void)
{
	bool all = true;

	for (uint32_t i = 0; i < scene.view.n; i++) {
		const struct job *job = &scene.jobs[i];
		bool done = !job->left && job->due > scene.view.now;

		all = all && done;
		if (!done || scene.members[i].claim.kind == GPU_TURN_OFF)
			continue;
		scene.members[i].claim.kind = GPU_TURN_OFF;
		if (scene.view.holder == i)
			scene.view.holder = GPU_TURN_NOBODY;
	}
	return all;
}

/* They have that much work each, begin together, and end. Returns how many switches that takes. */
static unsigned work_to_the_end(unsigned n, uint64_t work, uint64_t cost, uint64_t patience)
{
	begin(cost);
	uint64_t before = scene.view.now;
	scene.pause = 5 * MS;
	for (unsigned i = 0; i < n; i++) {
		add(14 * GIB, 1, work, UINT64_MAX / 2);
		scene.members[i].claim.patience = patience;
		/* What a switch costs is known to those that have come by one. */
		scene.members[i].claim.cost = 0;
	}
	run_for(LOOK);
	while (!is_all_done()) {
		uint32_t holder = scene.view.holder;

		run_for(LOOK);
		if (scene.view.holder != holder && scene.view.holder != GPU_TURN_NOBODY)
			scene.members[scene.view.holder].claim.cost = cost;
	}
	printf("%u jobs of %.0f s, %.1f s a switch: %u switches, time / sum of work %.3f\n", n, (double)work / 1e9,
	       (double)cost / 1e9, scene.switches, (double)(scene.view.now - before) / (double)(n * work));
	return scene.switches;
}

TEST(those_that_start_together_have_whole_turns)
{
	/* A quantum of 9.2 s by patience: two turns each, and one short one of the first, which cannot know better. */
	assert_in_range(work_to_the_end(4, 14 * SECOND, 600 * MS, 30 * SECOND), 8, 9);
	assert_in_range(work_to_the_end(4, 14 * SECOND, 400 * MS, 30 * SECOND), 8, 9);
	assert_in_range(work_to_the_end(4, 20 * SECOND, 400 * MS, 30 * SECOND), 12, 13);
	assert_in_range(work_to_the_end(2, 90 * SECOND, 200 * MS, 10 * SECOND), 26, 30);
}

TEST(a_turn_that_ends_for_another_reason_was_no_burst)
{
	assert_int_equal(gpu_turn_burst(50 * MS, 0), 0);
	assert_int_equal(gpu_turn_burst(50 * MS, GPU_TURN_IDLE - 1), 0);
	assert_int_equal(gpu_turn_burst(50 * MS, GPU_TURN_IDLE), 50 * MS);
	assert_int_equal(gpu_turn_burst(0, GPU_TURN_IDLE), 1);
}

/* Until little of the holder's memory is alive. */
TEST(the_holder_may_go_on_for_some_steps)
{
	struct gpu_turn_claim *holder = &scene.members[0].claim, *other = &scene.members[1].claim;

	begin_with(2, 400 * MS);
	holder->n = other->n = 2;
	publish();
	scene.view.holder = 0;
	other->waits = scene.view.now;
	/* A quantum of 9.2 s. */
	assert_int_equal(gpu_turn_may_wait(&scene.view), SECOND);
	holder->quantum = 400 * MS;
	assert_int_equal(gpu_turn_may_wait(&scene.view), 50 * MS);
	holder->quantum = 0;
	/* The other should not wait: it needs a short turn, or has waited for long. */
	other->burst = 50 * MS;
	assert_int_equal(gpu_turn_may_wait(&scene.view), 100 * MS);
	other->burst = 0;
	scene.view.now += other->patience;
	publish();
	assert_int_equal(gpu_turn_may_wait(&scene.view), 100 * MS);
	/* There is nothing to wait for. */
	holder->idle = scene.view.now - GPU_TURN_IDLE;
	assert_int_equal(gpu_turn_may_wait(&scene.view), 0);
	holder->idle = other->waits = 0;
	assert_int_equal(gpu_turn_may_wait(&scene.view), 0);
}

TEST(nobody_starves_among_random_jobs)
{
	struct seed dice = seed_start("gpu_turn_test");

	for (unsigned round = 0; round < 60; round++) {
		begin((1 + seed_below(&dice, 500)) * MS);
		unsigned n = 2 + (unsigned)seed_below(&dice, MOST - 1);
		uint64_t weights = 0;

		for (unsigned i = 0; i < n; i++) {
			bool bursts = seed_below(&dice, 2);

			add((1 + seed_below(&dice, 16)) * GIB, 1 + seed_below(&dice, 4),
			    bursts ? (1 + seed_below(&dice, 400)) * MS : 0,
			    bursts ? (500 + seed_below(&dice, 5000)) * MS : 0);
			weights += scene.members[i].claim.weight;
		}
		run_for(300 * SECOND);
		/*
		 * Each of the others may be overdue, too: they then have the shortest turns one after the other, each
		 * at least FIRST times a switch.
		 */
		uint64_t turn = SECOND / 2 > FIRST * scene.cost ? SECOND / 2 : FIRST * scene.cost;
		for (unsigned i = 0; i < n; i++)
			assert_true(scene.jobs[i].waited_most <= 10 * SECOND + (n + 1) * (turn + 2 * scene.cost));
		assert_true(weights && scene.switches > 10);
	}
}

TEST(the_first_switch_says_little_of_what_they_cost)
{
	assert_int_equal(gpu_turn_cost(0, 4 * SECOND), 400 * MS);
	assert_int_equal(gpu_turn_cost(0, 100 * MS), 100 * MS);
	assert_int_equal(gpu_turn_cost(400 * MS, 200 * MS), 350 * MS);
	assert_int_equal(gpu_turn_cost(400 * MS, 100 * SECOND), 700 * MS);
}

TEST(who_comes_back_has_a_turn_in_advance_and_no_more)
{
	begin_with(2, 100 * MS);
	scene.jobs[1].left = 0;
	run_for(1000 * SECOND);
	scene.jobs[1].left = UINT64_MAX;
	uint64_t before = scene.members[0].claim.got;
	run_for(60 * SECOND);
	/* Half of the time, less one quantum. */
	assert_in_range((scene.members[0].claim.got - before) / SECOND, 24, 31);
}

/* As one that was suspended for an hour, in which the others have ended and these have come. */
TEST(who_has_had_much_before_the_others_came_does_not_wait_for_them)
{
	begin_with(3, 100 * MS);
	scene.jobs[2].left = 0;
	run_for(60 * SECOND);
	scene.members[2].claim.served = gpu_turn_serve(0, 1, 3600 * SECOND);
	scene.jobs[2].left = UINT64_MAX;
	run_for(120 * SECOND);
	/* A third of the time, less three quanta. */
	assert_in_range(scene.members[2].claim.got / SECOND, 28, 41);
	assert_true(scene.members[2].claim.served < gpu_turn_serve(0, 1, 200 * SECOND));
}

TEST(the_dead_and_the_silent_take_no_part)
{
	begin(100 * MS);
	for (unsigned i = 0; i < 3; i++) {
		add(14 * GIB, 1, 0, 0);
		scene.members[i].may_have = 10 * MIB;
	}
	run_for(SECOND);
	uint32_t holder = scene.view.holder, other = (holder + 1) % 3;
	assert_true(holder < 3);
	/* The account reports nobody where the holder's process has gone. */
	scene.view.holder = GPU_TURN_NOBODY;
	assert_in_range(gpu_turn_next(&scene.view), 0, 2);
	scene.view.holder = holder;
	assert_int_equal(gpu_turn_next(&scene.view), holder);
	scene.members[holder].may_have = 6 * GIB;
	scene.members[holder].stuck = GIB;
	assert_int_equal(gpu_turn_room(&scene.view, other), 15 * GIB);
	for (unsigned i = 0; i < 3; i++)
		scene.members[i].claim.beat += i == holder ? 0 : GPU_TURN_SILENT + 1;
	scene.view.now += GPU_TURN_SILENT + 1;
	assert_int_not_equal(gpu_turn_next(&scene.view), holder);
	assert_int_equal(gpu_turn_room(&scene.view, other), 10 * GIB);
	/* Who is away keeps what it may have; the holder may have it before its memory is back. */
	scene.members[other].claim.away = scene.members[holder].claim.away = 1;
	scene.members[holder].claim.beat = scene.view.now;
	assert_int_equal(gpu_turn_room(&scene.view, (holder + 2) % 3), 15 * GIB - 10 * MIB);
	scene.view.holder = GPU_TURN_NOBODY;
	assert_int_equal(gpu_turn_room(&scene.view, (holder + 2) % 3), 10 * GIB - 10 * MIB);
	scene.view.holder = holder;
	scene.members[holder].claim.beat -= GPU_TURN_SILENT + 1;
	/* One that moves its memory may be silent for longer. */
	scene.members[holder].claim.moving = 1;
	assert_int_equal(gpu_turn_next(&scene.view), holder);
	scene.members[holder].claim.beat -= 6 * SECOND;
	assert_int_equal(gpu_turn_next(&scene.view), holder);
	scene.members[holder].claim.beat -= 2 * SECOND;
	assert_int_not_equal(gpu_turn_next(&scene.view), holder);
	/* A beat from the future: the clocks of two processors. */
	scene.members[holder].claim.moving = 0;
	scene.members[holder].claim.beat = scene.view.now + MS;
	assert_true(gpu_turn_takes_part(&scene.view, holder));
}

TEST(there_are_turns_only_where_they_help)
{
	begin(100 * MS);
	scene.view.on = false;
	add(8 * GIB, 1, 0, 0);
	add(8 * GIB, 1, 0, 0);
	publish();
	assert_false(gpu_turn_wanted(&scene.view));
	scene.members[0].needs += 2 * MIB;
	assert_true(gpu_turn_wanted(&scene.view));
	/* auto: only if spilling costs much. */
	for (unsigned i = 0; i < 2; i++)
		scene.members[i].claim.kind = GPU_TURN_AUTO;
	assert_false(gpu_turn_wanted(&scene.view));
	for (unsigned i = 0; i < 2; i++)
		scene.members[i].claim.loss = GPU_TURN_LOSS;
	assert_true(gpu_turn_wanted(&scene.view));
	/* They end when all fits, and something to spare. */
	scene.view.on = true;
	scene.members[0].needs = 8 * GIB;
	assert_true(gpu_turn_wanted(&scene.view));
	scene.members[0].needs = 7 * GIB;
	assert_false(gpu_turn_wanted(&scene.view));
	/* One alone has all of it. */
	scene.members[0].needs = 100 * GIB;
	scene.members[1].claim.kind = GPU_TURN_OFF;
	assert_false(gpu_turn_wanted(&scene.view));
}

TEST(who_waits_keeps_what_the_others_do_not_need)
{
	begin_with(1, 100 * MS);
	add(6 * GIB, 1, 0, 0);
	publish();
	/* All but half a GiB, which is for what nobody has counted. */
	assert_int_equal(gpu_turn_keep(&scene.view, 0), 16 * GIB - 6 * GIB - GIB / 2);
	assert_int_equal(gpu_turn_keep(&scene.view, 1), 16 * GIB - 14 * GIB - GIB / 2);
	/*
	 * Two wait, whoever has the turn: then the room is divided, and the one that needs most is the one that counts.
	 */
	add(8 * GIB, 1, 0, 0);
	publish();
	assert_int_equal(gpu_turn_keep(&scene.view, 1), (16 * GIB - 14 * GIB - GIB / 2) / 2);
	assert_int_equal(gpu_turn_keep(&scene.view, 0), (16 * GIB - 8 * GIB - GIB / 2) / 2);
	/* Too little to be of use, and none at all. */
	scene.members[0].needs = 15 * GIB;
	assert_int_equal(gpu_turn_keep(&scene.view, 1), 0);
	scene.members[0].needs = UINT64_MAX;
	assert_int_equal(gpu_turn_keep(&scene.view, 1), 0);
	/* What others have who take no part. */
	scene.members[0].needs = 10 * GIB;
	scene.members[2].claim.kind = GPU_TURN_OFF;
	scene.members[2].may_have = 3 * GIB;
	assert_int_equal(gpu_turn_keep(&scene.view, 1), 16 * GIB - 10 * GIB - GIB / 2 - 3 * GIB);
}

TEST(what_cannot_move_may_leave_no_room_for_turns)
{
	begin_with(2, 100 * MS);
	scene.view.on = false;
	publish();
	scene.members[1].stuck = 9 * GIB - 2 * MIB;
	assert_int_equal(gpu_turn_in_the_way(&scene.view), GPU_TURN_NOBODY);
	assert_int_equal(gpu_turn_room(&scene.view, 0), 7 * GIB + 2 * MIB);
	assert_true(gpu_turn_wanted(&scene.view));
	scene.members[1].stuck = 9 * GIB + 2 * MIB;
	assert_int_equal(gpu_turn_in_the_way(&scene.view), 1);
	assert_false(gpu_turn_wanted(&scene.view));
}
