/*
 * A word for the beginning of each unit: the range that crosses it, in grains of 512 bytes, which is the unit of
 * PyTorch's allocator. One store replaces a whole range, so a reader never sees a half of it.
 */
#include "shim/lifetimes/reach.h"
#include "shim/base/lazy_memory.h"

#include <stdatomic.h>
#include <stdlib.h>

#define GRAIN       UINT64_C(512)
#define LENGTH_BITS 29 /* of a word, the lowest: length in grains; the others: where the range begins */
#define LENGTH_MOST ((UINT64_C(1) << LENGTH_BITS) - 1)
#define BEGIN_MOST  (UINT64_MAX >> LENGTH_BITS) /* 16 TiB in grains: as much as the plan has pieces for (plan.h) */

struct reach {
	uint64_t bytes;
	_Atomic uint64_t *crossing; /* by unit; 0: nothing */
	_Atomic bool *doubted;      /* by the first unit of address space */
	_Atomic bool all_doubted;
};

static size_t n_units(uint64_t bytes)
{
	return (size_t)(bytes / LIVE_MAP_UNIT) + 2;
}

struct reach *reach_new(uint64_t bytes)
{
	struct reach *reach = calloc(1, sizeof(*reach));

	if (!reach)
		return NULL;
	reach->bytes = bytes;
	reach->crossing = lazy_memory_new(n_units(bytes) * sizeof(reach->crossing[0]));
	reach->doubted = lazy_memory_new(n_units(bytes) * sizeof(reach->doubted[0]));
	if (reach->crossing && reach->doubted)
		return reach;
	reach_free(reach);
	return NULL;
}

void reach_free(struct reach *reach)
{
	if (!reach)
		return;
	lazy_memory_free((void *)reach->crossing, n_units(reach->bytes) * sizeof(reach->crossing[0]));
	lazy_memory_free((void *)reach->doubted, n_units(reach->bytes) * sizeof(reach->doubted[0]));
	free(reach);
}

/* ---- ranges ---- */

static struct live_range range_of(uint64_t word)
{
	uint64_t begin = word >> LENGTH_BITS;

	return (struct live_range){begin * GRAIN, (begin + (word & LENGTH_MOST)) * GRAIN};
}

/* Forgets a range that met the one that was just born: it is dead. */
static void forget_if_met(struct reach *reach, uint64_t unit, uint64_t begin, uint64_t end)
{
	uint64_t word = atomic_load_explicit(&reach->crossing[unit], memory_order_relaxed);
	struct live_range range = range_of(word);

	if (word && range.begin < end && range.end > begin)
		atomic_store_explicit(&reach->crossing[unit], 0, memory_order_relaxed);
}

void reach_born(struct reach *reach, uint64_t begin, uint64_t end)
{
	if (begin >= end || end > reach->bytes)
		return;
	uint64_t first = begin / LIVE_MAP_UNIT, last = (end - 1) / LIVE_MAP_UNIT;
	uint64_t from = begin / GRAIN, length = (end + GRAIN - 1) / GRAIN - from;
	if (last > first && (from > BEGIN_MOST || length > LENGTH_MOST)) {
		reach_doubt_all(reach);
		return;
	}
	for (uint64_t unit = first + 1; unit <= last; unit++)
		atomic_store_explicit(&reach->crossing[unit], from << LENGTH_BITS | length, memory_order_relaxed);
	forget_if_met(reach, first, begin, end);
	forget_if_met(reach, last + 1, begin, end);
}

/* Extends *found by the range that crosses the beginning of this unit, if that has the byte. */
static bool join(const struct reach *reach, uint64_t unit, uint64_t at, struct live_range *found)
{
	uint64_t word = atomic_load_explicit(&reach->crossing[unit], memory_order_relaxed);
	struct live_range range = range_of(word);

	if (!word || at < range.begin || at >= range.end)
		return false;
	if (range.begin < found->begin)
		found->begin = range.begin;
	if (range.end > found->end)
		found->end = range.end;
	return true;
}

bool reach_find(const struct reach *reach, uint64_t at, struct live_range *ret)
{
	struct live_range found = {at, at + 1};
	bool below, above;

	if (at >= reach->bytes)
		return false;
	below = join(reach, at / LIVE_MAP_UNIT, at, &found);
	above = join(reach, at / LIVE_MAP_UNIT + 1, at, &found);
	if (below || above)
		*ret = found;
	return below || above;
}

/* ---- doubts ---- */

void reach_doubt(struct reach *reach, uint64_t space)
{
	if (space < reach->bytes && !atomic_load(&reach->doubted[space / LIVE_MAP_UNIT]))
		atomic_store(&reach->doubted[space / LIVE_MAP_UNIT], true);
}

void reach_doubt_all(struct reach *reach)
{
	atomic_store(&reach->all_doubted, true);
}

void reach_renew(struct reach *reach, uint64_t space)
{
	if (space < reach->bytes && atomic_load(&reach->doubted[space / LIVE_MAP_UNIT]))
		atomic_store(&reach->doubted[space / LIVE_MAP_UNIT], false);
}

bool reach_is_doubted(const struct reach *reach, uint64_t space)
{
	return atomic_load(&reach->all_doubted) || atomic_load(&reach->doubted[space / LIVE_MAP_UNIT]);
}

bool reach_is_all_doubted(const struct reach *reach)
{
	return atomic_load(&reach->all_doubted);
}
