/*
 * move_lines.h: which lines of the program the bytes of a piece that moves are counted for: those at which the tensors
 * in it were born, as far as an allocator reports them. The rest is counted for what asked for the block.
 *
 * Only the mover's thread may call this: it reads the map of what is alive.
 */
#ifndef SPILLWAY_MOVE_LINES_H
#define SPILLWAY_MOVE_LINES_H

#include "shim/stats/stats.h"

#include <stdint.h>

struct engine;

#define MOVE_LINES 16 /* of a piece: PyTorch's smallest segment of large tensors has room for 20 */

/*
 * Stores the parts of `units` units from `piece` on in which tensors are alive, by site, each site once; `site` is that
 * of their block. Returns how many.
 */
unsigned move_lines(const struct engine *engine, uint32_t piece, uint32_t units, unsigned site,
		    struct stats_part ret_parts[MOVE_LINES]);

#endif
