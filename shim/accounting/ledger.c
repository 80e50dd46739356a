/*
 * ledger.c: the ledger, a hash table with chains, doubled when it holds more rows than buckets. If the doubling gets
 * no memory the chains grow longer, and nothing fails. Freed rows wait on a list for the next allocation.
 *
 * Rows that span are also in an array sorted by address: they are few, and looked for far more often than added.
 * ledger_span() allocates the array's entry, so that a commit cannot fail.
 */
#include "shim/accounting/ledger.h"
#include "shim/stats/stats.h"
#include "shim/accounting/budget.h"
#include "shim/base/lock.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BUCKETS 256

static struct ledger_row *first_table[FIRST_BUCKETS];
static struct ledger_row **table = first_table;
static size_t n_buckets = FIRST_BUCKETS, n_rows;
static struct ledger_row *idle_rows;
static size_t n_idle;
static atomic_uint n_sync_memops;
static struct ledger_row **spans;                           /* committed ones, by key, never overlapping */
static size_t n_spans, n_spanning, spans_room;              /* in the array; with those out of the ledger; allocated */
static _Atomic uint64_t spans_low = UINT64_MAX, spans_high; /* bounds of all that ever spanned */
static _Atomic uint64_t next_id = (uint64_t)1 << 40; /* far from the driver's own buffer ids, which count from 1 */

/* At most this many rows wait for reuse; the rest goes back to the C library. */
#define MOST_IDLE 4096

static struct lock ledger_lock = LOCK_INIT(LOCK_LEDGER);

/* Fibonacci hashing: addresses differ in the middle bits, the multiplication brings them to the top. */
static size_t bucket_of(uint64_t key, size_t buckets)
{
	return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - __builtin_ctzll(buckets)));
}

static struct ledger_row **ledger_find_row(unsigned kinds, uint64_t key)
{
	struct ledger_row **at = &table[bucket_of(key, n_buckets)];

	while (*at && ((*at)->key != key || !((*at)->kind & kinds)))
		at = &(*at)->next;
	return at;
}

static void ledger_grow_table(void)
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
	*row = (struct ledger_row){.kind = kind, .rule = -1, .id = atomic_fetch_add(&next_id, 1)};
	return row;
}

void ledger_row_free(struct ledger_row *row)
{
	if (!row)
		return;
	if (row->cap)
		budget_give(row->cap, row->bytes);
	if (row->counted)
		stats_gone(row->site, row->bytes);
	lock_take(&ledger_lock);
	n_spanning -= row->spans;
	if (n_idle < MOST_IDLE) {
		row->next = idle_rows;
		idle_rows = row;
		n_idle++;
		row = NULL;
	}
	lock_drop(&ledger_lock);
	free(row);
}

/* ---- rows found by any of their addresses ---- */

