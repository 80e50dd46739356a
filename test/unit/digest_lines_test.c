// SPDX-License-Identifier: Apache-2.0
/*
 * Whose what moves and is waited for is, in the digest of a trace that has births: the lines' at which the tensors were
 * born. And that a trace without them counts for allocations, as ever.
 */
#include "test/test.h"
#include "test/unit/trace_help.h"
#include "tools/digest/digest.h"

#define AT UINT64_C(0x7f0000000000)
#define T0 (1000 * MS)

static struct digest digest;

/* A block of 64 MiB that site 1 has asked for. */
static void begin_named(const char *const names[3])
{
	file_frame(&file, 0, T0);
	for (uint64_t i = 0; i < 3; i++)
		file_name(&file, TRACE_SITES, i + 1, names[i], strlen(names[i]));
	FILE_ADD(&file, made, T0, 1, AT, 64 * MIB, 0, 0, 0, 0, 1, 0);
	FILE_ADD(&file, kept, T0, 0, AT, 64 * MIB);
}

/* Site 2 and 3 are one line, called from two places. */
static void begin(void)
{
	begin_named((const char *const[]){"job.py:3 in f", "job.py:4 in g", "job.py:4 in g"});
}

static void read_back(void)
{
	FILE_ADD(&file, end, T0 + 1000 * MS, 0);
	assert_int_equal(save_and_read(), 0);
	assert_int_equal(digest_make(&trace, NULL, &digest), 0);
}

static int end(void **state)
{
	digest_free(&digest);
	return teardown(state);
}

EACH_TEST(setup, end)

GROUP(temporary_make, temporary_remove)

static const struct digest_group *group_of(enum digest_by by, uint64_t number)
{
	static const struct digest_group nothing;

	for (size_t i = 0; i < digest.tables[by].n; i++)
		if (digest.tables[by].groups[i].number == number)
			return &digest.tables[by].groups[i];
	return &nothing;
}

/* All of the block moves, from `at` ms on for 50 ms. */
static void move(uint64_t number, uint64_t at, bool out)
{
	FILE_ADD(&file, move, T0 + at * MS, number, 0, AT, 64 * MIB, out, out ? TRACE_WHY_ROOM : TRACE_WHY_WAITED, 0,
		 0);
	FILE_ADD(&file, moved, T0 + (at + 50) * MS, number, 0, 0);
}

/* 16, 32 and 8 MiB of the sites; 8 MiB hold nothing. */
static void add_births(bool known)
{
	FILE_ADD(&file, born, T0 + MS, 0, AT, 16 * MIB, known ? 1 : 0);
	FILE_ADD(&file, born, T0 + MS, 0, AT + 16 * MIB, 32 * MIB, known ? 2 : 0);
	FILE_ADD(&file, born, T0 + MS, 0, AT + 48 * MIB, 8 * MIB, known ? 3 : 0);
}

TEST(what_moves_is_of_the_lines_of_its_tensors)
{
	begin();
	add_births(true);
	move(1, 10, true);
	FILE_ADD(&file, wait, T0 + 100 * MS, 0, 56 * MS, 0);
	move(2, 100, false);
	read_back();
	const struct digest_group *f = group_of(DIGEST_BY_SITE, 1), *g = group_of(DIGEST_BY_SITE, 2);
	assert_true(f->bytes_out == 24 * MIB && f->bytes_in == 24 * MIB); /* with what holds nothing */
	assert_true(g->bytes_out == 40 * MIB && g->bytes_in == 40 * MIB);
	assert_true(f->wait_ns == 16 * MS && g->wait_ns == 40 * MS);
	assert_true(!f->moves_out && g->moves_out == 1 && !f->moves_in && g->moves_in == 1);
	assert_true(f->allocations == 1 && f->peak == 64 * MIB && !g->allocations && !g->peak);
	assert_true(f->tensors == 1 && f->tensor_bytes == 16 * MIB && g->tensors == 2 && g->tensor_bytes == 40 * MIB);
	assert_int_equal(group_of(DIGEST_BY_CALLS, 2)->bytes_in, 32 * MIB);
	assert_int_equal(group_of(DIGEST_BY_CALLS, 3)->bytes_in, 8 * MIB);
	assert_int_equal(group_of(DIGEST_BY_CALLS, 3)->wait_ns, 8 * MS);
	/* Other tables are about allocations. */
	assert_int_equal(group_of(DIGEST_BY_RULE, 0)->bytes_in, 64 * MIB);
	assert_int_equal(digest.total.bytes_in, 64 * MIB);
	assert_true(digest.total.tensors == 3 && digest.total.tensor_bytes == 56 * MIB);
	assert_int_equal(digest.tables[DIGEST_BY_SITE].groups[0].number, 2); /* it costs most */
	assert_non_null(
	    strstr(digest.costs[0].evidence,
		   "40.0 ms of it for tensors of site \"job.py:4 in g\", of which 40.0 MiB were brought in"));
	assert_non_null(strstr(digest.advice[0], "Tensors of site \"job.py:4 in g\" cause 62"));
	assert_null(strstr(digest.advice[0], "checkpoint")); /* how long they last is not known */
}

/* ---- what is advised for them ---- */

enum { STEPS = 9, LAUNCHES = 10, STEP_MS = 100 };

/*
 * Each step names two tensors of the block; in the middle of it all of the block leaves and comes back. lasting: what
 * site 2 has there is born once, and otherwise anew in each step.
 */
