/*
 * move_limits.h: limits on the device memory that moving itself takes up: what is kept free, what is in flight, and
 * what is fetched ahead of its use. The program cannot use that memory meanwhile. Pure functions; all sizes in bytes.
 * budget: of the device. largest: size of the largest piece.
 */
#ifndef SPILLWAY_MOVE_LIMITS_H
#define SPILLWAY_MOVE_LIMITS_H

#include <stdint.h>

/*
 * Returns how much device memory the mover tries to keep free in `fast`, so that fetches need not wait for evictions.
 */
uint64_t move_limits_reserve(uint64_t budget, uint64_t largest);
/* Returns the limit on bytes in flight in one direction: with less than that in flight, another copy may begin. */
uint64_t move_limits_under_way(uint64_t budget, uint64_t largest);
/* Returns how much may be fetched ahead of its use. */
uint64_t move_limits_ahead(uint64_t budget);
/* Returns the size up to which room is made for new blocks. Larger blocks are placed where there is room. */
uint64_t move_limits_new(uint64_t budget);
/*
 * Returns for how many submissions what is evicted for future new blocks must not be needed, in a program of this
 * period.
 */
uint64_t move_limits_not_soon(uint64_t period);

#endif
