// SPDX-License-Identifier: Apache-2.0
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
#include "shim/base/array.h"

#include <stdlib.h>
#include <string.h>

/* At most this many rows wait for reuse; the rest goes back to the C library. */
#define MOST_IDLE 4096

struct ledger_state ledger = {
    .lock = LOCK_INIT(LOCK_LEDGER),
    .table = ledger.first_table,
    .n_buckets = LEDGER_FIRST_BUCKETS,
    .low = UINT64_MAX,
    .next_id = (uint64_t)1 << 40,
};

static struct {
	struct lock lock;        /* VA_RANGES */
	struct va_range *spaces; /* Guarded by `lock`. */
} va_ranges = {.lock = LOCK_INIT(LOCK_VA_RANGES)};

_Atomic bool va_ranges_any;

/* Fibonacci hashing: addresses differ in the middle bits, the multiplication brings them to the top. */
size_t ledger_bucket(uint64_t key, size_t buckets)
{
	return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - __builtin_ctzll(buckets)));
}

static struct ledger_row **ledger_find_row(unsigned kinds, uint64_t key)
{
	struct ledger_row **at = &ledger.table[ledger_bucket(key, ledger.n_buckets)];

	while (*at && ((*at)->key != key || !((*at)->kind & kinds)))
		at = &(*at)->next;
	return at;
}

static void ledger_grow_table(void)
{
	size_t more = ledger.n_buckets * 2;
	struct ledger_row **wider = calloc(more, sizeof(*wider));

	if (!wider)
		return;
	for (size_t i = 0; i < ledger.n_buckets; i++) {
		for (struct ledger_row *row = ledger.table[i], *next; row; row = next) {
			size_t bucket = ledger_bucket(row->key, more);

			next = row->next;
			row->next = wider[bucket];
			wider[bucket] = row;
		}
	}
	if (ledger.table != ledger.first_table)
		free(ledger.table);
	ledger.table = wider;
	ledger.n_buckets = more;
}

struct ledger_row *ledger_row_new(enum ledger_kind kind)
{
	lock_take(&ledger.lock);
	struct ledger_row *row = ledger.idle_rows;
	if (row) {
		ledger.idle_rows = row->next;
		ledger.n_idle--;
	}
	lock_drop(&ledger.lock);
	if (!row && !(row = malloc(sizeof(*row))))
		return NULL;
	*row = (struct ledger_row){.kind = kind, .rule = -1, .id = atomic_fetch_add(&ledger.next_id, 1)};
	return row;
}

void ledger_row_free(struct ledger_row *row)
{
	if (!row)
		return;
	if (row->cap)
		budget_give(row->cap, row->bytes);
	if (row->counted)
		stats_gone(row->site, row->kind == LEDGER_HEAP && row->heap.on_use ? row->heap.had : row->bytes);
	lock_take(&ledger.lock);
	ledger.n_spanning -= row->spans;
	if (ledger.n_idle < MOST_IDLE) {
		row->next = ledger.idle_rows;
		ledger.idle_rows = row;
		ledger.n_idle++;
		row = NULL;
	}
	lock_drop(&ledger.lock);
	free(row);
}

/* ---- rows found by any of their addresses ---- */

