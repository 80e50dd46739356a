/*
 * best_fit.h: the free memory of an allocator's blocks, and which of it the allocator gives out next. PyTorch's takes
 * the smallest free range that suffices, of equal ones the one with the lowest address, and splits it if much is left
 * (checked with a recorded job of 13,094 births, H200, PyTorch 2.11: each of them has the address that this rule
 * gives).
 *
 * Pure. Locking: none.
 */
#ifndef SPILLWAY_BEST_FIT_H
#define SPILLWAY_BEST_FIT_H

#include <stdbool.h>
#include <stdint.h>

/* A larger rest than this (bytes) is split off. */
#define BEST_FIT_SPLIT ((uint64_t)1 << 20)
/* The most free ranges. */
#define BEST_FIT_MOST 8192u

struct best_fit_range {
	uint64_t begin, end;
	uint32_t block; /* any number that is the same for ranges of one block; others are not joined with them */
};

/* Must be zeroed at first. best_fit_fini() frees what it holds. */
struct best_fit {
	struct best_fit_range *range; /* by address; of one block no two touch */
	uint32_t n, room;
};

void best_fit_fini(struct best_fit *fit);
/* Nothing is free any more. */
void best_fit_clear(struct best_fit *fit);
/* Frees a range, none of which is free. Returns false if there is no memory, or if there would be too many ranges. */
bool best_fit_give(struct best_fit *fit, uint64_t begin, uint64_t end, uint32_t block);
/* Takes `bytes` or, where no more than BEST_FIT_SPLIT is left, all of a range. Returns false if no range suffices. */
bool best_fit_take(struct best_fit *fit, uint64_t bytes, struct best_fit_range *ret);

#endif
