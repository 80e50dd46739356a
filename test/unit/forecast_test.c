// SPDX-License-Identifier: Apache-2.0
/*
 * forecast_test.c: how much device memory the rest of a period needs: against a walk over every piece, and what the
 * plan makes of it.
 */
#include "test/test.h"
#include "test/unit/plan_check.h"
#include "test/unit/seed.h"

/* ---- against a naive walk ---- */

#define PIECES      60u
#define FROM        1000u
#define TRANSITIONS 150u

struct scene {
	struct pieces pieces;
	struct forecast forecast;
	struct transition transitions[TRANSITIONS];
	uint64_t until;
	int64_t needed;
};

static struct piece *piece_of(struct scene *scene, uint32_t id)
{
	return pieces_make(&scene->pieces, 3 * id);
}

static void make_pieces(struct scene *scene, struct seed *seed)
{
	for (uint32_t i = 0; i < PIECES; i++) {
		struct piece *piece = piece_of(scene, i);

		assert_non_null(piece);
		piece->units = (uint32_t)seed_below(seed, 16) + 1;
		piece->place = (uint8_t)seed_below(seed, PLAN_PLACES);
		piece->arriving = piece->place == PLAN_MOVING && seed_below(seed, 2);
		piece->dead_share = seed_below(seed, 2) ? PLAN_DEAD : 0;
		if (seed_below(seed, 4))
			pieces_put_key(&scene->pieces, piece, 3 * i, FROM + 1 + seed_below(seed, scene->until - FROM),
				       0);
		scene->needed += forecast_needs(piece) ? piece->units : 0;
	}
}

static void note_transitions(struct scene *scene, struct seed *seed)
{
	uint64_t position = FROM - 50;

	for (unsigned i = 0; i < TRANSITIONS; i++) {
		position += seed_below(seed, 2 * (scene->until - FROM + 50) / TRANSITIONS + 1);
		scene->transitions[i] =
		    (struct transition){position < scene->until ? position : scene->until,
					3 * (uint32_t)seed_below(seed, PIECES), seed_below(seed, 2)};
		forecast_note(&scene->forecast, scene->transitions[i].position, scene->transitions[i].piece,
			      scene->transitions[i].dead);
	}
}

static uint64_t step_of(const struct scene *scene, uint64_t position)
{
	return position <= FROM ? 0 : (position - FROM - 1) * FORECAST_STEPS / (scene->until - FROM);
}

static void set_needed(struct scene *scene, bool *needed, uint32_t id, bool now, int64_t *sum)
{
	if (piece_of(scene, id)->place == PLAN_GONE || needed[id] == now)
		return;
	needed[id] = now;
	*sum += now ? (int64_t)piece_of(scene, id)->units : -(int64_t)piece_of(scene, id)->units;
}

/* The most that is needed in the steps of these two positions and between them. */
static int64_t naive_most(struct scene *scene, uint64_t at, uint64_t until)
{
	uint64_t key[PIECES]; /* 0: none */
	bool needed[PIECES];
	int64_t sum = scene->needed, most = step_of(scene, at) ? INT64_MIN : sum;
	unsigned next = 0;

	for (uint32_t i = 0; i < PIECES; i++) {
		needed[i] = forecast_needs(piece_of(scene, i));
		key[i] = pieces_has_key(&scene->pieces, piece_of(scene, i)) ? piece_of(scene, i)->key : 0;
	}
	while (next < TRANSITIONS && scene->transitions[next].position <= FROM)
		next++;
	for (uint64_t position = FROM + 1;
	     step_of(scene, position) <= step_of(scene, until) && position <= scene->until; position++) {
		bool first = step_of(scene, position) != step_of(scene, position - 1);

		/* What is needed when a step begins counts for it, too. */
		if (first && step_of(scene, position) >= step_of(scene, at) && sum > most)
			most = sum;
		for (uint32_t i = 0; i < PIECES; i++)
			if (key[i] == position)
				set_needed(scene, needed, i, true, &sum);
		if (step_of(scene, position) >= step_of(scene, at) && sum > most)
			most = sum;
		for (; next < TRANSITIONS && scene->transitions[next].position == position; next++)
			set_needed(scene, needed, scene->transitions[next].piece / 3, !scene->transitions[next].dead,
				   &sum);
	}
	return most;
}

