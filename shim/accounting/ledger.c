/*
 * ledger.c: the ledger, a hash table with chains, doubled when it holds more rows than buckets. If the doubling gets
 * no memory the chains grow longer, and nothing fails. Freed rows wait on a list for the next allocation.
 *
 * Rows that span are also in an array sorted by address: they are few, and looked for far more often than added.
 * ledger_span() allocates the array's entry, so that a commit cannot fail.
 */
#include "shim/accounting/ledger.h"
#include "shim/accounting/accounting_state.h"
#include "shim/stats/stats.h"
#include "shim/accounting/budget.h"
#include "shim/base/lock.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* At most this many rows wait for reuse; the rest goes back to the C library. */
#define MOST_IDLE 4096

/* Fibonacci hashing: addresses differ in the middle bits, the multiplication brings them to the top. */
static size_t bucket_of(uint64_t key, size_t buckets)
{
	return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - __builtin_ctzll(buckets)));
}

static struct ledger_row **ledger_find_row(unsigned kinds, uint64_t key)
{
	struct ledger_row **at = &accounting_state.ledger.table[bucket_of(key, accounting_state.ledger.n_buckets)];

	while (*at && ((*at)->key != key || !((*at)->kind & kinds)))
		at = &(*at)->next;
	return at;
}

static void ledger_grow_table(void)
{
	struct ledger_state *const ledger = &accounting_state.ledger;
	size_t more = ledger->n_buckets * 2;
	struct ledger_row **wider = calloc(more, sizeof(*wider));

	if (!wider)
		return;
	for (size_t i = 0; i < ledger->n_buckets; i++) {
		for (struct ledger_row *row = ledger->table[i], *next; row; row = next) {
			size_t bucket = bucket_of(row->key, more);

			next = row->next;
			row->next = wider[bucket];
			wider[bucket] = row;
		}
	}
	if (ledger->table != ledger->first_table)
		free(ledger->table);
	ledger->table = wider;
	ledger->n_buckets = more;
}

struct ledger_row *ledger_row_new(enum ledger_kind kind)
{
	struct ledger_state *const ledger = &accounting_state.ledger;

	lock_take(&ledger->lock);
	struct ledger_row *row = ledger->idle_rows;
	if (row) {
		ledger->idle_rows = row->next;
		ledger->n_idle--;
	}
	lock_drop(&ledger->lock);
	if (!row && !(row = malloc(sizeof(*row))))
		return NULL;
	*row = (struct ledger_row){.kind = kind, .rule = -1, .id = atomic_fetch_add(&ledger->next_id, 1)};
	return row;
}

void ledger_row_free(struct ledger_row *row)
{
	struct ledger_state *const ledger = &accounting_state.ledger;

	if (!row)
		return;
	if (row->cap)
		budget_give(row->cap, row->bytes);
	if (row->counted)
		stats_gone(row->site, row->kind == LEDGER_HEAP && row->heap.on_use ? row->heap.had : row->bytes);
	lock_take(&ledger->lock);
	ledger->n_spanning -= row->spans;
	if (ledger->n_idle < MOST_IDLE) {
		row->next = ledger->idle_rows;
		ledger->idle_rows = row;
		ledger->n_idle++;
		row = NULL;
	}
	lock_drop(&ledger->lock);
	free(row);
}

/* ---- rows found by any of their addresses ---- */

