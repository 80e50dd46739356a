/*
 * A hash table with chains, doubled when it holds more rows than buckets. If the doubling gets no memory the chains
 * grow longer, and nothing fails. Freed rows wait on a list for the next allocation.
 */
#include "shim/ledger.h"
#include "shim/budget.h"
#include "shim/lock.h"

#include <stdatomic.h>
#include <stdlib.h>

#define FIRST_BUCKETS 256

static struct ledger_row *first_table[FIRST_BUCKETS];
static struct ledger_row **table = first_table;
static size_t n_buckets = FIRST_BUCKETS, n_rows;
static struct ledger_row *idle_rows;
static size_t n_idle;
static atomic_uint n_sync_memops;
static _Atomic uint64_t next_id = (uint64_t)1 << 40; /* far from the driver's own buffer ids, which count from 1 */

/* At most this many rows wait for reuse; the rest goes back to the C library. */
#define MOST_IDLE 4096

static struct lock ledger_lock = LOCK_INIT(LOCK_LEDGER);

/* Fibonacci hashing: addresses differ in the middle bits, the multiplication brings them to the top. */
static size_t bucket_of(uint64_t key, size_t buckets)
{
	return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - __builtin_ctzll(buckets)));
}

static struct ledger_row **find(unsigned kinds, uint64_t key)
{
	struct ledger_row **at = &table[bucket_of(key, n_buckets)];

	while (*at && ((*at)->key != key || !((*at)->kind & kinds)))
		at = &(*at)->next;
	return at;
}

static void grow(void)
{
	size_t more = n_buckets * 2;
	struct ledger_row **wider = calloc(more, sizeof(*wider));

	if (!wider)
		return;
	for (size_t i = 0; i < n_buckets; i++) {
		for (struct ledger_row *row = table[i], *next; row; row = next) {
			size_t bucket = bucket_of(row->key, more);

			next = row->next;
			row->next = wider[bucket];
			wider[bucket] = row;
		}
	}
	if (table != first_table)
		free(table);
	table = wider;
	n_buckets = more;
}

struct ledger_row *ledger_row_new(enum ledger_kind kind)
{
	lock_take(&ledger_lock);
	struct ledger_row *row = idle_rows;
	if (row) {
		idle_rows = row->next;
		n_idle--;
	}
	lock_drop(&ledger_lock);
	if (!row && !(row = malloc(sizeof(*row))))
		return NULL;
	*row = (struct ledger_row){.kind = kind, .id = atomic_fetch_add(&next_id, 1)};
	return row;
}

void ledger_row_free(struct ledger_row *row)
{
	if (!row)
		return;
	if (row->cap)
		budget_give(row->cap, row->bytes);
	lock_take(&ledger_lock);
	if (n_idle < MOST_IDLE) {
		row->next = idle_rows;
		idle_rows = row;
		n_idle++;
		row = NULL;
	}
	lock_drop(&ledger_lock);
	free(row);
}

void ledger_commit(struct ledger_row *row)
{
	lock_take(&ledger_lock);
	if (n_rows >= n_buckets)
		grow();
	struct ledger_row **bucket = &table[bucket_of(row->key, n_buckets)];
	row->next = *bucket;
	*bucket = row;
	n_rows++;
	if (row->sync_memops)
		atomic_fetch_add(&n_sync_memops, 1);
	lock_drop(&ledger_lock);
}

static struct ledger_row *unlink_row(struct ledger_row **at)
{
	struct ledger_row *row = *at;

	*at = row->next;
	row->next = NULL;
	n_rows--;
	if (row->sync_memops)
		atomic_fetch_sub(&n_sync_memops, 1);
	return row;
}

struct ledger_row *ledger_take(unsigned kinds, uint64_t key)
{
	lock_take(&ledger_lock);
	struct ledger_row **at = find(kinds, key);
	struct ledger_row *row = *at ? unlink_row(at) : NULL;
	lock_drop(&ledger_lock);
	return row;
}

uint64_t ledger_line(void)
{
	return atomic_load(&next_id);
}

struct ledger_row *ledger_take_context(unsigned kinds, CUcontext context, uint64_t line)
{
	struct ledger_row *taken = NULL;

	lock_take(&ledger_lock);
	for (size_t i = 0; i < n_buckets; i++) {
		struct ledger_row **at = &table[i];

		while (*at) {
			if ((*at)->context != context || !((*at)->kind & kinds) || (*at)->id >= line) {
				at = &(*at)->next;
				continue;
			}
			struct ledger_row *row = unlink_row(at);
			row->next = taken;
			taken = row;
		}
	}
	lock_drop(&ledger_lock);
	return taken;
}

bool ledger_get(unsigned kinds, uint64_t key, struct ledger_row *ret)
{
	lock_take(&ledger_lock);
	struct ledger_row *row = *find(kinds, key);
	if (row)
		*ret = *row;
	lock_drop(&ledger_lock);
	return row != NULL;
}

bool ledger_set_sync_memops(uint64_t key, bool on)
{
	lock_take(&ledger_lock);
	struct ledger_row *row = *find(LEDGER_HEAP, key);
	if (row && row->sync_memops != on) {
		row->sync_memops = on;
		atomic_fetch_add(&n_sync_memops, on ? 1u : -1u);
	}
	lock_drop(&ledger_lock);
	return row != NULL;
}

bool ledger_grow(uint64_t key, size_t bytes)
{
	lock_take(&ledger_lock);
	struct ledger_row *row = *find(LEDGER_HEAP, key);
	if (row && bytes > row->bytes)
		row->bytes = bytes;
	lock_drop(&ledger_lock);
	return row != NULL;
}

unsigned ledger_n_sync_memops(void)
{
	return atomic_load_explicit(&n_sync_memops, memory_order_relaxed);
}

bool ledger_handle_ref(uint64_t handle)
{
	lock_take(&ledger_lock);
	struct ledger_row *row = *find(LEDGER_HANDLE, handle);
	if (row)
		row->refs++;
	lock_drop(&ledger_lock);
	return row != NULL;
}

bool ledger_handle_unref(uint64_t handle, struct ledger_row **ret_gone)
{
	*ret_gone = NULL;
	lock_take(&ledger_lock);
	struct ledger_row **at = find(LEDGER_HANDLE, handle);
	bool known = *at != NULL;
	if (known && --(*at)->refs == 0)
		*ret_gone = unlink_row(at);
	lock_drop(&ledger_lock);
	return known;
}

size_t ledger_n_rows(void)
{
	lock_take(&ledger_lock);
	size_t n = n_rows;
	lock_drop(&ledger_lock);
	return n;
}

bool ledger_is_valid(void)
{
	size_t seen = 0, synced = 0;
	bool ok = true;

	lock_take(&ledger_lock);
	for (size_t i = 0; i < n_buckets; i++) {
		for (const struct ledger_row *row = table[i]; row; row = row->next) {
			ok = ok && bucket_of(row->key, n_buckets) == i && row->kind;
			synced += row->sync_memops;
			seen++;
		}
	}
	ok = ok && seen == n_rows && synced == atomic_load(&n_sync_memops);
	lock_drop(&ledger_lock);
	return ok;
}