static const char *advice_of(const char *name, const char *other, bool lasting)
{
	begin_named((const char *const[]){"job.py:3 in f", name, other});

	FILE_ADD(&file, born, T0 + MS, 0, AT, 16 * MIB, 1);
	for (unsigned step = 0; step < STEPS; step++) {
		uint64_t begin = STEP_MS * step, now = T0 + begin * MS;

		for (unsigned i = 0; i < LAUNCHES; i++) {
			struct trace_named named = {.address = AT + (i % 2) * 16 * MIB};

			if (i == 2 && (!lasting || !step))
				FILE_ADD(&file, born, now + 8 * MS, 0, AT + 16 * MIB, 48 * MIB, 2);
			if (i == 5) {
				FILE_ADD(&file, move, now + 20 * MS, 2 * step, 0, AT, 64 * MIB, 1, TRACE_WHY_ROOM, 0,
					 0);
				FILE_ADD(&file, moved, now + 25 * MS, 2 * step, 0, 0);
				FILE_ADD(&file, wait, now + 30 * MS, 0, 20 * MS, 0);
				FILE_ADD(&file, move, now + 30 * MS, 2 * step + 1, 0, AT, 64 * MIB, 0, TRACE_WHY_WAITED,
					 0, 0);
				FILE_ADD(&file, moved, now + 45 * MS, 2 * step + 1, 0, 0);
			}
			file_submit(&file, now + (i < 5 ? 2 * i : 50 + i) * MS, 100 + i, &named, 1);
			if (i == 8 && !lasting)
				FILE_ADD(&file, died, now + 59 * MS, 0, AT + 16 * MIB, 48 * MIB);
		}
	}
	read_back();
	assert_int_equal(digest.n_steps, STEPS);
	return digest.n_advice ? digest.advice[0] : "";
}

static void must_advise(const char *advice, const char *words)
{
	if (!strstr(advice, " cause 7") || strlen(advice) < strlen(words) ||
	    strcmp(advice + strlen(advice) - strlen(words), words) != 0)
		fail_msg("the advice is: %s", advice);
	end(NULL);
	setup(NULL);
}

TEST(to_compute_again_is_advised_of_what_the_forward_pass_makes_anew)
{
	must_advise(advice_of("job.py:4 in g", "job.py:4 in g [backward]", false),
		    "make them smaller, free them earlier, or compute more of them again (torch.utils.checkpoint).");
	/* No other line's backward pass shows what this one makes. */
	must_advise(advice_of("job.py:4 in g", "job.py:3 in f [backward]", false),
		    "make them smaller, or free them earlier.");
}

/* Weights, and states of an optimizer. */
TEST(what_lasts_from_step_to_step_is_not_to_be_computed_again)
{
	must_advise(advice_of("job.py:4 in g", "job.py:4 in g [backward]", true),
		    "they last from step to step, so only smaller ones, or fewer, move less.");
}

TEST(nor_is_what_the_backward_pass_makes)
{
	static const char end[] =
	    "the backward pass makes them: make them smaller, or free gradients earlier (zero_grad(set_to_none=True)).";

	must_advise(advice_of("job.py:4 in g [backward]", "job.py:4 in g", false), end);
	must_advise(advice_of("backward", "job.py:4 in g", false), end);
}

TEST(a_range_that_is_born_again_is_of_the_new_line)
{
	begin();
	add_births(true);
	FILE_ADD(&file, died, T0 + 2 * MS, 0, AT + 16 * MIB, 32 * MIB);
	move(1, 10, true);
	FILE_ADD(&file, born, T0 + 70 * MS, 0, AT + 16 * MIB, 32 * MIB, 1);
	move(2, 100, false);
	read_back();
	/* On the way out it was dead, and of nobody's tensors. */
	assert_int_equal(group_of(DIGEST_BY_SITE, 1)->bytes_out, 56 * MIB);
	assert_int_equal(group_of(DIGEST_BY_SITE, 2)->bytes_out, 8 * MIB);
	assert_int_equal(group_of(DIGEST_BY_SITE, 1)->bytes_in, 56 * MIB);
	assert_int_equal(group_of(DIGEST_BY_SITE, 2)->bytes_in, 8 * MIB);
}

TEST(without_sites_of_births_it_is_of_the_allocation)
{
	begin();
	add_births(false);
	move(1, 10, true);
	read_back();
	assert_int_equal(group_of(DIGEST_BY_SITE, 1)->bytes_out, 64 * MIB);
	assert_int_equal(group_of(DIGEST_BY_SITE, 1)->moves_out, 1);
	assert_int_equal(group_of(DIGEST_BY_SITE, 1)->tensors, 0);
	assert_int_equal(digest.total.tensors, 3);
	assert_int_equal(digest.tables[DIGEST_BY_SITE].n, 1);
	assert_int_equal(digest.n_shares, 0);
}

/* Numbers that no file of ours has. */
TEST(absurd_sites_are_no_sites)
{
	begin();
	FILE_ADD(&file, born, T0 + MS, 0, AT, 16 * MIB, 65537);
	FILE_ADD(&file, born, T0 + MS, 0, AT + 16 * MIB, 16 * MIB, UINT64_MAX);
	FILE_ADD(&file, born, T0 + MS, 0, AT, UINT64_MAX, 1);
	move(1, 10, true);
	read_back();
	assert_int_equal(group_of(DIGEST_BY_SITE, 1)->bytes_out, 64 * MIB);
	assert_int_equal(digest.n_shares, 0);
}
