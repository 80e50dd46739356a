/*
 * A word for the beginning of each unit: the range that crosses it, in grains of 512 bytes, which is the unit of
 * PyTorch's allocator. One store replaces a whole range, so a reader never sees a half of it.
 */
#include "shim/lifetimes/crossings.h"
#include "shim/base/lazy_memory.h"

#include <stdatomic.h>
#include <stdlib.h>

#define GRAIN       UINT64_C(512)
#define LENGTH_BITS 29 /* of a word, the lowest: length in grains; the others: where the range begins */
#define LENGTH_MOST ((UINT64_C(1) << LENGTH_BITS) - 1)
#define BEGIN_MOST  (UINT64_MAX >> LENGTH_BITS) /* 16 TiB in grains: as much as the plan has pieces for (plan.h) */

struct crossings {
	uint64_t bytes;
	_Atomic uint64_t *crossing; /* by unit; 0: nothing */
	_Atomic bool *doubted;      /* by the first unit of address space */
	_Atomic bool all_doubted;
	/*
	 * of watched units, made for the first of them: a bit for each grain in which something that is alive was born
	 */
	_Atomic(_Atomic uint64_t *) born;
	_Atomic bool *watched; /* by unit */
};

/* Of the words of `born`. */
#define GRAINS         UINT64_C(64)
#define WORD_BYTES     (GRAINS * GRAIN)
#define WORDS_OF(unit) ((unit) * (LIVE_MAP_UNIT / WORD_BYTES))
_Static_assert(LIVE_MAP_UNIT % WORD_BYTES == 0, "a unit has words of its own");

static size_t n_units(uint64_t bytes)
{
	return (size_t)(bytes / LIVE_MAP_UNIT) + 2;
}

static size_t born_bytes(const struct crossings *crossings)
{
	return WORDS_OF(n_units(crossings->bytes)) * sizeof(uint64_t);
}

struct crossings *crossings_new(uint64_t bytes)
{
	struct crossings *crossings = calloc(1, sizeof(*crossings));

	if (!crossings)
		return NULL;
	crossings->bytes = bytes;
	crossings->crossing = lazy_memory_new(n_units(bytes) * sizeof(crossings->crossing[0]));
	crossings->doubted = lazy_memory_new(n_units(bytes) * sizeof(crossings->doubted[0]));
	crossings->watched = lazy_memory_new(n_units(bytes) * sizeof(crossings->watched[0]));
	if (crossings->crossing && crossings->doubted && crossings->watched)
		return crossings;
	crossings_free(crossings);
	return NULL;
}

void crossings_free(struct crossings *crossings)
{
	if (!crossings)
		return;
	lazy_memory_free((void *)crossings->crossing, n_units(crossings->bytes) * sizeof(crossings->crossing[0]));
	lazy_memory_free((void *)crossings->doubted, n_units(crossings->bytes) * sizeof(crossings->doubted[0]));
	lazy_memory_free((void *)crossings->watched, n_units(crossings->bytes) * sizeof(crossings->watched[0]));
	lazy_memory_free((void *)atomic_load(&crossings->born), born_bytes(crossings));
	free(crossings);
}

/* ---- ranges ---- */

static struct live_range range_of(uint64_t word)
{
	uint64_t begin = word >> LENGTH_BITS;

	return (struct live_range){begin * GRAIN, (begin + (word & LENGTH_MOST)) * GRAIN};
}

/* Forgets a range that met the one that was just born: it is dead. */
static void forget_if_met(struct crossings *crossings, uint64_t unit, uint64_t begin, uint64_t end)
{
	uint64_t word = atomic_load_explicit(&crossings->crossing[unit], memory_order_relaxed);
	struct live_range range = range_of(word);

	if (word && range.begin < end && range.end > begin)
		atomic_store_explicit(&crossings->crossing[unit], 0, memory_order_relaxed);
}

/* Sets or clears the bits of the grains that a range touches in watched units. */
static void mark_born(struct crossings *crossings, uint64_t begin, uint64_t end, bool born)
{
	_Atomic uint64_t *words = atomic_load_explicit(&crossings->born, memory_order_acquire);
	uint64_t next;

	for (uint64_t at = begin; words && at < end; at = next) {
		uint64_t first = at % WORD_BYTES / GRAIN, unit = at / LIVE_MAP_UNIT, bits = UINT64_MAX << first;

		if (!atomic_load_explicit(&crossings->watched[unit], memory_order_relaxed)) {
			next = (unit + 1) * LIVE_MAP_UNIT;
			continue;
		}
		next = (at / WORD_BYTES + 1) * WORD_BYTES;
		if (end < next)
			bits &= UINT64_MAX >> (GRAINS - 1 - (end - 1) % WORD_BYTES / GRAIN);
		if (bits == UINT64_MAX) /* nobody else's */
			atomic_store_explicit(&words[at / WORD_BYTES], born ? bits : 0, memory_order_relaxed);
		else if (born)
			atomic_fetch_or_explicit(&words[at / WORD_BYTES], bits, memory_order_relaxed);
		else
			atomic_fetch_and_explicit(&words[at / WORD_BYTES], ~bits, memory_order_relaxed);
	}
}

