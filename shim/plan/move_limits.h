/*
 * move_limits.h: how much device memory moving itself takes up: what is kept free, what is under way, and what comes in ahead of
 * its use. All of it is of no use to the program meanwhile. Pure; bytes. budget: of the device. largest: the largest piece.
 */
#ifndef SPILLWAY_MOVE_LIMITS_H
#define SPILLWAY_MOVE_LIMITS_H

#include <stdint.h>

/* Free device memory the mover tries to have in `fast`, so that copies in need not wait. */
uint64_t move_limits_reserve(uint64_t budget, uint64_t largest);
/* With less than that under way one way, another piece may begin. */
uint64_t move_limits_under_way(uint64_t budget, uint64_t largest);
/* So much is brought in ahead of its use. */
uint64_t move_limits_ahead(uint64_t budget);
/* Room is made for new blocks up to that size; larger ones are made where there is room. */
uint64_t move_limits_new(uint64_t budget);
/* What leaves for blocks that may be made next is not needed for so many submissions, in a program of that period. */
uint64_t move_limits_not_soon(uint64_t period);

#endif