/* Returns the index of the first that begins after the address. */
static size_t ledger_after(uint64_t address)
{
	size_t low = 0, high = accounting_state.ledger.n_spans;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (accounting_state.ledger.spans[middle]->key <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void widen(struct ledger_bounds *bounds, const struct ledger_row *row)
{
	if (row->key < atomic_load(&bounds->low))
		atomic_store(&bounds->low, row->key);
	if (row->key + row->bytes > atomic_load(&bounds->high))
		atomic_store(&bounds->high, row->key + row->bytes);
}

static bool is_within(const struct ledger_bounds *bounds, uint64_t address)
{
	return address >= atomic_load_explicit(&bounds->low, memory_order_relaxed) &&
	       address < atomic_load_explicit(&bounds->high, memory_order_relaxed);
}

static void spans_add(struct ledger_row *row)
{
	struct ledger_state *const ledger = &accounting_state.ledger;
	size_t at = ledger_after(row->key);

	memmove(&ledger->spans[at + 1], &ledger->spans[at], (ledger->n_spans - at) * sizeof(*ledger->spans));
	ledger->spans[at] = row;
	ledger->n_spans++;
	widen(&ledger->all, row);
}

static void spans_remove(const struct ledger_row *row)
{
	struct ledger_state *const ledger = &accounting_state.ledger;
	size_t at = ledger_after(row->key) - 1;

	ledger->n_spans--;
	memmove(&ledger->spans[at], &ledger->spans[at + 1], (ledger->n_spans - at) * sizeof(*ledger->spans));
}

bool ledger_span(struct ledger_row *row)
{
	struct ledger_state *const ledger = &accounting_state.ledger;
	bool ok = true;

	lock_take(&ledger->lock);
	if (ledger->n_spanning == ledger->spans_room) {
		size_t room = ledger->spans_room ? 2 * ledger->spans_room : 64;
		struct ledger_row **wider = realloc(ledger->spans, room * sizeof(*wider));

		ok = wider != NULL;
		ledger->spans = ok ? wider : ledger->spans;
		ledger->spans_room = ok ? room : ledger->spans_room;
	}
	ledger->n_spanning += ok;
	row->spans = ok;
	lock_drop(&ledger->lock);
	return ok;
}

static bool is_quiet(const struct ledger_row *row)
{
	return row->kind == LEDGER_MANAGED && row->managed.quiet;
}

static struct ledger_row *ledger_containing(unsigned kinds, uint64_t address)
{
	size_t at = ledger_after(address);
	struct ledger_row *row = at ? accounting_state.ledger.spans[at - 1] : NULL;

	return row && address - row->key < row->bytes && row->kind & kinds && !is_quiet(row) ? row : NULL;
}

static struct ledger_row *ledger_touching(unsigned kinds, uint64_t address, uint64_t bytes)
{
	struct ledger_state *const ledger = &accounting_state.ledger;
	size_t at = ledger_after(address);

	if (at && address - ledger->spans[at - 1]->key < ledger->spans[at - 1]->bytes)
		at--;
	for (; at < ledger->n_spans && (ledger->spans[at]->key <= address || ledger->spans[at]->key - address < bytes);
	     at++)
		if (ledger->spans[at]->kind & kinds)
			return ledger->spans[at];
	return NULL;
}

bool ledger_find(unsigned kinds, uint64_t address, struct ledger_row *ret)
{
	if (!is_within(&accounting_state.ledger.all, address))
		return false;
	lock_take(&accounting_state.ledger.lock);
	struct ledger_row *row = ledger_containing(kinds, address);
	if (row)
		*ret = *row;
	lock_drop(&accounting_state.ledger.lock);
	return row != NULL;
}

bool ledger_find_any(unsigned kinds, uint64_t address, uint64_t bytes, struct ledger_row *ret)
{
	lock_take(&accounting_state.ledger.lock);
	struct ledger_row *row = ledger_touching(kinds, address, bytes);
	if (row)
		*ret = *row;
	lock_drop(&accounting_state.ledger.lock);
	return row != NULL;
}

/* ---- in and out ---- */

void ledger_commit(struct ledger_row *row)
{
	struct ledger_state *const ledger = &accounting_state.ledger;

	lock_take(&ledger->lock);
	if (ledger->n_rows >= ledger->n_buckets)
		ledger_grow_table();
	struct ledger_row **bucket = &ledger->table[bucket_of(row->key, ledger->n_buckets)];
	row->next = *bucket;
	*bucket = row;
	ledger->n_rows++;
	if (row->spans)
		spans_add(row);
	if (row->sync_memops)
		atomic_fetch_add(&ledger->n_sync_memops, 1);
	lock_drop(&ledger->lock);
}

static struct ledger_row *unlink_row(struct ledger_row **at)
{
	struct ledger_row *row = *at;

	*at = row->next;
	row->next = NULL;
	accounting_state.ledger.n_rows--;
	if (row->spans)
		spans_remove(row);
	if (row->sync_memops)
		atomic_fetch_sub(&accounting_state.ledger.n_sync_memops, 1);
	return row;
}

struct ledger_row *ledger_take(unsigned kinds, uint64_t key)
{
	lock_take(&accounting_state.ledger.lock);
	struct ledger_row **at = ledger_find_row(kinds, key);
	struct ledger_row *row = *at ? unlink_row(at) : NULL;
	lock_drop(&accounting_state.ledger.lock);
	return row;
}

uint64_t ledger_line(void)
{
	return atomic_load(&accounting_state.ledger.next_id);
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
	struct ledger_state *const ledger = &accounting_state.ledger;
	struct ledger_row *taken = NULL;

	lock_take(&ledger->lock);
	for (size_t i = 0; i < ledger->n_buckets; i++) {
		struct ledger_row **at = &ledger->table[i];

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
	lock_drop(&ledger->lock);
	return taken;
}

bool ledger_get(unsigned kinds, uint64_t key, struct ledger_row *ret)
{
	lock_take(&accounting_state.ledger.lock);
	struct ledger_row *row = *ledger_find_row(kinds, key);
	if (row)
		*ret = *row;
	lock_drop(&accounting_state.ledger.lock);
	return row != NULL;
}

bool ledger_set_sync_memops(uint64_t key, bool on)
{
	lock_take(&accounting_state.ledger.lock);
	struct ledger_row *row = *ledger_find_row(LEDGER_OURS, key);
	if (row && row->sync_memops != on) {
		row->sync_memops = on;
		atomic_fetch_add(&accounting_state.ledger.n_sync_memops, on ? 1u : -1u);
	}
	lock_drop(&accounting_state.ledger.lock);
	return row != NULL;
}

size_t ledger_grow(uint64_t key, uint64_t id, size_t bytes)
{
	size_t more = 0;

	lock_take(&accounting_state.ledger.lock);
	struct ledger_row *row = *ledger_find_row(LEDGER_HEAP, key);
	if (row && row->id == id && bytes > row->bytes) {
		more = bytes - row->bytes;
		if (row->counted)
			stats_grown(row->site, more);
		row->bytes = bytes;
	}
	lock_drop(&accounting_state.ledger.lock);
	return more;
}

unsigned ledger_n_sync_memops(void)
{
	return atomic_load_explicit(&accounting_state.ledger.n_sync_memops, memory_order_relaxed);
}

static bool add_ref(uint64_t handle, unsigned maps)
{
	lock_take(&accounting_state.ledger.lock);
	struct ledger_row *row = *ledger_find_row(LEDGER_HANDLE, handle);
	if (row) {
		row->handle.refs++;
		row->handle.maps += maps;
	}
	lock_drop(&accounting_state.ledger.lock);
	return row != NULL;
}

static bool drop_ref(uint64_t handle, unsigned maps, struct ledger_row **ret_gone)
{
	*ret_gone = NULL;
	lock_take(&accounting_state.ledger.lock);
	struct ledger_row **at = ledger_find_row(LEDGER_HANDLE, handle);
	bool has = *at && (maps ? (*at)->handle.maps : (*at)->handle.refs - (*at)->handle.maps);
	if (has) {
		(*at)->handle.maps -= maps;
		if (--(*at)->handle.refs == 0)
			*ret_gone = unlink_row(at);
	}
	lock_drop(&accounting_state.ledger.lock);
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
	lock_take(&accounting_state.ledger.lock);
	struct ledger_row *row = *ledger_find_row(LEDGER_HANDLE, handle);
	bool ours = row && ledger_is_heap_handle(row);
	if (ours) {
		row->handle.block = NULL;
		row->handle.drivers = drivers;
	}
	lock_drop(&accounting_state.ledger.lock);
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
	lock_take(&accounting_state.ledger.lock);
	size_t n = accounting_state.ledger.n_rows;
	lock_drop(&accounting_state.ledger.lock);
	return n;
}

bool ledger_is_valid(void)
{
	struct ledger_state *const ledger = &accounting_state.ledger;
	size_t seen = 0, synced = 0, spanning = 0;
	bool ok = true;

	lock_take(&ledger->lock);
	for (size_t i = 0; i < ledger->n_buckets; i++) {
		for (const struct ledger_row *row = ledger->table[i]; row; row = row->next) {
			ok = ok && bucket_of(row->key, ledger->n_buckets) == i && row->kind;
			synced += row->sync_memops;
			spanning += row->spans;
			seen++;
		}
	}
	for (size_t i = 0; i < ledger->n_spans; i++)
		ok = ok && ledger->spans[i]->spans &&
		     (!i || ledger->spans[i - 1]->key + ledger->spans[i - 1]->bytes <= ledger->spans[i]->key);
	ok = ok && seen == ledger->n_rows && spanning == ledger->n_spans && ledger->n_spans <= ledger->n_spanning &&
	     ledger->n_spanning <= ledger->spans_room && synced == atomic_load(&ledger->n_sync_memops);
	lock_drop(&ledger->lock);
	return ok;
}