TEST(the_need_is_that_of_a_walk_over_every_piece)
{
	struct seed seed = seed_start("forecast_test");

	for (unsigned round = 0; round < 300; round++) {
		struct scene *scene = calloc(1, sizeof(*scene));

		assert_non_null(scene);
		assert_true(pieces_init(&scene->pieces));
		scene->until = scene->pieces.now = FROM + FORECAST_STEPS + seed_below(&seed, 2000);
		make_pieces(scene, &seed);
		note_transitions(scene, &seed);
		if (round % 2)
			forecast_make_from(&scene->forecast, &scene->pieces, FROM, scene->until,
					   (uint64_t)scene->needed, scene->transitions, TRANSITIONS);
		else
			forecast_make(&scene->forecast, &scene->pieces, FROM, (uint64_t)scene->needed);
		assert_true(forecast_is_made(&scene->forecast));
		for (unsigned i = 0; i < 20; i++) {
			uint64_t at = FROM + seed_below(&seed, scene->until - FROM);
			uint64_t until = at + seed_below(&seed, scene->until - at + 1);

			assert_int_equal(forecast_most(&scene->forecast, at, until), naive_most(scene, at, until));
		}
		forecast_fini(&scene->forecast);
		pieces_fini(&scene->pieces);
		free(scene);
	}
}

TEST(without_a_death_there_is_no_forecast)
{
	struct pieces pieces;
	struct forecast forecast = {0};

	assert_true(pieces_init(&pieces));
	pieces.now = 2000;
	forecast_make(&forecast, &pieces, 1000, 7);
	assert_false(forecast_is_made(&forecast));
	forecast_note(&forecast, 999, 3, true);
	forecast_make(&forecast, &pieces, 1000, 7);
	assert_false(forecast_is_made(&forecast));
	forecast_note(&forecast, 1001, 3, true);
	forecast_make(&forecast, &pieces, 1000, 7);
	assert_true(forecast_is_made(&forecast));
	assert_int_equal(forecast_most(&forecast, 1000, 2000), 7);
	forecast_add(&forecast, 1000, 1500, -3);
	assert_int_equal(forecast_most(&forecast, 1000, 1400), 4);
	assert_int_equal(forecast_most(&forecast, 1000, 1600), 7);
	forecast_drop(&forecast);
	assert_false(forecast_is_made(&forecast));
	forecast_fini(&forecast);
	pieces_fini(&pieces);
}

/* So many transitions that those of the period are not remembered: nothing is known. */
TEST(what_is_forgotten_is_not_forecast)
{
	struct pieces pieces;
	struct forecast forecast = {0};

	assert_true(pieces_init(&pieces));
	pieces.now = 2000;
	for (unsigned i = 0; i < FORECAST_MOST + 5; i++)
		forecast_note(&forecast, 1001 + i / 100, 3, i % 2);
	forecast_make(&forecast, &pieces, 1000, 7);
	assert_false(forecast_is_made(&forecast));
	forecast_make(&forecast, &pieces, 1500, 7);
	assert_true(forecast_is_made(&forecast));
	forecast_fini(&forecast);
	pieces_fini(&pieces);
}

/* ---- what the plan makes of it ---- */

static struct plan *plan;
static uint32_t piece; /* of the latest answer */
static uint64_t when;

BEFORE_EACH
{
	plan = plan_new(PLAN_BESIDE_KERNELS);
	assert_non_null(plan);
}

AFTER_EACH
{
	assert_true(plan_is_valid(plan));
	plan_free(plan);
}

/*
 * A step like that of a training job: LAYERS tensors are born one after another and die in the opposite order; then
 * each piece of the optimizer's state is used. Every piece is one unit.
 */
#define LAYERS 200u
#define STATES 100u
#define STATE  1000u /* number of the first piece of the state */

static void forward(uint32_t i)
{
	plan_set_dead(plan, i, 0);
	plan_note(plan, 1, &i, 1);
}

static void backward(uint32_t i)
{
	plan_note(plan, 2, &i, 1);
	plan_set_dead(plan, i, PLAN_DEAD);
}

static void train(uint32_t layers, uint32_t states, unsigned steps)
{
	for (unsigned step = 0; step < steps; step++) {
		for (uint32_t i = 1; i <= layers; i++)
			forward(i);
		for (uint32_t i = layers; i >= 1; i--)
			backward(i);
		for (uint32_t i = STATE; i < STATE + states; i++)
			plan_note(plan, 3, &i, 1);
	}
}

/* Three steps are over. Of the tensors, `away` are on the host. */
static void trained(uint32_t away)
{

	for (uint32_t i = 1; i <= LAYERS; i++)
		plan_set(plan, i, 1, i <= away ? PLAN_HOST : PLAN_DEVICE);
	for (uint32_t i = STATE; i < STATE + STATES; i++)
		plan_set(plan, i, 1, PLAN_DEVICE);
	train(LAYERS, STATES, 3);
	assert_int_equal(plan_period(plan), 2 * LAYERS + STATES);
}

