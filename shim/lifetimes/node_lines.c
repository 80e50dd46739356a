/*
 * Lines by node are in a table that any thread reads and writes, a word each, which is whole and says which node it is
 * of. The nodes of a thread that follow each other have places that do, so a line is found until as many nodes as the
 * table has places have been made since.
 */
#include "shim/lifetimes/node_lines.h"
#include "shim/base/autograd.h"
#include "shim/base/call_site.h"
#include "shim/lifetimes/lifetimes_state.h"

/* A word: the thread and the number of the node, and the number of the site. 0: free. */
enum { SITE_BITS = 13, NUMBER_BITS = 35, THREAD_BITS = 16 };
_Static_assert(SITE_BITS + NUMBER_BITS + THREAD_BITS == 64, "it fills a word");
#define SITE_MOST     ((1u << SITE_BITS) - 1)
#define THREADS_APART UINT64_C(4099) /* a prime: a few threads with the same numbers have places of their own */

/* Of this thread: the number that the next node had at its latest birth, plus 1; 0: there was no birth. */
static __thread uint64_t latest __attribute__((tls_model("initial-exec")));

static _Atomic uint64_t *slot_of(struct autograd_node node)
{
	return &lifetimes_state.births.node[(node.number + node.thread * THREADS_APART) % NODE_LINES_SLOTS];
}

/* The word of the node, without a site; 0: its numbers are too large. */
static uint64_t word_of(struct autograd_node node)
{
	if (node.thread >> THREAD_BITS || node.number >> NUMBER_BITS)
		return 0;
	return (node.thread << NUMBER_BITS | node.number) << SITE_BITS;
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
		atomic_store_explicit(slot_of(node), word | number, memory_order_release);
}

/* Returns the line of the node that this thread runs; 0: not known. */
static unsigned line_of_node(void)
{
	struct autograd_node node;
	uint64_t word, found;

	if (!autograd_running(&node))
		return 0;
	word = word_of(node);
	found = atomic_load_explicit(slot_of(node), memory_order_acquire);
	return word && found >> SITE_BITS == word >> SITE_BITS ? (unsigned)(found & SITE_MOST) : 0;
}

unsigned node_lines_name(unsigned number)
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
