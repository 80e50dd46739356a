/*
 * crossings.h: how far a pointer reaches into memory that the program has mapped itself. The program decides how many
 * of its handles a tensor covers, so the handle that a pointer lies in does not say which others are used with it. What
 * the program's allocator reports does: a pointer reaches over the range that was born around it.
 *
 * Only ranges that cross the beginning of a unit are kept, one for each such beginning, for ranges that are alive are
 * disjoint. A birth overwrites what was kept where it crosses; a death changes nothing. So at any address in a range
 * that is alive the answer is that range, and elsewhere it is at most too long.
 *
 * Births are written by the thread that reports them, at once. Who may use a range knows its address, so its birth
 * happened before, and no later birth can meet the range while it is alive.
 *
 * Of allocations that are backed on use (heap/on_use.h) more must be known: whether something that is alive was born at
 * an address at all, also within a unit. While such a range is *watched*, a bit for each 512 bytes says so, which a
 * death takes back; ranges count in whole such steps.
 *
 * Graphs use memory without births, at each launch, so address space that a graph names is *doubted* until it is given
 * back. Offsets are in bytes from the beginning of the heap's address space. Locking: none; any thread may call any
 * function at any time.
 */
#ifndef SPILLWAY_CROSSINGS_H
#define SPILLWAY_CROSSINGS_H

#include "shim/plan/live_map.h"

#include <stdbool.h>
#include <stdint.h>

struct crossings;

/* For `bytes` of address space. Returns NULL if there is no memory. */
struct crossings *crossings_new(uint64_t bytes);
void crossings_free(struct crossings *crossings);

/* A range was born. If it cannot be kept, because it is longer than 256 GiB, everything is doubted. */
void crossings_born(struct crossings *crossings, uint64_t begin, uint64_t end);
/* Finds the range of more than one unit that has this byte. Returns false if none is known. */
bool crossings_find(const struct crossings *crossings, uint64_t at, struct live_range *ret);

/*
 * Watches a range of whole units, in which nothing is alive; and ends that. Returns false if there is no memory for it:
 * nothing is known of the range then. The caller must not run two calls at once.
 */
bool crossings_watch(struct crossings *crossings, uint64_t begin, uint64_t end);
void crossings_unwatch(struct crossings *crossings, uint64_t begin, uint64_t end);
/* A range died. Matters only where it is watched. */
void crossings_died(struct crossings *crossings, uint64_t begin, uint64_t end);
/*
 * Finds where the range ends at most that is alive at this byte, and was born while it was watched. Returns false if
 * none is known.
 */
bool crossings_reach(const struct crossings *crossings, uint64_t at, struct live_range *ret);

/*
 * Pointers into the address space that begins here may reach over all of it. A caller that afterwards reads what the
 * one who asks crossings_is_doubted() has written before sees that, or is seen by it.
 */
void crossings_doubt(struct crossings *crossings, uint64_t space);
/* The same for all address space, for good. */
void crossings_doubt_all(struct crossings *crossings);
/* The address space was reserved anew. */
void crossings_renew(struct crossings *crossings, uint64_t space);
bool crossings_is_doubted(const struct crossings *crossings, uint64_t space);
bool crossings_is_all_doubted(const struct crossings *crossings);

#endif
