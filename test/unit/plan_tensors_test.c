// SPDX-License-Identifier: Apache-2.0
/*
 * plan_tensors_test.c: what the plan foretells of a program with another length of sequences in each step, with what
 * its allocator reports and without.
 */
#include "test/test.h"
#include "test/unit/even_pieces.h"
#include "test/unit/length_job.h"
#include "test/unit/plan_check.h"

#define UNITS  (NAIVE_GRAINS * NAIVE_GRAIN / PLAN_UNIT)
#define PIECES (UNITS / PIECE)

/* The same program, foretold by a plan that hears of tensors, and by one that does not. */
static struct plan *plan, *deaf;
static struct length_job job;
static bool is_alive[PIECES];
/*
 * For each piece: what was foretold when LOOKED submissions of a step had been made, as submissions from then; whether
 * it was used since.
 */
#define LOOKED 60
static uint64_t foretold[PIECES], foretold_deaf[PIECES];
static bool used[PIECES];
static uint64_t looked; /* the latest submission then; 0: it has not come to that in this step */
static unsigned n_launches;
static unsigned n_uses, n_right, n_right_deaf;
static bool alike; /* both plans must foretell the same */

static void tell_dead(void)
{
	for (uint32_t i = 0; i < PIECES; i++) {
		const uint8_t *state = job.fit.state + i * PIECE * PLAN_UNIT / NAIVE_GRAIN;
		bool alive = memchr(state, NAIVE_USED, PIECE * PLAN_UNIT / NAIVE_GRAIN) != NULL;

		if (alive == is_alive[i])
			continue;
		is_alive[i] = alive;
		plan_set_dead(plan, i * PIECE, alive ? 0 : PLAN_DEAD);
		plan_set_dead(deaf, i * PIECE, alive ? 0 : PLAN_DEAD);
	}
}

static void hear_birth(uint64_t begin, uint64_t end)
{
	plan_birth(plan, begin, end);
	tell_dead();
}

static void hear_death(uint64_t begin, uint64_t end)
{
	plan_death(plan, begin, end);
	tell_dead();
}

/* ---- what is foretold, and what comes ---- */

static uint64_t next_use(struct plan *of, uint32_t piece)
{
	uint64_t next = plan_next_use(of, piece);

	return next == PLAN_NEVER ? 0 : next - plan_now(of);
}

static void look(void)
{
	looked = plan_now(plan);
	memset(used, 0, sizeof(used));
	for (uint32_t i = 0; i < PIECES; i++) {
		foretold[i] = next_use(plan, i * PIECE);
		foretold_deaf[i] = next_use(deaf, i * PIECE);
	}
}

static void compare(const bool *named)
{
	for (uint32_t i = 0; looked && i < PIECES; i++) {
		if (!named[i] || used[i])
			continue;
		used[i] = true;
		n_uses++;
		n_right += foretold[i] == plan_now(plan) - looked;
		n_right_deaf += foretold_deaf[i] == plan_now(plan) - looked;
	}
}

static void hear_launch(uint64_t function, const struct length_tensor *tensors, unsigned n)
{
	uint64_t begins[LENGTH_NAMES] = {0};
	bool named[PIECES] = {false};
	uint32_t list[PIECES];
	unsigned n_named = 0;

	for (unsigned i = 0; i < n; i++) {
		uint64_t end = tensors[i].begin + tensors[i].bytes;

		begins[i] = tensors[i].begin;
		for (uint64_t piece = begins[i] / PLAN_UNIT / PIECE; piece * PIECE * PLAN_UNIT < end; piece++) {
			if (!named[piece])
				list[n_named++] = (uint32_t)piece * PIECE;
			named[piece] = true;
		}
	}
	plan_name(plan, begins, n);
	plan_note(plan, function, list, n_named);
	plan_note(deaf, function, list, n_named);
	for (uint32_t i = 0; i < PIECES; i++)
		if (alike)
			assert_int_equal(plan_next_use(plan, i * PIECE), plan_next_use(deaf, i * PIECE));
	compare(named);
	if (++n_launches == LOOKED)
		look();
}

/* Runs a step, and compares the first use of each piece in most of it with what was foretold. */
static void step(unsigned length)
{
	looked = n_launches = 0;
	length_step(&job, length);
	assert_true(plan_is_valid(plan) && plan_is_valid(deaf));
}

static const uint64_t sizes[] = {300 * MIB, 120 * MIB, 60 * MIB, 400 * MIB, 90 * MIB, 200 * MIB, 256 * MIB, 300 * MIB};

BEFORE_EACH
{
	uint64_t at = 0;

	plan = plan_new(PLAN_BESIDE_KERNELS);
	deaf = plan_new(PLAN_BESIDE_KERNELS);
	plan_set_pieces(plan, even_piece_at, NULL);
	for (uint32_t i = 0; i < PIECES; i++) {
		plan_set(plan, i * PIECE, PIECE, i % 3 ? PLAN_DEVICE : PLAN_HOST);
		plan_set(deaf, i * PIECE, PIECE, i % 3 ? PLAN_DEVICE : PLAN_HOST);
		is_alive[i] = true;
	}
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); at += sizes[i++])
		plan_report(plan, at, at + sizes[i]);
	job.anywhere = NULL;
	alike = false;
	n_uses = n_right = n_right_deaf = 0;
	length_begin(&job, (struct length_calls){hear_birth, hear_death, hear_launch}, sizes,
		     sizeof(sizes) / sizeof(*sizes));
}

AFTER_EACH
{
	plan_free(plan);
	plan_free(deaf);
}

/* ---- what is foretold ---- */

/* The lengths come in an order that repeats, but two of them follow others than before. */
TEST(lengths_that_repeat)
{
	static const unsigned lengths[] = {8, 4, 6, 5};

	for (unsigned i = 0; i < 40; i++) {
		if (i == 16)
			n_uses = n_right = n_right_deaf = 0;
		/* Now and then a step is left out, and all that follows lies elsewhere. */
		step(lengths[(i + i / 9) % 4]);
	}
	unsigned wrong = n_uses - n_right, wrong_deaf = n_uses - n_right_deaf;
	print_message("of %u first uses in the rest of a step %u were foretold wrong, %u without tensors\n", n_uses,
		      wrong, wrong_deaf);
	assert_true(4 * wrong < wrong_deaf);
}

TEST(equal_steps_are_as_without)
{
	for (unsigned i = 0; i < 8; i++)
		step(6);
	alike = true;
	for (unsigned i = 0; i < 5; i++)
		step(6);
}

/* ---- an allocator with another rule ---- */

static struct seed seed;

TEST(another_rule_changes_nothing)
{
	seed = seed_start("plan_tensors");
	alike = true;
	job.anywhere = &seed;
	for (unsigned i = 0; i < 12; i++)
		step(4 + (unsigned)seed_below(&seed, 4));
	/* Walks are tried ever less often. */
	assert_in_range(plan->tensors.future.round, 2, 20);
}

TEST(what_is_no_allocators_any_more)
{
	for (unsigned i = 0; i < 8; i++)
		step(4 + i % 3);
	plan_forget(plan, 0, UINT64_MAX);
	for (unsigned i = 0; i < 8; i++)
		step(4 + i % 3);
	alike = true;
	for (unsigned i = 0; i < 4; i++)
		step(6);
}
