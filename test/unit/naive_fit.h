// SPDX-License-Identifier: Apache-2.0
/*
 * naive_fit.h: an allocator that divides blocks as PyTorch's does: the smallest free range that suffices, the lowest
 * address among equals, all of it if no more than 1 MiB would be left. Memory is a table of grains, and every question
 * looks at all of it.
 */
#ifndef SPILLWAY_TEST_NAIVE_FIT_H
#define SPILLWAY_TEST_NAIVE_FIT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define NAIVE_GRAIN  ((uint64_t)256 << 10) /* bytes; all sizes are multiples of it */
#define NAIVE_GRAINS 8192u
#define NAIVE_SPLIT  4u /* grains */

enum naive_state {
	NAIVE_NONE, /* no block has it */
	NAIVE_FREE,
	NAIVE_USED,
};

struct naive_fit {
	uint8_t state[NAIVE_GRAINS];
	uint8_t block[NAIVE_GRAINS]; /* number of the block that has the grain */
	uint8_t n_blocks;
};

/* Adds a block, all of it free. */
static inline void naive_block(struct naive_fit *fit, uint64_t begin, uint64_t end)
{
	memset(fit->state + begin / NAIVE_GRAIN, NAIVE_FREE, (end - begin) / NAIVE_GRAIN);
	memset(fit->block + begin / NAIVE_GRAIN, ++fit->n_blocks, (end - begin) / NAIVE_GRAIN);
}

/* Returns the length of the free range that begins with this grain; 0: none does. */
static inline uint32_t naive_run(const struct naive_fit *fit, uint32_t at)
{
	uint32_t n = 0;

	if (at && fit->state[at - 1] == NAIVE_FREE && fit->block[at - 1] == fit->block[at])
		return 0;
	while (at + n < NAIVE_GRAINS && fit->state[at + n] == NAIVE_FREE && fit->block[at + n] == fit->block[at])
		n++;
	return n;
}

/* Returns false if no free range suffices. *ret_bytes: what was given. */
static inline bool naive_take(struct naive_fit *fit, uint64_t bytes, uint64_t *ret_begin, uint64_t *ret_bytes)
{
	uint32_t want = (uint32_t)(bytes / NAIVE_GRAIN), best = 0, least = UINT32_MAX;

	for (uint32_t at = 0; at < NAIVE_GRAINS; at++) {
		uint32_t n = naive_run(fit, at);

		if (n >= want && n < least) {
			least = n;
			best = at;
		}
	}
	if (least == UINT32_MAX)
		return false;
	uint32_t given = least - want <= NAIVE_SPLIT ? least : want;
	memset(fit->state + best, NAIVE_USED, given);
	*ret_begin = best * NAIVE_GRAIN;
	*ret_bytes = given * NAIVE_GRAIN;
	return true;
}

static inline void naive_give(struct naive_fit *fit, uint64_t begin, uint64_t bytes)
{
	memset(fit->state + begin / NAIVE_GRAIN, NAIVE_FREE, bytes / NAIVE_GRAIN);
}

#endif
