// SPDX-License-Identifier: Apache-2.0
/*
 * live_budget_look() on a GPU that is a few numbers, in virtual time: processes that follow what is free, and neighbours
 * that take what they want.
 */
#include "shim/plan/gpu_turn.h"
#include "test/check.h"
#include "test/test.h"
#include "test/unit/seed.h"

#define SECOND  1000000000u
#define TOTAL   (80 * GIB)
#define RESERVE (2 * GIB)
#define CONTEXT (500 * MIB)
#define LOOK    (100 * MS)
/* What moves in a look: out to pinned host memory at 50 GB/s, in at half of that. */
#define OUT_OF_A_LOOK (5 * GIB)
#define IN_OF_A_LOOK  (5 * GIB / 2)

enum { MOST = 6 };

struct account {
	struct live_budget budget;
	uint64_t starts, wants, used, stuck; /* starts: ns; stuck: what cannot leave */
	uint64_t shrunk;                     /* ns: when it last shrank */
	uint64_t next;                       /* ns: of its next look */
	bool runs;
};

static struct seed dice;

static struct gpu {
	struct account account[MOST];
	unsigned n;
	uint64_t neighbour; /* bytes that somebody holds who does not follow anything */
	uint64_t now;
	uint64_t least_free;
} gpu;

static uint64_t gpu_free(void)
{
	uint64_t taken = gpu.neighbour;

	for (unsigned i = 0; i < gpu.n; i++)
		if (gpu.now >= gpu.account[i].starts)
			taken += CONTEXT + gpu.account[i].used;
	assert_true(taken <= TOTAL);
	return TOTAL - taken;
}

static struct live_budget_figures figures_of(const struct account *account)
{
	return (struct live_budget_figures){.now = gpu.now,
					    .total = TOTAL,
					    .free = gpu_free(),
					    .used = account->used,
					    .reserve = RESERVE,
					    .piece = 128 * MIB};
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Memory leaves at once; it comes in as far as there is any. */
static void account_look(struct account *account, uint64_t seed)
{
	if (!account->runs) {
		account->runs = true;
		struct live_budget_figures first = figures_of(account);
		live_budget_begin(&account->budget, &first, seed);
	}
	struct live_budget_figures figures = figures_of(account);
	if (live_budget_look(&account->budget, &figures) == LIVE_BUDGET_SHRINKS)
		account->shrunk = gpu.now;
	uint64_t goal = smaller(account->wants, account->budget.limit);
	if (goal < account->stuck)
		goal = account->stuck;
	if (account->used > goal)
		account->used -= smaller(account->used - goal, OUT_OF_A_LOOK);
	else
		account->used += smaller(smaller(goal - account->used, IN_OF_A_LOOK), gpu_free());
}

/* Runs the GPU for so long; looks of different accounts lie apart. */
static void run_for(uint64_t ns)
{
	for (uint64_t until = gpu.now + ns; gpu.now < until; gpu.now += 10 * MS) {
		for (unsigned i = 0; i < gpu.n; i++) {
			struct account *account = &gpu.account[i];

			if (gpu.now < account->next)
				continue;
			account->next = gpu.now + LOOK;
			account_look(account, seed_next(&dice) + i);
		}
		uint64_t left = gpu_free();
		gpu.least_free = smaller(gpu.least_free, left);
	}
}

static void gpu_begin(void)
{
	gpu = (struct gpu){.least_free = TOTAL};
}

static struct account *add_account(uint64_t starts, uint64_t wants)
{
	struct account *account = &gpu.account[gpu.n++];