TEST(what_will_have_to_leave_leaves_early_as_far_as_memory_lacks)
{
	trained(30);
	uint32_t n = 0;

	assert_false(plan_early(plan, NULL, NULL, &piece)); /* it was not told what is free */
	plan_set_free(plan, 30);
	assert_false(plan_early(plan, NULL, NULL, &piece));
	for (plan_set_free(plan, 0); plan_early(plan, NULL, NULL, &piece); n++) {
		assert_int_equal(piece, STATE + STATES - 2 - n); /* the last one was just used */
		plan_set(plan, piece, 1, PLAN_MOVING);
		plan_set(plan, piece, 1, PLAN_HOST);
		plan_set_free(plan, n + 1);
		assert_true(plan_is_valid(plan));
	}
	assert_int_equal(n, 30);
}

TEST(what_is_used_again_soon_does_not_leave_early)
{
	for (uint32_t i = 1; i <= 50; i++)
		plan_set(plan, i, 1, i <= 30 ? PLAN_HOST : PLAN_DEVICE);
	for (uint32_t i = STATE; i < STATE + 20; i++)
		plan_set(plan, i, 1, PLAN_DEVICE);
	train(50, 20, 5); /* so short that all is used again soon */
	assert_int_equal(plan_period(plan), 120);
	plan_set_free(plan, 0);
	assert_false(plan_early(plan, NULL, NULL, &piece));
}

/* The way back of a step is about to begin. */
static void trained_half_way(void)
{
	trained(0);

	for (uint32_t i = 1; i <= LAYERS; i++)
		forward(i);
}

/* 30 tensors are on the host that are used last on the way back, and there is no room. */
TEST(what_can_stay_until_its_use_is_fetched_as_soon_as_there_is_room)
{
	trained_half_way();
	for (uint32_t i = 1; i <= 30; i++)
		plan_set(plan, i, 1, PLAN_HOST);
	plan_set_free(plan, 0);
	assert_false(plan_fetch(plan, 1000, &piece, &when));
	for (uint32_t i = LAYERS; i > LAYERS - 40; i--)
		backward(i);
	/* Dead tensors have left room for all of them, whatever has been fetched ahead. */
	for (uint32_t i = 30; i >= 1; i--) {
		assert_true(plan_fetch(plan, 1, &piece, &when));
		assert_int_equal(piece, i);
		plan_set(plan, piece, 1, PLAN_MOVING);
		plan_set(plan, piece, 1, PLAN_DEVICE);
	}
}

TEST(what_is_needed_very_soon_is_fetched_although_there_is_no_room)
{
	trained_half_way();
	plan_set(plan, LAYERS - 10, 1, PLAN_HOST);
	plan_set_free(plan, 0);
	assert_true(plan_fetch(plan, 1000, &piece, &when));
	assert_int_equal(piece, LAYERS - 10);
	assert_int_equal(when, plan_now(plan) + 11);
}

/*
 * A step in which memory lacks once: PARTS tensors are born and die again; SOON is named when all of them are alive,
 * LATER when they are dead. Then each piece of the optimizer's state is used.
 */
#define PARTS 60u
#define SOON  301u
#define LATER 302u

static void train_in_parts(void)
{
	uint32_t soon = SOON, later = LATER;

	for (uint32_t i = 1; i <= PARTS; i++)
		forward(i);
	plan_note(plan, 4, &soon, 1);
	for (uint32_t i = PARTS; i >= 1; i--)
		backward(i);
	plan_note(plan, 5, &later, 1);
	for (uint32_t i = STATE; i < STATE + STATES; i++)
		plan_note(plan, 3, &i, 1);
}

/* The fourth step has begun, and there is room for only half of its tensors. */
static void trained_in_parts(void)
{

	for (uint32_t i = 1; i <= PARTS; i++)
		plan_set(plan, i, 1, i > PARTS / 2 ? PLAN_HOST : PLAN_DEVICE);
	for (uint32_t i = STATE; i < STATE + STATES; i++)
		plan_set(plan, i, 1, PLAN_DEVICE);
	plan_set(plan, SOON, 1, PLAN_DEVICE);
	plan_set(plan, LATER, 1, PLAN_DEVICE);
	for (unsigned step = 0; step < 3; step++)
		train_in_parts();
	for (uint32_t i = 1; i <= PARTS / 2; i++)
		forward(i);
	plan_set_free(plan, 0);
}

#define LAST (STATE + STATES - 1) /* the one that is used last, if nothing is known of what is dead */