/* Returns the index of the first that begins after the address. */
static size_t ledger_after(uint64_t address)
{
	size_t low = 0, high = ledger.n_spans;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (ledger.spans[middle]->key <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void spans_add(struct ledger_row *row)
{
	size_t at = ledger_after(row->key);

	memmove(&ledger.spans[at + 1], &ledger.spans[at], (ledger.n_spans - at) * sizeof(*ledger.spans));
	ledger.spans[at] = row;
	ledger.n_spans++;
	if (row->key < atomic_load(&ledger.low))
		atomic_store(&ledger.low, row->key);
	if (row->key + row->bytes > atomic_load(&ledger.high))
		atomic_store(&ledger.high, row->key + row->bytes);
}

bool ledger_span(struct ledger_row *row)
{
	lock_take(&ledger.lock);
	bool ok = ARRAY_ROOM(ledger.spans, ledger.n_spanning, ledger.spans_room, ARRAY_MOST);
	ledger.n_spanning += ok;
	row->spans = ok;
	lock_drop(&ledger.lock);
	return ok;
}

/* driven: only managed memory that the program made itself; else all but that. */
static bool find_spanning(unsigned kinds, bool driven, bool by_gpu, uint64_t address, struct ledger_row *ret)
{
	if (address < atomic_load_explicit(&ledger.low, memory_order_relaxed) ||
	    address >= atomic_load_explicit(&ledger.high, memory_order_relaxed))
		return false;
	lock_take(&ledger.lock);
	size_t at = ledger_after(address);
	struct ledger_row *row = at ? ledger.spans[at - 1] : NULL;
	bool found = row && address - row->key < row->bytes && row->kind & kinds &&
		     (row->kind == LEDGER_MANAGED && !row->home) == driven;
	if (found)
		*ret = *row;
	if (found && by_gpu)
		row->managed.gpu_has_used = true;
	lock_drop(&ledger.lock);
	return found;
}

bool ledger_find(unsigned kinds, uint64_t address, struct ledger_row *ret)
{
	return find_spanning(kinds, false, false, address, ret);
}

bool ledger_find_driven(uint64_t address, bool by_gpu, struct ledger_row *ret)
{
	return find_spanning(LEDGER_MANAGED, true, by_gpu, address, ret);
}

/* ---- in and out ---- */

void ledger_commit(struct ledger_row *row)
{
	lock_take(&ledger.lock);
	if (ledger.n_rows >= ledger.n_buckets)
		ledger_grow_table();
	struct ledger_row **bucket = &ledger.table[ledger_bucket(row->key, ledger.n_buckets)];
	row->next = *bucket;
	*bucket = row;
	ledger.n_rows++;
	if (row->spans)
		spans_add(row);
	if (row->sync_memops)
		atomic_fetch_add(&ledger.n_sync_memops, 1);
	lock_drop(&ledger.lock);
}

static struct ledger_row *unlink_row(struct ledger_row **at)
{
	struct ledger_row *row = *at;

	*at = row->next;
	row->next = NULL;
	ledger.n_rows--;
	if (row->spans) {
		size_t after = ledger_after(row->key);

		/* Several have one key if a free was not seen. */
		while (ledger.spans[after - 1] != row)
			after--;
		memmove(&ledger.spans[after - 1], &ledger.spans[after],
			(ledger.n_spans - after) * sizeof(*ledger.spans));
		ledger.n_spans--;
	}
	if (row->sync_memops)
		atomic_fetch_sub(&ledger.n_sync_memops, 1);
	return row;
}

struct ledger_row *ledger_take(unsigned kinds, uint64_t key)
{
	lock_take(&ledger.lock);
	struct ledger_row **at = ledger_find_row(kinds, key);
	struct ledger_row *row = *at ? unlink_row(at) : NULL;
	lock_drop(&ledger.lock);
	return row;
}

uint64_t ledger_line(void)
{
	return atomic_load(&ledger.next_id);
}

static bool ends_locked(struct ledger_row *row, const struct ledger_ending *ending)
{
	bool of_pool = ledger_is_of_pool(row), ends = row->context == ending->context;

	if (row->id >= ending->line || !(row->kind & ending->kinds))
		return false;
	if (of_pool && ends && ending->heir)
		row->context = ending->heir;
	return ends && !of_pool;
}

struct ledger_row *ledger_take_context(const struct ledger_ending *ending)
{
	struct ledger_row *taken = NULL;

	lock_take(&ledger.lock);
	for (size_t i = 0; i < ledger.n_buckets; i++) {
		struct ledger_row **at = &ledger.table[i];

		while (*at) {
			if (!ends_locked(*at, ending)) {
				at = &(*at)->next;
				continue;
			}
			struct ledger_row *row = unlink_row(at);
			row->next = taken;
			taken = row;
		}
	}
	lock_drop(&ledger.lock);
	return taken;
}

bool ledger_get(unsigned kinds, uint64_t key, struct ledger_row *ret)
{
	lock_take(&ledger.lock);
	struct ledger_row *row = *ledger_find_row(kinds, key);
	if (row)
		*ret = *row;
	lock_drop(&ledger.lock);
	return row != NULL;
}

bool ledger_set_sync_memops(uint64_t key, bool on)
{
	lock_take(&ledger.lock);
	struct ledger_row *row = *ledger_find_row(LEDGER_OURS, key);
	if (row && row->sync_memops != on) {
		row->sync_memops = on;
		atomic_fetch_add(&ledger.n_sync_memops, on ? 1u : -1u);
	}
	lock_drop(&ledger.lock);
	return row != NULL;
}

bool ledger_hint(uint64_t key, void (*change)(struct ledger_hints *hints, const void *argument), const void *argument)
{
	lock_take(&ledger.lock);
	struct ledger_row *row = *ledger_find_row(LEDGER_HEAP, key);
	if (row)
		change(&row->heap.hints, argument);
	lock_drop(&ledger.lock);
	return row != NULL;
}

size_t ledger_grow(uint64_t key, uint64_t id, size_t bytes)
{
	size_t more = 0;

	lock_take(&ledger.lock);
	struct ledger_row *row = *ledger_find_row(LEDGER_HEAP, key);
	if (row && row->id == id && bytes > row->bytes) {
		more = bytes - row->bytes;
		if (row->counted)
			stats_grown(row->site, more);
		row->bytes = bytes;
	}
	lock_drop(&ledger.lock);
	return more;
}

unsigned ledger_n_sync_memops(void)
{
	return atomic_load_explicit(&ledger.n_sync_memops, memory_order_relaxed);
}

bool ledger_handle_ref(uint64_t handle, bool maps)
{
	lock_take(&ledger.lock);
	struct ledger_row *row = *ledger_find_row(LEDGER_HANDLE, handle);
	if (row) {
		row->handle.refs++;
		row->handle.maps += maps;
	}
	lock_drop(&ledger.lock);
	return row != NULL;
}

bool ledger_handle_unref(uint64_t handle, bool maps, struct ledger_row **ret_gone)
{
	*ret_gone = NULL;
	lock_take(&ledger.lock);
	struct ledger_row **at = ledger_find_row(LEDGER_HANDLE, handle);
	bool has = *at && (maps ? (*at)->handle.maps : (*at)->handle.refs - (*at)->handle.maps);
	if (has) {
		(*at)->handle.maps -= maps;
		if (--(*at)->handle.refs == 0)
			*ret_gone = unlink_row(at);
	}
	lock_drop(&ledger.lock);
	return has;
}

bool ledger_handle_become(uint64_t handle, uint64_t drivers)
{
	lock_take(&ledger.lock);
	struct ledger_row *row = *ledger_find_row(LEDGER_HANDLE, handle);
	bool ours = row && ledger_is_heap_handle(row);
	if (ours) {
		row->handle.block = NULL;
		row->handle.drivers = drivers;
	}
	lock_drop(&ledger.lock);
	return ours;
}

/* ---- ranges ---- */

static struct va_range **va_ranges_find_link(CUdeviceptr address)
{
	struct va_range **at = &va_ranges.spaces;

	while (*at && !va_ranges_has(*at, address, 1))
		at = &(*at)->next;
	return at;
}

bool va_ranges_add(CUdeviceptr start, uint64_t bytes, CUdevice device)
{
	struct va_range *space = malloc(sizeof(*space));

	if (!space)
		return false;
	*space = (struct va_range){.start = start, .bytes = bytes, .device = device};
	lock_take(&va_ranges.lock);
	space->next = va_ranges.spaces;
	va_ranges.spaces = space;
	lock_drop(&va_ranges.lock);
	atomic_store(&va_ranges_any, true);
	return true;
}

bool va_ranges_find(CUdeviceptr address, struct va_range *ret)
{
	if (!atomic_load(&va_ranges_any))
		return false;
	lock_take(&va_ranges.lock);
	const struct va_range *space = *va_ranges_find_link(address);
	if (space)
		*ret = *space;
	lock_drop(&va_ranges.lock);
	return space != NULL;
}

bool va_ranges_take(CUdeviceptr start, uint64_t bytes, struct va_range *ret)
{
	lock_take(&va_ranges.lock);
	struct va_range **at = va_ranges_find_link(start), *space = *at;
	bool fits = space && space->start == start && space->bytes == bytes && !space->n_others;
	if (fits) {
		*at = space->next;
		*ret = *space;
	}
	lock_drop(&va_ranges.lock);
	if (fits)
		free(space);
	return fits;
}

void va_ranges_count(CUdeviceptr address, int more)
{
	lock_take(&va_ranges.lock);
	struct va_range *space = *va_ranges_find_link(address);
	if (space)
		space->n_others += (unsigned)more;
	lock_drop(&va_ranges.lock);
}