	*account = (struct account){.starts = starts, .wants = wants};
	/* The first allocation comes some time after the context. */
	account->next = starts + 3 * LOOK + seed_next(&dice) % 10 * 10 * MS;
	return account;
}

TEST(one_alone_has_all_but_the_reserve_and_never_shrinks)
{
	gpu_begin();
	struct account *account = add_account(0, 200 * GIB);
	run_for(60 * (uint64_t)SECOND);
	assert_int_equal(account->shrunk, 0);
	assert_true(gpu_free() >= RESERVE && gpu_free() < RESERVE + 4 * MIB);
}

/* The limits do not move by more than this from `within` after the last one has started, and nobody shrinks. */
#define SETTLED (TOTAL / 100)

static void settle(unsigned n, uint64_t apart, uint64_t wants, uint64_t within)
{
	uint64_t before[MOST];

	gpu_begin();
	for (unsigned i = 0; i < n; i++)
		add_account(i * apart, wants);
	run_for((n - 1) * apart + within);
	uint64_t then = gpu.now;
	for (unsigned i = 0; i < n; i++)
		before[i] = gpu.account[i].budget.limit;
	run_for(60 * (uint64_t)SECOND);
	for (unsigned i = 0; i < n; i++) {
		uint64_t limit = gpu.account[i].budget.limit;

		assert_true(gpu.account[i].shrunk < then);
		assert_true(limit - smaller(limit, before[i]) <= SETTLED &&
			    before[i] - smaller(limit, before[i]) <= SETTLED);
		/* Nobody is left with nothing. */
		assert_true(gpu.account[i].used >= smaller(wants, 256 * MIB));
	}
	assert_true(gpu_free() >= RESERVE);
}

TEST(strangers_settle_within_30_seconds)
{
	for (unsigned round = 0; round < 200; round++) {
		settle(2, 0, 200 * GIB, 30 * (uint64_t)SECOND);
		settle(2, 10 * (uint64_t)SECOND, 200 * GIB, 30 * (uint64_t)SECOND);
		settle(2, 3 * (uint64_t)SECOND, 50 * GIB, 30 * (uint64_t)SECOND);
		settle(2, 0, 20 * GIB, 30 * (uint64_t)SECOND); /* both fit */
		/* Of more, one in a thousand shrinks once more later. */
		settle(4, 2 * (uint64_t)SECOND, 60 * GIB, 60 * (uint64_t)SECOND);
	}
}

/* Steps below the reserve, at 4 GiB/s: there is always room for the next one. */
TEST(a_neighbour_never_fails_and_what_it_leaves_comes_back)
{
	const uint64_t step = 1900 * MIB, every = 470 * (uint64_t)MS;

	for (unsigned round = 0; round < 20; round++) {
		gpu_begin();
		struct account *account = add_account(0, 200 * GIB);
		run_for(30 * (uint64_t)SECOND);
		uint64_t alone = account->used;
		for (unsigned i = 0; i < 30; i++) {
			assert_true(gpu_free() >= step);
			gpu.neighbour += step;
			run_for(every + seed_next(&dice) % 10 * 10 * MS);
		}
		run_for(30 * (uint64_t)SECOND);
		assert_true(account->used <= TOTAL - gpu.neighbour - RESERVE);
		assert_true(account->used >= TOTAL - gpu.neighbour - 3 * RESERVE);
		gpu.neighbour = 0;
		/* In steps of an eighth: it may begin anew. */
		uint64_t less = account->budget.limit;
		run_for(1 * (uint64_t)SECOND);
		assert_true(account->budget.limit <= less + (TOTAL - less) / 4);
		run_for(90 * (uint64_t)SECOND);
		assert_true(account->used >= alone - SETTLED);
	}
}

TEST(growth_waits_for_five_seconds_and_takes_an_eighth_at_most)
{
	struct live_budget budget;
	struct live_budget_figures figures = {
	    .now = SECOND, .total = TOTAL, .free = 10 * GIB, .used = 40 * GIB, .reserve = RESERVE};

	live_budget_begin(&budget, &figures, 7);
	assert_int_equal(budget.limit, 48 * GIB);
	assert_int_equal(live_budget_look(&budget, &figures), LIVE_BUDGET_KEEPS);
	figures.free = GIB;
	assert_int_equal(live_budget_look(&budget, &figures), LIVE_BUDGET_SHRINKS);
	/* 9 GiB went to others: the reserve is doubled. */
	assert_int_equal(budget.limit, 37 * GIB);
	figures.used = 37 * GIB;
	figures.free = 4 * GIB;
	assert_int_equal(live_budget_look(&budget, &figures), LIVE_BUDGET_KEEPS);
	figures.now += 30 * (uint64_t)SECOND; /* no longer wary */
	figures.free = 2 * GIB - MIB;
	figures.used = 37 * GIB;
	assert_int_equal(live_budget_look(&budget, &figures), LIVE_BUDGET_SHRINKS);
	uint64_t low = budget.limit;
	figures.used = low;
	figures.free = 20 * GIB;
	figures.now += 4990 * (uint64_t)MS;
	assert_int_equal(live_budget_look(&budget, &figures), LIVE_BUDGET_KEEPS);
	figures.now += 6000 * (uint64_t)MS; /* no longer wary, either */
	assert_int_equal(live_budget_look(&budget, &figures), LIVE_BUDGET_GROWS);
	assert_true(budget.limit > low + GIB && budget.limit <= low + 20 * GIB / 8);
	/* What it has got is not used yet: nothing more. */
	figures.now += 60 * (uint64_t)SECOND;
	assert_int_equal(live_budget_look(&budget, &figures), LIVE_BUDGET_KEEPS);
}

/* What cannot leave keeps the figures as they are: the limit stays where it is, too. */
TEST(what_cannot_leave_does_not_drive_the_limit_to_nothing)
{
	gpu_begin();
	struct account *account = add_account(0, 200 * GIB);
	run_for(20 * (uint64_t)SECOND);
	account->stuck = account->used;
	gpu.neighbour = GIB;
	run_for(2 * (uint64_t)SECOND);
	uint64_t limit = account->budget.limit;
	assert_true(limit < account->used && limit >= account->used - 4 * GIB);
	run_for(8 * (uint64_t)SECOND);
	assert_int_equal(account->budget.limit, limit);
}

TEST(figures_that_do_not_agree_give_a_limit_all_the_same)
{
	for (unsigned round = 0; round < 200000; round++) {
		struct live_budget budget;
		struct live_budget_figures figures = {.now = SECOND,
						      .total = TOTAL,
						      .free = seed_next(&dice) % 100 * GIB,
						      .used = seed_next(&dice) % 100 * GIB,
						      .reserve = seed_next(&dice) % 3 * GIB};

		live_budget_begin(&budget, &figures, round);
		for (unsigned look = 0; look < 4; look++) {
			figures.now += seed_next(&dice) % 8 * (uint64_t)SECOND;
			figures.free = seed_next(&dice) % 100 * GIB;
			figures.used = seed_next(&dice) % 100 * GIB;
			live_budget_look(&budget, &figures);
			assert_true(budget.limit <= figures.used + figures.free);
		}
	}
}

START(dice = seed_start("live_budget_test"))
