/*
 * reach.h: how far a pointer reaches into memory that the program has mapped itself. The program decides how many of
 * its handles a tensor covers, so the handle that a pointer lies in does not say which others are used with it. What
 * the program's allocator reports does: a pointer reaches over the range that was born around it.
 *
 * Only ranges that cross the beginning of a unit are kept, one for each such beginning, for ranges that are alive are
 * disjoint. A birth overwrites what was kept where it crosses; a death changes nothing. So at any address in a range
 * that is alive the answer is that range, and elsewhere it is at most too long.
 *
 * Births are written by the thread that reports them, at once. Who may use a range knows its address, so its birth
 * happened before, and no later birth can meet the range while it is alive.
 *
 * Graphs use memory without births, at each launch, so address space that a graph names is *doubted* until it is given
 * back. Offsets are in bytes from the beginning of the heap's address space. Locking: none; any thread may call any
 * function at any time.
 */
#ifndef SPILLWAY_REACH_H
#define SPILLWAY_REACH_H

#include "shim/plan/live_map.h"

#include <stdbool.h>
#include <stdint.h>

struct reach;

/* For `bytes` of address space. Returns NULL if there is no memory. */
struct reach *reach_new(uint64_t bytes);
void reach_free(struct reach *reach);

/* A range was born. If it cannot be kept, because it is longer than 256 GiB, everything is doubted. */
void reach_born(struct reach *reach, uint64_t begin, uint64_t end);
/* Finds the range of more than one unit that has this byte. Returns false if none is known. */
bool reach_find(const struct reach *reach, uint64_t at, struct live_range *ret);

/*
 * Pointers into the address space that begins here may reach over all of it. A caller that afterwards reads what the
 * one who asks reach_is_doubted() has written before sees that, or is seen by it.
 */
void reach_doubt(struct reach *reach, uint64_t space);
/* The same for all address space, for good. */
void reach_doubt_all(struct reach *reach);
/* The address space was reserved anew. */
void reach_renew(struct reach *reach, uint64_t space);
bool reach_is_doubted(const struct reach *reach, uint64_t space);
bool reach_is_all_doubted(const struct reach *reach);

#endif
