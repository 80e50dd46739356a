// SPDX-License-Identifier: Apache-2.0
/*
 * tensor_log_test.c: what is remembered of tensors: what is alive, against a table; events and names, and when they are
 * forgotten.
 */
#include "shim/plan/predict.h"
#include "shim/plan/tensors.h"
#include "test/test.h"
#include "test/unit/seed.h"

/* Not on the stack: a table in it grows. */
static struct tensor_log log_of;

AFTER_EACH
{
	tensor_log_fini(&log_of);
}

static void born(uint64_t position, uint64_t begin, uint64_t bytes)
{
	struct tensor_event birth = {.position = position, .begin = begin, .bytes = bytes, .born = true};

	tensor_log_birth(&log_of, &birth, begin + bytes);
}

TEST(events_are_in_order)
{
	assert_int_equal(tensor_log_from(&log_of, 0), 0);
	born(3, 10 * MIB, 4 * MIB);
	born(3, 20 * MIB, 4 * MIB);
	born(7, 30 * MIB, 4 * MIB);
	tensor_log_death(&log_of, 9, 20 * MIB, 24 * MIB);
	assert_int_equal(log_of.n_events, 4);
	assert_int_equal(tensor_log_from(&log_of, 3), 0);
	assert_int_equal(tensor_log_from(&log_of, 4), 2);
	assert_int_equal(tensor_log_from(&log_of, 10), 4);
	const struct tensor_event *death = tensor_log_event(&log_of, 3);
	assert_true(!death->born && death->begin == 20 * MIB && death->bytes == 4 * MIB && death->position == 9);
	assert_null(tensor_log_at(&log_of, 20 * MIB));
	assert_int_equal(tensor_log_at(&log_of, 30 * MIB)->value, 2);
	assert_true(tensor_log_has(&log_of, 3) && !tensor_log_has(&log_of, 4) && !tensor_log_has(&log_of, UINT64_MAX));
}

TEST(a_death_has_the_size_that_was_asked_for)
{
	struct tensor_event birth = {.begin = 10 * MIB, .bytes = 3 * MIB, .born = true};

	tensor_log_birth(&log_of, &birth, 14 * MIB);
	tensor_log_death(&log_of, 1, 10 * MIB, 14 * MIB);
	assert_int_equal(tensor_log_event(&log_of, 1)->bytes, 3 * MIB);
}

TEST(what_does_not_belong_here_is_ignored)
{
	tensor_log_death(&log_of, 1, 10 * MIB, 14 * MIB);
	born(1, 0, TENSOR_LOG_LEAST);
	assert_int_equal(log_of.n_events, 0);
	born(1, 10 * MIB, 4 * MIB);
	tensor_log_death(&log_of, 2, 10 * MIB, 13 * MIB);
	tensor_log_death(&log_of, 2, 11 * MIB, 15 * MIB);
	assert_int_equal(log_of.n_events, 1);
}

TEST(beyond_two_tebibytes_nothing_is_recorded_any_more)
{
	born(1, 10 * MIB, 4 * MIB);
	born(2, (uint64_t)2 << 40, 4 * MIB);
	assert_true(log_of.failed);
	born(3, 20 * MIB, 4 * MIB);
	tensor_log_death(&log_of, 4, 10 * MIB, 14 * MIB);
	assert_int_equal(log_of.n_events, 1);
}

TEST(old_events_are_forgotten)
{
	for (uint64_t i = 0; i < TENSOR_LOG_EVENTS / 2 + 10; i++) {
		born(i, 10 * MIB, 4 * MIB);
		tensor_log_death(&log_of, i, 10 * MIB, 14 * MIB);
	}
	assert_int_equal(log_of.n_events, TENSOR_LOG_EVENTS + 20);
	assert_true(!tensor_log_has(&log_of, 19) && tensor_log_has(&log_of, 20));
	assert_int_equal(tensor_log_from(&log_of, 0), 20);
	assert_int_equal(tensor_log_event(&log_of, tensor_log_from(&log_of, 5000))->position, 5000);
}

/* ---- names ---- */

