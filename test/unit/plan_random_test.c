// SPDX-License-Identifier: Apache-2.0
/*
 * plan_random_test.c: what the plan answers in a random program, against a plain record of all of it.
 */
#include "test/test.h"
#include "test/unit/plan_check.h"
#include "test/unit/seed.h"

#define PIECES  300
#define LONGEST 150000 /* more than is remembered */

/* A naming: the submission, from 1, and which of its four. at 0: none. */
struct naming {
	uint64_t at;
	int k;
};

struct model {
	struct plan *plan;
	struct seed seed;
	uint32_t (*named)[4]; /* by submission, from 1 */
	enum plan_place place[PIECES];
	uint64_t last[PIECES];
	struct naming next[PIECES]; /* that foretells it */
	uint64_t now, done, at;
	unsigned known, checks;
};

static bool model_busy(void *argument, uint32_t piece)
{
	struct model *model = argument;

	return model->last[piece] > model->done;
}

static struct naming named_again(const struct model *model, struct naming from)
{
	uint32_t piece = model->named[from.at][from.k];

	for (uint64_t at = from.at; at <= model->now; at++)
		for (int k = at == from.at ? from.k + 1 : 0; k < 4; k++)
			if (model->named[at][k] == piece)
				return (struct naming){at, k};
	return (struct naming){0};
}

static struct naming named_after(const struct model *model, struct naming from, uint64_t past)
{
	while (from.at && from.at <= past)
		from = named_again(model, from);
	return from;
}

/* In whose place the latest submission's k-th stands, in the one that corresponds to it. */
static int twin_of(const struct model *model, int k)
{
	const uint32_t *then = model->named[model->at], piece = model->named[model->now][k];

	for (int i = 0; then[k] != piece && i < 4; i++)
		if (then[i] == piece)
			return i;
	return k;
}

/* When each will be named, by what happened then. moved: the latest submission corresponds to model->at. */
static void model_foretell(struct model *model, uint64_t before, bool moved)
{
	bool jumped = !before || model->at < before || model->at - before > 512;

	for (uint32_t piece = 0; piece < PIECES; piece++) {
		if (jumped)
			model->next[piece] = (struct naming){0};
		else if (model->last[piece] != model->now)
			model->next[piece] = named_after(model, model->next[piece], model->at);
	}
	for (uint64_t at = model->at + 1; jumped && at <= model->now; at++)
		for (int k = 0; k < 4; k++)
			if (!model->next[model->named[at][k]].at)
				model->next[model->named[at][k]] = (struct naming){at, k};
	for (int k = 0; k < 4; k++) {
		struct naming *next = &model->next[model->named[model->now][k]], twin = {0};

		if (moved)
			twin = named_after(model, (struct naming){model->at, twin_of(model, k)}, model->at);
		if (twin.at)
			*next = twin;
		else if (moved || !next->at)
			*next = (struct naming){model->now, k};
	}
}

static void model_note(struct model *model, uint32_t i)
{
	uint32_t *named = model->named[++model->now];
	uint64_t before = model->at;

	for (uint32_t k = 0; k < 4; k++) {
		named[k] = (uint32_t)((i * 7 + k * (i % 50) + k * k * 31) % PIECES);
		if (seed_below(&model->seed, 300) == 0) /* a pointer that happens to be another */
			named[k] = (uint32_t)seed_below(&model->seed, PIECES);
		model->last[named[k]] = model->now;
	}
	plan_note(model->plan, i % 97, named, 4);
	model->at = plan_knows(model->plan) ? model->now - plan_period(model->plan) : 0;
	if (model->at)
		model_foretell(model, before, model->at != before);
}

static uint64_t model_next_use(const struct model *model, uint32_t piece)
{
	uint64_t at = model->next[piece].at;

	return at ? at + model->now - model->at : PLAN_NEVER;
}

static void model_check(struct model *model)
{
	struct plan *plan = model->plan;
	uint32_t piece = (uint32_t)seed_below(&model->seed, PIECES);
	uint64_t when;

	assert_int_equal(plan_now(plan), model->now);
	assert_true(plan_is_valid(plan));
	model->checks++;
	model->known += plan_knows(plan);
	if (plan_knows(plan) && model->last[piece])
		assert_true(plan_next_use(plan, piece) == model_next_use(model, piece));
	if (plan_fetch(plan, 40, &piece, &when)) {
		assert_int_equal(model->place[piece], PLAN_HOST);
		assert_true(when > model->now && when == model_next_use(model, piece));
		for (uint32_t other = 0; other < PIECES; other++)
			if (model->place[other] == PLAN_HOST && model->last[other])
				assert_true(model_next_use(model, other) >= when);
	}
}

static void model_move(struct model *model)
{
	struct plan *plan = model->plan;
	uint32_t piece;
	uint64_t when = model->now + seed_below(&model->seed, 200);

	enum plan_answer answer = plan_victim(plan, when, 0, model_busy, model, &piece);
	if (answer == PLAN_FOUND) {
		assert_int_equal(model->place[piece], PLAN_DEVICE);
		assert_false(model_busy(model, piece));
		assert_true(model->last[piece] != model->now);
		if (plan_knows(plan))
			assert_true(plan_next_use(plan, piece) > when);
	} else if (answer == PLAN_NONE) {
		for (piece = 0; piece < PIECES; piece++)
			assert_false(model->place[piece] == PLAN_DEVICE && plan_next_use(plan, piece) > 2 * when &&
				     !(when == model->now && model->last[piece] == model->now));
	}
	if (answer != PLAN_FOUND || seed_below(&model->seed, 3) == 0)
		piece = (uint32_t)seed_below(&model->seed, PIECES);
	model->place[piece] = (enum plan_place)seed_below(&model->seed, 5);
	plan_set(plan, piece, 1 + (uint32_t)seed_below(&model->seed, 16), model->place[piece]);
}

TEST(answers_are_right_for_a_random_program)
{
	struct model model = {.seed = seed_start(__func__), .plan = plan_new(PLAN_BESIDE_KERNELS)};

	model.named = calloc(LONGEST + 1000, sizeof(*model.named));
	for (unsigned step = 0; model.now < LONGEST; step++) {
		uint32_t length = 500 + (uint32_t)(step / 20 * 137 % 400); /* a new phase now and then */

		for (uint32_t i = 0; i < length; i++) {
			if (seed_below(&model.seed, 2000) == 0)
				i += (uint32_t)seed_below(&model.seed, 100); /* something is skipped */
			model_note(&model, i + length);
			if (seed_below(&model.seed, 3) == 0)
				model.done += seed_below(&model.seed, model.now - model.done + 1);
			model_move(&model);
			if (seed_below(&model.seed, 8) == 0)
				model_check(&model);
		}
	}
	assert_true(model.known > model.checks / 2); /* or little was tested */
	plan_free(model.plan);
	free(model.named);
}
