// SPDX-License-Identifier: Apache-2.0
/*
 * births.c: what a birth tells beside that something is alive: how far pointers reach, and at which line of the program
 * it was born (lifetimes.h).
 */
#include "shim/base/call_site.h"
#include "shim/base/clock.h"
#include "shim/base/number.h"
#include "shim/base/python.h"
#include "shim/lifetimes/types.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

/* ---- how far pointers reach ---- */

/*
 * A word for the beginning of each unit: the range that crosses it, in grains of 512 bytes, which is the unit of
 * PyTorch's allocator. One store replaces a whole range, so a reader never sees a half of it.
 */

#define GRAIN       UINT64_C(512)
#define LENGTH_BITS 29 /* of a word, the lowest: length in grains; the others: where the range begins */
#define LENGTH_MOST ((UINT64_C(1) << LENGTH_BITS) - 1)
#define BEGIN_MOST  (UINT64_MAX >> LENGTH_BITS) /* 16 TiB in grains: as much as the plan has pieces for (plan.h) */

struct crossings {
	uint64_t bytes;
	struct {
		_Atomic uint64_t crossing; /* 0: nothing */
		_Atomic bool doubted;      /* of the first unit of address space */
		_Atomic bool watched;
	} * unit;
	_Atomic bool all_doubted;
	/*
	 * of watched units, made for the first of them: a bit for each grain in which something that is alive was born
	 */
	_Atomic(_Atomic uint64_t *) born;
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
	crossings->unit = lazy_memory_new(n_units(bytes) * sizeof(crossings->unit[0]));
	if (crossings->unit)
		return crossings;
	free(crossings);
	return NULL;
}

void crossings_free(struct crossings *crossings)
{
	if (!crossings)
		return;
	lazy_memory_free(crossings->unit, n_units(crossings->bytes) * sizeof(crossings->unit[0]));
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
	uint64_t word = atomic_load_explicit(&crossings->unit[unit].crossing, memory_order_relaxed);
	struct live_range range = range_of(word);

	if (word && range.begin < end && range.end > begin)
		atomic_store_explicit(&crossings->unit[unit].crossing, 0, memory_order_relaxed);
}