void crossings_died(struct crossings *crossings, uint64_t begin, uint64_t end)
{
	if (begin < end && end <= crossings->bytes)
		mark_born(crossings, begin, end, false);
}

void crossings_born(struct crossings *crossings, uint64_t begin, uint64_t end)
{
	if (begin >= end || end > crossings->bytes)
		return;
	mark_born(crossings, begin, end, true);
	uint64_t first = begin / LIVE_MAP_UNIT, last = (end - 1) / LIVE_MAP_UNIT;
	uint64_t from = begin / GRAIN, length = (end + GRAIN - 1) / GRAIN - from;
	if (last > first && (from > BEGIN_MOST || length > LENGTH_MOST)) {
		crossings_doubt_all(crossings);
		return;
	}
	for (uint64_t unit = first + 1; unit <= last; unit++)
		atomic_store_explicit(&crossings->crossing[unit], from << LENGTH_BITS | length, memory_order_relaxed);
	forget_if_met(crossings, first, begin, end);
	forget_if_met(crossings, last + 1, begin, end);
}

/* Extends *found by the range that crosses the beginning of this unit, if that has the byte. */
static bool join(const struct crossings *crossings, uint64_t unit, uint64_t at, struct live_range *found)
{
	uint64_t word = atomic_load_explicit(&crossings->crossing[unit], memory_order_relaxed);
	struct live_range range = range_of(word);

	if (!word || at < range.begin || at >= range.end)
		return false;
	if (range.begin < found->begin)
		found->begin = range.begin;
	if (range.end > found->end)
		found->end = range.end;
	return true;
}

bool crossings_find(const struct crossings *crossings, uint64_t at, struct live_range *ret)
{
	struct live_range found = {at, at + 1};
	bool below, above;

	if (at >= crossings->bytes)
		return false;
	below = join(crossings, at / LIVE_MAP_UNIT, at, &found);
	above = join(crossings, at / LIVE_MAP_UNIT + 1, at, &found);
	if (below || above)
		*ret = found;
	return below || above;
}

/* ---- watched ranges ---- */

static void watch(struct crossings *crossings, uint64_t begin, uint64_t end, bool on)
{
	for (uint64_t unit = begin / LIVE_MAP_UNIT; unit < end / LIVE_MAP_UNIT; unit++)
		if (atomic_load_explicit(&crossings->watched[unit], memory_order_relaxed) != on)
			atomic_store_explicit(&crossings->watched[unit], on, memory_order_relaxed);
}

bool crossings_watch(struct crossings *crossings, uint64_t begin, uint64_t end)
{
	if (!atomic_load(&crossings->born))
		atomic_store_explicit(&crossings->born, lazy_memory_new(born_bytes(crossings)), memory_order_release);
	if (!atomic_load(&crossings->born))
		return false;
	watch(crossings, begin, end, true);
	mark_born(crossings, begin, end, false);
	return true;
}

void crossings_unwatch(struct crossings *crossings, uint64_t begin, uint64_t end)
{
	watch(crossings, begin, end, false);
}

bool crossings_reach(const struct crossings *crossings, uint64_t at, struct live_range *ret)
{
	const _Atomic uint64_t *words = atomic_load_explicit(&crossings->born, memory_order_acquire);
	uint64_t unit = at / LIVE_MAP_UNIT;

	if (at >= crossings->bytes || !words || crossings_is_all_doubted(crossings) ||
	    !atomic_load_explicit(&crossings->watched[unit], memory_order_relaxed) ||
	    !(atomic_load_explicit(&words[at / WORD_BYTES], memory_order_relaxed) >> at % WORD_BYTES / GRAIN & 1))
		return false;
	/* What crosses no beginning of a unit is within this one. */
	if (!crossings_find(crossings, at, ret))
		*ret = (struct live_range){unit * LIVE_MAP_UNIT, (unit + 1) * LIVE_MAP_UNIT};
	return true;
}

/* ---- doubts ---- */

void crossings_doubt(struct crossings *crossings, uint64_t space)
{
	if (space < crossings->bytes && !atomic_load(&crossings->doubted[space / LIVE_MAP_UNIT]))
		atomic_store(&crossings->doubted[space / LIVE_MAP_UNIT], true);
}

void crossings_doubt_all(struct crossings *crossings)
{
	atomic_store(&crossings->all_doubted, true);
}

void crossings_renew(struct crossings *crossings, uint64_t space)
{
	if (space < crossings->bytes && atomic_load(&crossings->doubted[space / LIVE_MAP_UNIT]))
		atomic_store(&crossings->doubted[space / LIVE_MAP_UNIT], false);
}

bool crossings_is_doubted(const struct crossings *crossings, uint64_t space)
{
	return atomic_load(&crossings->all_doubted) || atomic_load(&crossings->doubted[space / LIVE_MAP_UNIT]);
}

bool crossings_is_all_doubted(const struct crossings *crossings)
{
	return atomic_load(&crossings->all_doubted);
}
