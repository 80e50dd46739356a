// SPDX-License-Identifier: Apache-2.0
/* ledger_test.c: what is live and whose. */
#include "test/test.h"
#include "test/unit/seed.h"
#include "test/ledger_check.h"

static void add(enum ledger_kind kind, uint64_t key, size_t bytes)
{
	struct ledger_row *row = ledger_row_new(kind);

	assert_non_null(row);
	row->key = key;
	row->bytes = bytes;
	if (kind == LEDGER_HANDLE)
		row->handle.refs = 1;
	ledger_commit(row);
}

static void drop(unsigned kinds, uint64_t key)
{
	struct ledger_row *row = ledger_take(kinds, key);

	assert_non_null(row);
	ledger_row_free(row);
}

/* Every test leaves an empty and consistent ledger. */
static int is_clean(void **state)
{
	return ledger_n_rows() == 0 && ledger_n_sync_memops() == 0 && ledger_is_valid() ? 0 : -1;
}

EACH_TEST(NULL, is_clean)

TEST(a_new_row_is_zero_with_an_id_of_its_own)
{
	struct ledger_row *a = ledger_row_new(LEDGER_HEAP), *b = ledger_row_new(LEDGER_PINNED);

	assert_int_equal(a->kind, LEDGER_HEAP);
	assert_true(a->id != b->id);
	uint64_t id = b->id;
	a->bytes = 5;
	a->sync_memops = true;
	ledger_row_free(a);
	/* A row that was used before comes back as new, and its id does not. */
	a = ledger_row_new(LEDGER_DRIVER);
	assert_true(a->bytes == 0 && !a->sync_memops && !a->next && a->id > id);
	ledger_row_free(a);
	ledger_row_free(b);
	ledger_row_free(NULL);
}

TEST(a_row_is_found_by_key_and_by_kind)
{
	struct ledger_row row = {.bytes = 1234};

	add(LEDGER_MANAGED, 0x1000, 7);
	assert_false(ledger_get(LEDGER_HEAP | LEDGER_DRIVER, 0x1000, &row));
	assert_false(ledger_get(LEDGER_MANAGED, 0x1001, &row));
	assert_int_equal(row.bytes, 1234);
	assert_true(ledger_get(LEDGER_FREEABLE, 0x1000, &row));
	assert_int_equal(row.bytes, 7);
	assert_null(ledger_take(LEDGER_HEAP, 0x1000));
	drop(LEDGER_FREEABLE, 0x1000);
	assert_false(ledger_get(LEDGER_FREEABLE, 0x1000, &row));
	assert_null(ledger_take(LEDGER_FREEABLE, 0x1000));
}

/* A handle is a number of the driver's choice; it may well be an address too. */
TEST(one_key_may_stand_for_things_of_different_kinds)
{
	struct ledger_row row;

	add(LEDGER_HANDLE, 0x42, 1);
	add(LEDGER_REGISTERED, 0x42, 2);
	add(LEDGER_HEAP, 0x42, 3);
	assert_true(ledger_get(LEDGER_HANDLE, 0x42, &row) && row.bytes == 1);
	assert_true(ledger_get(LEDGER_REGISTERED, 0x42, &row) && row.bytes == 2);
	assert_true(ledger_get(LEDGER_HEAP, 0x42, &row) && row.bytes == 3);
	drop(LEDGER_REGISTERED, 0x42);
	assert_false(ledger_get(LEDGER_REGISTERED, 0x42, &row));
	drop(LEDGER_FREEABLE, 0x42);
	assert_true(ledger_get(LEDGER_HANDLE, 0x42, &row) && row.bytes == 1);
	drop(LEDGER_HANDLE, 0x42);
}

TEST(a_hundred_thousand_rows_stay_findable)
{
	enum { MANY = 100000 };
	const uint64_t base = UINT64_C(0x200000000000), step = 512;
	struct ledger_row row;

	for (uint64_t i = 0; i < MANY; i++)
		add(LEDGER_HEAP, base + i * step, (size_t)i + 1);
	assert_int_equal(ledger_n_rows(), MANY);
	assert_true(ledger_is_valid());
	for (uint64_t i = 0; i < MANY; i++)
		if (!ledger_get(LEDGER_HEAP, base + i * step, &row) || row.bytes != i + 1)
			fail_msg("row %llu is lost", (unsigned long long)i);
	for (uint64_t i = MANY; i-- > 0;)
		drop(LEDGER_HEAP, base + i * step);
}

TEST(take_context_takes_what_is_of_that_context_and_kind)
{
	CUcontext mine = (CUcontext)0x10, other = (CUcontext)0x20;
	struct ledger_ending ending = {.kinds = LEDGER_FREEABLE, .context = mine};
	size_t n = 0;

	for (uint64_t i = 0; i < 600; i++) {
		struct ledger_row *row = ledger_row_new(i % 3 ? LEDGER_HEAP : LEDGER_PINNED);

		row->key = i;
		row->context = i % 2 ? mine : other;
		row->sync_memops = row->kind == LEDGER_HEAP;
		ledger_commit(row);
	}
	ending.line = ledger_line();
	for (struct ledger_row *row = ledger_take_context(&ending), *next; row; row = next, n++) {
		next = row->next;
		assert_true(row->context == mine && row->kind == LEDGER_HEAP && row->key % 2);
		ledger_row_free(row);
	}
	assert_int_equal(n, 200);
	assert_int_equal(ledger_n_rows(), 400);
	assert_int_equal(ledger_n_sync_memops(), 200);
	assert_true(ledger_is_valid());
	assert_null(ledger_take_context(&ending));
	for (uint64_t i = 0; i < 600; i++)
		ledger_row_free(ledger_take(LEDGER_HEAP | LEDGER_PINNED, i));
}

