// SPDX-License-Identifier: Apache-2.0
/*
 * tensor_table_test.c: the hash table of tensors, against a table of all addresses.
 */
#include "shim/plan/tensors.h"
#include "test/test.h"
#include "test/unit/seed.h"

#define PLACES 6000u

static struct tensor_table table;

AFTER_EACH
{
	tensor_table_fini(&table);
}

static void check(const uint64_t *value, uint32_t n)
{
	assert_int_equal(table.n, n);
	for (uint64_t place = 0; place < PLACES; place++) {
		const struct tensor *tensor = tensor_table_find(&table, place * TENSOR_GRAIN);

		assert_int_equal(tensor ? tensor->value : 0, value[place]);
	}
}

TEST(puts_and_removals_at_random)
{
	struct seed seed = seed_start("tensor_table");
	static uint64_t value[PLACES];
	uint32_t n = 0;

	memset(value, 0, sizeof(value));
	for (uint64_t i = 1; i <= 50000; i++) {
		uint64_t place = seed_below(&seed, PLACES), begin = place * TENSOR_GRAIN;

		if (value[place] && seed_below(&seed, 3)) {
			tensor_table_remove(&table, tensor_table_find(&table, begin));
			value[place] = 0;
			n--;
		} else {
			n += !value[place];
			value[place] = i;
			assert_true(tensor_table_put(&table, (struct tensor){begin, 1, i}));
		}
		if (i % 5000 == 0)
			check(value, n);
	}
	tensor_table_clear(&table);
	memset(value, 0, sizeof(value));
	check(value, 0);
}

TEST(there_is_a_limit)
{
	uint64_t i = 0;

	assert_null(tensor_table_find(&table, 0));
	while (tensor_table_put(&table, (struct tensor){i * TENSOR_GRAIN, 1, i}))
		assert_true(++i <= 1u << 20);
	assert_int_equal(table.n, i);
	assert_int_equal(tensor_table_find(&table, (i - 1) * TENSOR_GRAIN)->value, i - 1);
	assert_null(tensor_table_find(&table, i * TENSOR_GRAIN));
}
