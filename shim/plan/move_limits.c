/*
 * Limits on the device memory that moving takes up: fixed sizes, reduced to shares of the budget where that is small.
 */
#include "shim/plan/move_limits.h"

#define MIB ((uint64_t)1 << 20)

/*
 * Memory that is free or in flight costs more than a link that idles now and then. The least that works is one piece
 * that is copied and one behind it. Measured (H200, 1.5, `fast`; ms a step of ResNet-50, of the GPT, and of one with
 * sequences of different lengths): 121, 233, 202 with these values; with 128 MiB free and 96 in flight 125, 233, 203;
 * with 256 and 192 128, 238, 207.
 */
#define RESERVE   (96 * MIB)
#define UNDER_WAY (64 * MIB)
#define PIECES    2
/* At most this share of the budget, but not less than a few pieces of the smallest size. */
#define SHARE       32
#define SHARE_LEAST (8 * MIB)

#define AHEAD       (1024 * MIB)
#define AHEAD_SHARE 8

#define NEW_SHARE       4
#define NOT_SOON_PERIOD 8
#define NOT_SOON_MOST   64

static uint64_t move_limits_less(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t move_limits_more(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t of_budget(uint64_t budget, uint64_t bytes)
{
	return move_limits_less(bytes, move_limits_more(budget / SHARE, SHARE_LEAST));
}

uint64_t move_limits_reserve(uint64_t budget, uint64_t largest)
{
	return of_budget(budget, move_limits_more(RESERVE, PIECES * largest));
}

uint64_t move_limits_under_way(uint64_t budget, uint64_t largest)
{
	return of_budget(budget, move_limits_more(UNDER_WAY, PIECES * largest));
}

uint64_t move_limits_ahead(uint64_t budget)
{
	return move_limits_less(AHEAD, budget / AHEAD_SHARE);
}

uint64_t move_limits_new(uint64_t budget)
{
	return budget / NEW_SHARE;
}

uint64_t move_limits_not_soon(uint64_t period)
{
	return move_limits_less(NOT_SOON_MOST, period / NOT_SOON_PERIOD);
}
