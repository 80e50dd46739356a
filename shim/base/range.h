/*
 * range.h: which parts of a span of numbers are free; hands them out and takes them back. The heap uses it for the
 * address space of its arena, in units of 2 MiB.
 *
 * All locking is the caller's. Taking is first fit from the lowest address; giving back joins neighbours. Giving back
 * can need a node when the range touches no free one; nodes are therefore taken when a range is handed out, one for
 * each, so that freeing never needs memory.
 */
#ifndef SPILLWAY_RANGE_H
#define SPILLWAY_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct range_node;

struct range_set {
	struct range_node *root;  /* free ranges by start; a treap whose nodes know the longest range below them */
	struct range_node *spare; /* nodes in reserve, at least one for each range handed out */
	uint64_t random;          /* of the treap's priorities; any seed but 0 */
	size_t n_taken;
};

/* One free range [0, length). False: no memory. */
bool range_init(struct range_set *set, uint64_t length);
void range_fini(struct range_set *set);
/* The first free range of that length. False: none, or no memory for the node; the set is unchanged then. */
bool range_take(struct range_set *set, uint64_t length, uint64_t *ret_start);
/* The range at that place, where a free one must start. False: it does not, or is shorter, or no memory. */
bool range_take_at(struct range_set *set, uint64_t start, uint64_t length);
/* Two ranges side by side that were handed out are one from now on. */
void range_join(struct range_set *set);
/* Give back exactly what range_take() gave. */
void range_give(struct range_set *set, uint64_t start, uint64_t length);
uint64_t range_free_total(const struct range_set *set);
/* Ordered, disjoint, no two neighbours touching, longest-below right. For tests and debug builds. */
bool range_is_valid(const struct range_set *set);

#endif