TEST(names_are_those_of_their_position)
{
	uint64_t from, to;

	born(0, 10 * MIB, 4 * MIB);
	born(0, 20 * MIB, 4 * MIB);
	born(0, 30 * MIB + TENSOR_GRAIN, 4 * MIB);
	/* Any byte of a tensor is its name; what lies in none is no name. */
	tensor_log_name(&log_of, 1, (uint64_t[]){14 * MIB - 1, 14 * MIB, 9 * MIB, 21 * MIB, 22 * MIB}, 5);
	tensor_log_name(&log_of, 2, NULL, 0);
	tensor_log_name(&log_of, 3, (uint64_t[]){32 * MIB}, 1);
	assert_true(tensor_log_names(&log_of, 1, &from, &to));
	assert_int_equal(to - from, 2);
	assert_int_equal(tensor_log_named(&log_of, from), 10 * MIB);
	assert_int_equal(tensor_log_named(&log_of, from + 1), 20 * MIB);
	assert_true(tensor_log_names(&log_of, 2, &from, &to));
	assert_int_equal(to, from);
	assert_true(tensor_log_names(&log_of, 3, &from, &to));
	assert_int_equal(tensor_log_named(&log_of, from), 30 * MIB + TENSOR_GRAIN);
	assert_false(tensor_log_names(&log_of, 4, &from, &to));
	/* One is missing. */
	tensor_log_name(&log_of, 5, NULL, 0);
	assert_false(tensor_log_names(&log_of, 3, &from, &to));
	assert_true(tensor_log_names(&log_of, 5, &from, &to));
}

TEST(old_names_are_forgotten)
{
	uint64_t addresses[1000], from, to, position = 0;

	born(0, 0, 4 * MIB);
	born(0, 10 * MIB, 4 * MIB);
	for (unsigned i = 0; i < 1000; i++)
		addresses[i] = i % 2 ? 10 * MIB : 0;
	while (position * 1000 < TENSOR_LOG_NAMES + 5000)
		tensor_log_name(&log_of, ++position, addresses, 1000);
	assert_true(tensor_log_names(&log_of, position, &from, &to));
	assert_false(tensor_log_names(&log_of, 4, &from, &to));
	assert_true(tensor_log_names(&log_of, position - TENSOR_LOG_NAMES / 1000 + 1, &from, &to));
	for (uint64_t i = 0; i < PREDICT_MOST; i++)
		tensor_log_name(&log_of, ++position, NULL, 0);
	assert_false(tensor_log_names(&log_of, position - PREDICT_MOST, &from, &to));
	assert_true(tensor_log_names(&log_of, position - PREDICT_MOST + 1, &from, &to));
}

TEST(too_many_tensors_are_not_recorded)
{
	for (uint64_t i = 0; i < TENSOR_LOG_ALIVE; i++)
		born(1, 4 * i * MIB, 2 * MIB);
	assert_false(log_of.failed);
	born(1, 4 * TENSOR_LOG_ALIVE * MIB, 2 * MIB);
	assert_true(log_of.failed);
}

/* ---- what is alive, against a table ---- */

#define UNITS 8000u /* of 2 MiB */

/* For each unit: the number of the tensor that has it; 0: none. */
static uint32_t owner[UNITS];
static uint32_t n_tensors;
static struct live {
	uint32_t from, to;
} tensors[60001];

static void kill_in(uint32_t from, uint32_t to)
{
	for (uint32_t unit = from; unit < to && unit < UNITS; unit++) {
		struct live *tensor = &tensors[owner[unit]];

		if (owner[unit])
			memset(&owner[tensor->from], 0, (tensor->to - tensor->from) * sizeof(*owner));
	}
}

TEST(what_is_alive_at_random)
{
	struct seed seed = seed_start("tensor_log");

	memset(owner, 0, sizeof(owner));
	n_tensors = 0;
	for (unsigned i = 0; i < 60000; i++) {
		uint32_t from = (uint32_t)seed_below(&seed, UNITS - 20),
			 to = from + 1 + (uint32_t)seed_below(&seed, 20);

		if (seed_below(&seed, 500) == 0) {
			tensor_log_forget(&log_of, from * 2 * MIB + 512, to * 2 * MIB);
			kill_in(from, to);
		} else if (owner[from] && seed_below(&seed, 3)) {
			struct live *tensor = &tensors[owner[from]];

			tensor_log_death(&log_of, i, tensor->from * 2 * MIB, tensor->to * 2 * MIB);
			kill_in(from, from + 1);
		} else {
			/* Also where another one is alive. */
			kill_in(from, to);
			tensors[++n_tensors] = (struct live){from, to};
			for (uint32_t unit = from; unit < to; unit++)
				owner[unit] = n_tensors;
			born(i, from * 2 * MIB, (to - from) * 2 * MIB);
		}
		uint32_t unit = (uint32_t)seed_below(&seed, UNITS);
		const struct tensor *tensor = tensor_log_at(&log_of, unit * 2 * MIB + seed_below(&seed, 2 * MIB));
		assert_int_equal(tensor != NULL, owner[unit] != 0);
		if (!tensor)
			continue;
		assert_int_equal(tensor->begin, tensors[owner[unit]].from * 2 * MIB);
		assert_int_equal(tensor->begin + tensor->bytes, tensors[owner[unit]].to * 2 * MIB);
	}
	assert_false(log_of.failed);
}