static void add_spanning(enum ledger_kind kind, uint64_t key)
{
	struct ledger_row *row = ledger_row_new(kind);

	row->key = key;
	row->bytes = 4096;
	assert_true(ledger_span(row));
	ledger_commit(row);
}

TEST(a_row_that_spans_is_found_by_each_address_in_it)
{
	struct ledger_row row;

	add_spanning(LEDGER_MAPPING, 0x10000);
	add_spanning(LEDGER_MANAGED, 0x40000);
	add_spanning(LEDGER_MAPPING, 0x80000);
	assert_true(ledger_find(LEDGER_MAPPING, 0x10fff, &row) && ledger_find(LEDGER_MAPPING, 0x80fff, &row));
	assert_false(ledger_find(LEDGER_MAPPING, 0x11000, &row) || ledger_find(LEDGER_MAPPING, 0x40000, &row));
	drop(LEDGER_MAPPING, 0x10000);
	drop(LEDGER_MANAGED, 0x40000);
	drop(LEDGER_MAPPING, 0x80000);
}

TEST(sync_memops_are_counted_once_a_row)
{
	add(LEDGER_HEAP, 1, 1);
	add(LEDGER_HEAP, 2, 1);
	add(LEDGER_DRIVER, 3, 1);
	assert_false(ledger_set_sync_memops(3, true));
	assert_false(ledger_set_sync_memops(4, true));
	assert_true(ledger_set_sync_memops(1, true));
	assert_true(ledger_set_sync_memops(1, true));
	assert_true(ledger_set_sync_memops(2, true));
	assert_int_equal(ledger_n_sync_memops(), 2);
	assert_true(ledger_set_sync_memops(2, false));
	assert_true(ledger_set_sync_memops(2, false));
	assert_int_equal(ledger_n_sync_memops(), 1);
	assert_true(ledger_is_valid());
	drop(LEDGER_HEAP, 1);
	assert_int_equal(ledger_n_sync_memops(), 0);
	drop(LEDGER_HEAP, 2);
	drop(LEDGER_DRIVER, 3);
}

TEST(a_handle_lives_until_its_last_reference)
{
	struct ledger_row *gone = (struct ledger_row *)1;

	add(LEDGER_HANDLE, 9, 1);
	add(LEDGER_HEAP, 9, 1);
	assert_false(ledger_handle_ref(8, false));
	assert_false(ledger_handle_unref(8, false, &gone));
	assert_true(ledger_handle_ref(9, false));
	assert_true(ledger_handle_ref(9, false));
	assert_true(ledger_handle_unref(9, false, &gone) && !gone);
	assert_true(ledger_handle_unref(9, false, &gone) && !gone);
	assert_true(ledger_handle_unref(9, false, &gone));
	assert_non_null(gone);
	assert_int_equal(gone->kind, LEDGER_HANDLE);
	ledger_row_free(gone);
	assert_false(ledger_handle_unref(9, false, &gone));
	drop(LEDGER_HEAP, 9);
}

#define THREADS 4
#define ROUNDS  20000
#define KEYS    64

/* Each thread has keys of its own and one that all fight for; what it finds must be what it put there. */
static void *work(void *argument)
{
	struct seed seed = *(struct seed *)argument;
	uint64_t mine = seed.state % 1000 * 1000 + 1000;
	bool live[KEYS] = {0};
	uintptr_t wrong = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t k = seed_below(&seed, KEYS), key = mine + k;
		struct ledger_row row, *taken;

		wrong += ledger_get(LEDGER_HEAP, key, &row) != live[k] || (live[k] && row.bytes != key);
		if (live[k]) {
			taken = ledger_take(LEDGER_HEAP, key);
			wrong += !taken || taken->key != key;
		} else {
			taken = ledger_row_new(LEDGER_HEAP);
			taken->key = taken->bytes = key;
			ledger_commit(taken);
			taken = ledger_take(LEDGER_DRIVER, 1);
			if (!taken) {
				taken = ledger_row_new(LEDGER_DRIVER);
				taken->key = 1;
				ledger_commit(taken);
				taken = NULL;
			}
		}
		live[k] = !live[k];
		ledger_row_free(taken);
	}
	for (uint64_t k = 0; k < KEYS; k++)
		if (live[k])
			ledger_row_free(ledger_take(LEDGER_HEAP, mine + k));
	return (void *)wrong;
}

TEST(threads_find_what_they_put)
{
	struct seed seed = seed_start(__func__), seeds[THREADS];
	pthread_t threads[THREADS];
	struct ledger_row *row;

	for (unsigned i = 0; i < THREADS; i++) {
		seeds[i] = (struct seed){.state = seed_next(&seed) / 1000 * 1000 + i};
		assert_int_equal(pthread_create(&threads[i], NULL, work, &seeds[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		void *wrong;

		pthread_join(threads[i], &wrong);
		assert_null(wrong);
	}
	while ((row = ledger_take(LEDGER_DRIVER, 1)))
		ledger_row_free(row);
}