static bool is_one(void *argument, uint32_t of)
{
	return of == *(uint32_t *)argument;
}

/* The victim for `units` units that are needed in `ahead` submissions; `busy` is one that is busy. */
static uint32_t victim_for(uint64_t ahead, uint32_t units, uint32_t busy)
{
	assert_int_equal(plan_victim(plan, plan_now(plan) + ahead, units, is_one, &busy, &piece), PLAN_FOUND);
	return piece;
}

static uint32_t victim_of(void)
{
	return victim_for(0, 0, 0);
}

TEST(of_pieces_that_are_used_when_memory_suffices_the_one_with_most_dead_leaves)
{
	trained_in_parts();

	assert_int_equal(victim_of(), LAST);
	/* What is used while memory lacks would make room only for a while. */
	plan_set_dead(plan, SOON, PLAN_DEAD / 2);
	assert_int_equal(victim_of(), LAST);
	plan_set_dead(plan, LATER, PLAN_DEAD / 4);
	assert_int_equal(victim_of(), LATER);
	plan_set_dead(plan, STATE + 7, PLAN_DEAD / 2);
	assert_int_equal(victim_of(), STATE + 7);
	plan_set_dead(plan, STATE + 3, PLAN_DEAD / 2);
	assert_int_equal(victim_of(), STATE + 7); /* the farther one */
	assert_int_equal(victim_for(0, 0, STATE + 7), STATE + 3);
	plan_set_dead(plan, STATE + 3, PLAN_DEAD / 2 + 1);
	assert_int_equal(victim_of(), STATE + 3);
	/* Wholly dead ones are no worse, although they are born sooner than others are used. */
	plan_set_dead(plan, LATER, PLAN_DEAD);
	assert_int_equal(victim_of(), LATER);
	/* What takes the place of a piece is alive as a whole. */
	for (uint32_t i = STATE; i < STATE + 8; i++) {
		plan_set(plan, i, 0, PLAN_GONE);
		plan_set(plan, i, 1, PLAN_DEVICE);
	}
	plan_set_dead(plan, LATER, PLAN_DEAD / 4);
	assert_int_equal(victim_of(), LATER);
}

TEST(what_is_dead_in_part_is_as_any_other_where_that_costs_more)
{
	trained_in_parts();

	/* Of little that is dead nothing is gained. */
	plan_set_dead(plan, LATER, PLAN_DEAD / 16);
	assert_int_equal(victim_of(), LAST);
	plan_set_dead(plan, LATER, PLAN_DEAD / 8);
	assert_int_equal(victim_of(), LATER);
	/*
	 * LATER is 92 submissions away, and the last one 192: a victim must be twice as far as what it makes room for.
	 */
	assert_int_equal(victim_for(44, 0, 0), LATER);
	assert_int_equal(victim_for(50, 0, 0), LAST);
	/* Among equals, one whose memory can be used as it is. */
	plan_set(plan, STATE + 3, 2, PLAN_DEVICE);
	plan_set_dead(plan, STATE + 3, PLAN_DEAD / 8);
	plan_set_dead(plan, STATE + 7, PLAN_DEAD / 8);
	assert_int_equal(victim_for(0, 2, 0), STATE + 3);
	assert_int_equal(victim_for(0, 1, 0), STATE + 7);
	/* In gaps and to peers, and where something is not foreseen at all, the farthest leaves. */
	plan_set_way(plan, PLAN_IN_GAPS);
	assert_int_equal(victim_of(), LAST);
	plan_set_way(plan, PLAN_TO_PEERS);
	assert_int_equal(victim_of(), LAST);
	plan_set_way(plan, PLAN_BESIDE_KERNELS);
	plan_set(plan, 999, 1, PLAN_DEVICE);
	assert_int_equal(victim_of(), 999);
}

TEST(what_is_needed_very_soon_does_not_leave_for_what_is_dead_in_it)
{
	trained_in_parts();

	plan_set_dead(plan, LATER, PLAN_DEAD / 2);
	for (uint32_t i = PARTS / 2 + 1; i <= PARTS; i++)
		forward(i);
	/* What has been used is freed, or it would be the farthest. */
	plan_note(plan, 4, (uint32_t[]){SOON}, 1);
	plan_set(plan, SOON, 0, PLAN_GONE);
	for (uint32_t i = PARTS; i > 8; i--) {
		plan_note(plan, 2, &i, 1);
		plan_set(plan, i, 0, PLAN_GONE);
	}
	assert_int_equal(victim_of(), LATER); /* nine submissions away */
	plan_note(plan, 2, (uint32_t[]){8}, 1);
	assert_int_equal(victim_of(), LAST);
}
