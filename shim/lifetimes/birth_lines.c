/*
 * Births that are recognized are in a table with open addressing, a word each, which any thread reads and writes: a
 * word is whole, and one that is overwritten only costs a naming. Lines by unit are in another one.
 */
#include "shim/lifetimes/birth_lines.h"
#include "shim/base/autograd.h"
#include "shim/base/call_site.h"
#include "shim/base/clock.h"
#include "shim/base/python_process.h"
#include "shim/base/time_share.h"
#include "shim/lifetimes/lifetimes_state.h"

#include <stdbool.h>

/* ---- lines of the nodes of autograd ---- */

/*
 * For which line of the forward pass a thread of PyTorch's autograd makes a tensor, by the node that it runs
 * (autograd.h).
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

static _Atomic uint32_t *unit_slot(uint64_t unit)
{
	return &lifetimes_state.births.unit[unit % BIRTH_LINES_UNITS];
}

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
		atomic_store_explicit(unit_slot(unit), unit_word(unit, number), memory_order_relaxed);
}

unsigned birth_lines_at(uint64_t address)
{
	uint64_t unit = address >> UNIT_BITS;
	uint32_t word = atomic_load_explicit(unit_slot(unit), memory_order_relaxed);
	unsigned number = word & NUMBER_MOST;

	return word == unit_word(unit, number) ? number : 0;
}

unsigned birth_lines_name(uint64_t address, uint64_t bytes)
{
	unsigned number;

	if (!python_process_is_here() || !bytes)
		return 0;
	number = node_lines_name(line_of(address, bytes));
	set_units(address, address + bytes, number);
	return number;
}
