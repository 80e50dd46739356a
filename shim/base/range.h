// SPDX-License-Identifier: Apache-2.0
/*
 * range.h: allocator of ranges of a span of numbers. The heap uses it for the address space of its arena, in units of
 * 2 MiB.
 *
 * Allocation is first fit from the lowest address; freeing joins neighbours. Freeing needs a node if the range touches
 * no free one, so one node is reserved for each range that is handed out, and freeing never needs memory.
 *
 * Locking: all locking is up to the caller.
 */
#ifndef SPILLWAY_RANGE_H
#define SPILLWAY_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct range_node {
	struct range_node *left, *right;
	uint64_t start, length;
	uint64_t longest; /* range of the subtree */
	uint64_t priority;
};

struct range_set {
	struct range_node *root;  /* treap of free ranges by start */
	struct range_node *spare; /* reserved nodes, at least one for each range handed out */
	uint64_t random;          /* state for the priorities of nodes; never 0 */
};

/* Starts with one free range [0, length). Returns false without memory. */
bool range_init(struct range_set *set, uint64_t length);
void range_fini(struct range_set *set);
/*
 * Takes the first free range of that length. Returns false, with the set unchanged, if none is free or without
 * memory.
 */
bool range_take(struct range_set *set, uint64_t length, uint64_t *ret_start);
/* Takes a range at `start`. Returns false if no free range starts there, if it is too short, or without memory. */
bool range_take_at(struct range_set *set, uint64_t start, uint64_t length);
/* Treats two adjacent ranges that were handed out as one from now on. */
void range_join(struct range_set *set);
/* Frees a range exactly as range_take() gave it. */
void range_give(struct range_set *set, uint64_t start, uint64_t length);

#endif