/* Returns the index of the first that begins after the address. */
static size_t ledger_after(uint64_t address)
{
	size_t low = 0, high = n_spans;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (spans[middle]->key <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void spans_add(struct ledger_row *row)
{
	size_t at = ledger_after(row->key);

	memmove(&spans[at + 1], &spans[at], (n_spans - at) * sizeof(*spans));
	spans[at] = row;
	n_spans++;
	if (row->key < atomic_load(&spans_low))
		atomic_store(&spans_low, row->key);
	if (row->key + row->bytes > atomic_load(&spans_high))
		atomic_store(&spans_high, row->key + row->bytes);
}

static void spans_remove(const struct ledger_row *row)
{
	size_t at = ledger_after(row->key) - 1;

	n_spans--;
	memmove(&spans[at], &spans[at + 1], (n_spans - at) * sizeof(*spans));
}

bool ledger_span(struct ledger_row *row)
{
	bool ok = true;

	lock_take(&ledger_lock);
	if (n_spanning == spans_room) {
		size_t room = spans_room ? 2 * spans_room : 64;
		struct ledger_row **wider = realloc(spans, room * sizeof(*wider));

		ok = wider != NULL;
		spans = ok ? wider : spans;
		spans_room = ok ? room : spans_room;
	}
	n_spanning += ok;
	row->spans = ok;
	lock_drop(&ledger_lock);
	return ok;
}

bool ledger_may_span(uint64_t address)
{
	return address >= atomic_load_explicit(&spans_low, memory_order_relaxed) &&
	       address < atomic_load_explicit(&spans_high, memory_order_relaxed);
}

static bool is_quiet(const struct ledger_row *row)
{
	return row->kind == LEDGER_MANAGED && row->managed.quiet;
}

static struct ledger_row *ledger_containing(unsigned kinds, uint64_t address)
{
	size_t at = ledger_after(address);
	struct ledger_row *row = at ? spans[at - 1] : NULL;

	return row && address - row->key < row->bytes && row->kind & kinds && !is_quiet(row) ? row : NULL;
}

static struct ledger_row *ledger_touching(unsigned kinds, uint64_t address, uint64_t bytes)
{
	size_t at = ledger_after(address);

	if (at && address - spans[at - 1]->key < spans[at - 1]->bytes)
		at--;
	for (; at < n_spans && (spans[at]->key <= address || spans[at]->key - address < bytes); at++)
		if (spans[at]->kind & kinds)
			return spans[at];
	return NULL;
}

bool ledger_find(unsigned kinds, uint64_t address, struct ledger_row *ret)
{
	if (!ledger_may_span(address))
		return false;
	lock_take(&ledger_lock);
	struct ledger_row *row = ledger_containing(kinds, address);
	if (row)
		*ret = *row;
	lock_drop(&ledger_lock);
	return row != NULL;
}

bool ledger_find_any(unsigned kinds, uint64_t address, uint64_t bytes, struct ledger_row *ret)
{
	lock_take(&ledger_lock);
	struct ledger_row *row = ledger_touching(kinds, address, bytes);
	if (row)
		*ret = *row;
	lock_drop(&ledger_lock);
	return row != NULL;
}

bool ledger_find_ahead(uint64_t address, struct ledger_row *ret)
{
	lock_take(&ledger_lock);
	struct ledger_row *row = ledger_containing(LEDGER_MANAGED, address);
	bool turn = row && row->managed.ahead && row->managed.turn++ % LEDGER_TURNS == 0;
	if (turn)
		*ret = *row;
	lock_drop(&ledger_lock);
	return turn;
}

/* ---- in and out ---- */

void ledger_commit(struct ledger_row *row)
{
	lock_take(&ledger_lock);
	if (n_rows >= n_buckets)
		ledger_grow_table();
	struct ledger_row **bucket = &table[bucket_of(row->key, n_buckets)];
	row->next = *bucket;
	*bucket = row;
	n_rows++;
	if (row->spans)
		spans_add(row);
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
	if (row->spans)
		spans_remove(row);
	if (row->sync_memops)
		atomic_fetch_sub(&n_sync_memops, 1);
	return row;
}

struct ledger_row *ledger_take(unsigned kinds, uint64_t key)
{
	lock_take(&ledger_lock);
	struct ledger_row **at = ledger_find_row(kinds, key);
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
	struct ledger_row *row = *ledger_find_row(kinds, key);
	if (row)
		*ret = *row;
	lock_drop(&ledger_lock);
	return row != NULL;
}

bool ledger_set_sync_memops(uint64_t key, bool on)
{
	lock_take(&ledger_lock);
	struct ledger_row *row = *ledger_find_row(LEDGER_OURS, key);
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
	struct ledger_row *row = *ledger_find_row(LEDGER_HEAP, key);
	if (row && bytes > row->bytes) {
		if (row->counted)
			stats_grown(row->site, bytes - row->bytes);
		row->bytes = bytes;
	}
	lock_drop(&ledger_lock);
	return row != NULL;
}

unsigned ledger_n_sync_memops(void)
{
	return atomic_load_explicit(&n_sync_memops, memory_order_relaxed);
}

static bool add_ref(uint64_t handle, unsigned maps)
{
	lock_take(&ledger_lock);
	struct ledger_row *row = *ledger_find_row(LEDGER_HANDLE, handle);
	if (row) {
		row->handle.refs++;
		row->handle.maps += maps;
	}
	lock_drop(&ledger_lock);
	return row != NULL;
}

static bool drop_ref(uint64_t handle, unsigned maps, struct ledger_row **ret_gone)
{
	*ret_gone = NULL;
	lock_take(&ledger_lock);
	struct ledger_row **at = ledger_find_row(LEDGER_HANDLE, handle);
	bool has = *at && (maps ? (*at)->handle.maps : (*at)->handle.refs - (*at)->handle.maps);
	if (has) {
		(*at)->handle.maps -= maps;
		if (--(*at)->handle.refs == 0)
			*ret_gone = unlink_row(at);
	}
	lock_drop(&ledger_lock);
	return has;
}

bool ledger_handle_ref(uint64_t handle)
{
	return add_ref(handle, 0);
}

bool ledger_handle_unref(uint64_t handle, struct ledger_row **ret_gone)
{
	return drop_ref(handle, 0, ret_gone);
}

bool ledger_handle_become(uint64_t handle, uint64_t drivers)
{
	lock_take(&ledger_lock);
	struct ledger_row *row = *ledger_find_row(LEDGER_HANDLE, handle);
	bool ours = row && ledger_is_heap_handle(row);
	if (ours) {
		row->handle.block = NULL;
		row->handle.drivers = drivers;
	}
	lock_drop(&ledger_lock);
	return ours;
}

bool ledger_handle_map(uint64_t handle)
{
	return add_ref(handle, 1);
}

bool ledger_handle_unmap(uint64_t handle, struct ledger_row **ret_gone)
{
	return drop_ref(handle, 1, ret_gone);
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
	size_t seen = 0, synced = 0, spanning = 0;
	bool ok = true;

	lock_take(&ledger_lock);
	for (size_t i = 0; i < n_buckets; i++) {
		for (const struct ledger_row *row = table[i]; row; row = row->next) {
			ok = ok && bucket_of(row->key, n_buckets) == i && row->kind;
			synced += row->sync_memops;
			spanning += row->spans;
			seen++;
		}
	}
	for (size_t i = 0; i < n_spans; i++)
		ok = ok && spans[i]->spans && (!i || spans[i - 1]->key + spans[i - 1]->bytes <= spans[i]->key);
	ok = ok && seen == n_rows && spanning == n_spans && n_spans <= n_spanning && n_spanning <= spans_room &&
	     synced == atomic_load(&n_sync_memops);
	lock_drop(&ledger_lock);
	return ok;
}