/* Sets or clears the bits of the grains that a range touches in watched units. */
static void mark_born(struct crossings *crossings, uint64_t begin, uint64_t end, bool born)
{
	_Atomic uint64_t *words = atomic_load_explicit(&crossings->born, memory_order_acquire);
	uint64_t next;

	for (uint64_t at = begin; words && at < end; at = next) {
		uint64_t first = at % WORD_BYTES / GRAIN, unit = at / LIVE_MAP_UNIT, bits = UINT64_MAX << first;

		if (!atomic_load_explicit(&crossings->unit[unit].watched, memory_order_relaxed)) {
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
		atomic_store_explicit(&crossings->unit[unit].crossing, from << LENGTH_BITS | length,
				      memory_order_relaxed);
	forget_if_met(crossings, first, begin, end);
	forget_if_met(crossings, last + 1, begin, end);
}

/* Extends *found by the range that crosses the beginning of this unit, if that has the byte. */
static bool join(const struct crossings *crossings, uint64_t unit, uint64_t at, struct live_range *found)
{
	uint64_t word = atomic_load_explicit(&crossings->unit[unit].crossing, memory_order_relaxed);
	struct live_range range = range_of(word);

	if (!word || at < range.begin || at >= range.end)
		return false;
	*found = (struct live_range){smaller(found->begin, range.begin), larger(found->end, range.end)};
	return true;
}

bool crossings_find(const struct crossings *crossings, uint64_t at, struct live_range *ret)
{
	struct live_range found = {at, at + 1};

	if (at >= crossings->bytes)
		return false;
	bool below = join(crossings, at / LIVE_MAP_UNIT, at, &found);
	bool above = join(crossings, at / LIVE_MAP_UNIT + 1, at, &found);
	if (below || above)
		*ret = found;
	return below || above;
}

/* ---- watched ranges ---- */

static void watch(struct crossings *crossings, uint64_t begin, uint64_t end, bool on)
{
	for (uint64_t unit = begin / LIVE_MAP_UNIT; unit < end / LIVE_MAP_UNIT; unit++)
		if (atomic_load_explicit(&crossings->unit[unit].watched, memory_order_relaxed) != on)
			atomic_store_explicit(&crossings->unit[unit].watched, on, memory_order_relaxed);
}

void crossings_watch(struct crossings *crossings, uint64_t begin, uint64_t end)
{
	if (!atomic_load(&crossings->born))
		atomic_store_explicit(&crossings->born, lazy_memory_new(born_bytes(crossings)), memory_order_release);
	if (!atomic_load(&crossings->born))
		return;
	watch(crossings, begin, end, true);
	mark_born(crossings, begin, end, false);
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
	    !atomic_load_explicit(&crossings->unit[unit].watched, memory_order_relaxed) ||
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
	if (space < crossings->bytes && !atomic_load(&crossings->unit[space / LIVE_MAP_UNIT].doubted))
		atomic_store(&crossings->unit[space / LIVE_MAP_UNIT].doubted, true);
}

void crossings_doubt_all(struct crossings *crossings)
{
	atomic_store(&crossings->all_doubted, true);
}

void crossings_renew(struct crossings *crossings, uint64_t space)
{
	if (space < crossings->bytes && atomic_load(&crossings->unit[space / LIVE_MAP_UNIT].doubted))
		atomic_store(&crossings->unit[space / LIVE_MAP_UNIT].doubted, false);
}

bool crossings_is_doubted(const struct crossings *crossings, uint64_t space)
{
	return atomic_load(&crossings->all_doubted) || atomic_load(&crossings->unit[space / LIVE_MAP_UNIT].doubted);
}

bool crossings_is_all_doubted(const struct crossings *crossings)
{
	return atomic_load(&crossings->all_doubted);
}

/* ---- lines of births ---- */

/*
 * Births that are recognized are in a table with open addressing, a word each, which any thread reads and writes: a
 * word is whole, and one that is overwritten only costs a naming. Lines by unit are in another one.
 */

/* ---- lines of the nodes of autograd ---- */

/*
 * For which line of the forward pass a thread of PyTorch's autograd makes a tensor, by the node that it runs
 * (call_site.h).
 *
 * The first tensor that is born after a node was made is that of the operation which made it, so its line is noted for
 * the node. Later ones are not: they may be of operations without a node. A node behind which no tensor was born before
 * the next node has no line: views, and what computes in place. If an operation without a node comes behind such a one,
 * its line is taken for that of the node.
 *
 * Measured (PyTorch 2.11.0 and 2.15.0 on the CPU, x86-64; of the bytes that are born while a node runs): of three
 * layers of a GPT and three of attention written out, a line an operation, 80 % have the right line, 19 % none, and 1.3
 * % that of the operation behind; with autocast (2.15.0) 92 %, 7 % and 0.5 %.
 *
 * Locking: none, and none of the loader. No call of the driver. A line that is new in the backward pass takes memory
 * (malloc), once.
 */

/* A word: the thread and the number of the node, and the number of the site. 0: free. */
enum { SITE_BITS = 13, NODE_BITS = 35, THREAD_BITS = 16 };
_Static_assert(SITE_BITS + NODE_BITS + THREAD_BITS == 64, "it fills a word");
#define SITE_MOST     ((1u << SITE_BITS) - 1)
#define THREADS_APART UINT64_C(4099) /* a prime: a few threads with the same numbers have places of their own */

/* Of this thread: the number that the next node had at its latest birth, plus 1; 0: there was no birth. */
static __thread uint64_t latest __attribute__((tls_model("initial-exec")));

static _Atomic uint64_t *node_slot_of(struct autograd_node node)
{
	return &lifetimes_state.births.node[(node.number + node.thread * THREADS_APART) % NODE_LINES_SLOTS];
}

/* The word of the node, without a site; 0: its numbers are too large. */
static uint64_t word_of(struct autograd_node node)
{
	if (node.thread >> THREAD_BITS || node.number >> NODE_BITS)
		return 0;
	return (node.thread << NODE_BITS | node.number) << SITE_BITS;
}

/* A tensor is born at this line; 0: not known. */
static void note(unsigned number)
{
	struct autograd_node node = autograd_next();
	uint64_t before = latest, word;

	latest = node.number + 1;
	if (!number || !before || before == latest)
		return;
	node.number--;
	word = word_of(node);
	if (word)
		atomic_store_explicit(node_slot_of(node), word | number, memory_order_release);
}

/* Returns the line of the node that this thread runs; 0: not known. */
static unsigned line_of_node(void)
{
	struct autograd_node node;
	uint64_t word, found;

	if (!autograd_running(&node))
		return 0;
	word = word_of(node);
	found = atomic_load_explicit(node_slot_of(node), memory_order_acquire);
	return word && found >> SITE_BITS == word >> SITE_BITS ? (unsigned)(found & SITE_MOST) : 0;
}

/*
 * A tensor is born by this thread at the site of this number (call_site_numbered); 0: not known. Returns the number of
 * the site that it counts for: if that says no more than "backward", and the line for which the thread runs is known,
 * the site of that line's backward pass, and otherwise the same one.
 */
static unsigned node_lines_name(unsigned number)
{
	const struct call_site *site = call_site_numbered(number);
	bool is_backward = site && site->is_backward;

	if (!autograd_is_here())
		return number;
	note(is_backward ? 0 : number);
	if (!is_backward)
		return number;
	const struct call_site *line = call_site_numbered(line_of_node());
	site = line ? call_site_backward(line) : NULL;
	return site ? site->number : number;
}

/* ---- lines of births ---- */

static const struct time_share share = {.one_in = 125, .most = 20000000};

enum {
	TRIES = 4,        /* slots that are searched for a birth */
	LOOK_AGAIN = 250, /* it is named again after so many births */
	LOOK_LATER = 32   /* if there is no time for it then, the clock is asked again after so many */
};
#define SMALL     (UINT64_C(1) << 20) /* PyTorch keeps tensors up to this size in segments of their own */
#define HALF_FULL (share.most / 2)

/*
 * A word: hash of the birth, number of the site, and how often it was recognized since it was named, plus 1. Of a unit:
 * the upper bits of the address, and the number.
 */
enum { USES_BITS = 8, NUMBER_BITS = 13, UNIT_BITS = 21 };
#define USES_MOST   ((UINT64_C(1) << USES_BITS) - 1)
#define NUMBER_MOST ((UINT64_C(1) << NUMBER_BITS) - 1)
#define HASH_SHIFT  (USES_BITS + NUMBER_BITS)
_Static_assert(LOOK_AGAIN < (1 << USES_BITS), "it can be counted");

/* Of this thread: hashes of its last two births, and of the sizes of the last eight, a byte each. */
static __thread uint64_t before __attribute__((tls_model("initial-exec")));
static __thread uint64_t long_before __attribute__((tls_model("initial-exec")));
static __thread uint64_t sizes __attribute__((tls_model("initial-exec")));

static uint64_t mix(uint64_t value)
{
	value = (value ^ value >> 32) * UINT64_C(0x9E3779B97F4A7C15);
	return value ^ value >> 29;
}

/* Returns a hash of this birth and of those before it. *ret_by_size: a hash of sizes alone, of more of them. */
static uint64_t key_of(uint64_t address, uint64_t bytes, uint64_t *ret_by_size)
{
	uint64_t own = mix(mix(address) + bytes), key = mix(mix(mix(long_before) + before) + own);

	long_before = before;
	before = own;
	sizes = sizes << 8 | (mix(bytes) & 255);
	*ret_by_size = mix(mix(sizes) - bytes);
	return key;
}

/* Returns the slot that has this birth, or, with *ret_known false, where it may be written. */
static _Atomic uint64_t *slot_of(uint64_t key, bool *ret_known)
{
	_Atomic uint64_t *all = lifetimes_state.births.recognized, *free = NULL;

	for (unsigned i = 0; i < TRIES; i++) {
		_Atomic uint64_t *slot = &all[(key + i) % BIRTH_LINES_SLOTS];
		uint64_t word = atomic_load_explicit(slot, memory_order_relaxed);

		*ret_known = word && word >> HASH_SHIFT == key >> HASH_SHIFT;
		if (*ret_known)
			return slot;
		if (!word && !free)
			free = slot;
	}
	return free ? free : &all[key % BIRTH_LINES_SLOTS];
}

static unsigned name_at(uint64_t now, bool deep)
{
	uint64_t begin = clock_thread();
	const struct call_site *site = call_site_of_tensor(deep);

	time_share_spend(share, &lifetimes_state.births.paid, now, clock_thread() - begin);
	return site ? site->number : 0;
}

static void write_word(_Atomic uint64_t *slot, uint64_t key, unsigned number)
{
	atomic_store_explicit(slot, key >> HASH_SHIFT << HASH_SHIFT | (uint64_t)number << USES_BITS | 1,
			      memory_order_relaxed);
}

static unsigned number_in(uint64_t word)
{
	return (unsigned)(word >> USES_BITS & NUMBER_MOST);
}

static unsigned line_of(uint64_t address, uint64_t bytes)
{
	bool known, guessed;
	uint64_t by_size, key = key_of(address, bytes, &by_size), now, left;
	_Atomic uint64_t *slot = slot_of(key, &known), *likely;
	uint64_t word = atomic_load_explicit(slot, memory_order_relaxed);
	unsigned number;

	if (known && (word & USES_MOST) < LOOK_AGAIN) {
		atomic_store_explicit(slot, word + 1, memory_order_relaxed);
		return number_in(word);
	}
	likely = slot_of(by_size, &guessed);
	number = known ? number_in(word) : guessed ? number_in(atomic_load_explicit(likely, memory_order_relaxed)) : 0;
	now = clock_now();
	left = time_share_left(share, &lifetimes_state.births.paid, now);
	if (!left || ((known || guessed || bytes < SMALL) && left < HALF_FULL)) {
		if (known)
			atomic_store_explicit(slot, word - LOOK_LATER, memory_order_relaxed);
		return number;
	}
	number = name_at(now, left >= HALF_FULL);
	write_word(slot, key, number);
	write_word(likely, by_size, number);
	return number;
}

/* ---- by unit ---- */

static uint32_t unit_word(uint64_t unit, unsigned number)
{
	return (uint32_t)(unit / BIRTH_LINES_UNITS) << NUMBER_BITS | number;
}

/* A unit of which the end of a longer range covers the smaller part belongs to what begins there. */
static void set_units(uint64_t begin, uint64_t end, unsigned number)
{
	uint64_t first = begin >> UNIT_BITS, last = (end - 1) >> UNIT_BITS;

	if (last > first && end - (last << UNIT_BITS) <= (UINT64_C(1) << UNIT_BITS) / 2)
		last--;
	for (uint64_t unit = first; unit <= last; unit++)
		atomic_store_explicit(&lifetimes_state.births.unit[unit % BIRTH_LINES_UNITS], unit_word(unit, number),
				      memory_order_relaxed);
}

unsigned birth_lines_at(uint64_t address)
{
	uint64_t unit = address >> UNIT_BITS;
	uint32_t word =
	    atomic_load_explicit(&lifetimes_state.births.unit[unit % BIRTH_LINES_UNITS], memory_order_relaxed);
	unsigned number = word & NUMBER_MOST;

	return word == unit_word(unit, number) ? number : 0;
}

unsigned birth_lines_name(uint64_t address, uint64_t bytes)
{
	if (!python_process_is_here() || !bytes)
		return 0;
	unsigned number = node_lines_name(line_of(address, bytes));
	set_units(address, address + bytes, number);
	return number;
}
