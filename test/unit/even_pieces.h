// SPDX-License-Identifier: Apache-2.0
/* even_pieces.h: for tests of the plan: pieces of two units, one behind the other, in all memory. */
#ifndef SPILLWAY_TEST_EVEN_PIECES_H
#define SPILLWAY_TEST_EVEN_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#define PIECE 2u /* units */

/* A plan_piece_function. */
static inline bool even_piece_at(void *argument, uint32_t unit, uint32_t *ret_piece, uint32_t *ret_past)
{
	*ret_piece = unit / PIECE * PIECE;
	*ret_past = *ret_piece + PIECE;
	return true;
}

#endif
