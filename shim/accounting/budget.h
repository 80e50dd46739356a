/*
 * budget.h: a budget: bytes that may be used, how many are used, and the peak.
 *
 * A budget has no lock; each number is one atomic. The heap takes from a budget before it asks the driver, and gives
 * back after the driver has freed. What the program takes without asking us (pools, its own cuMemCreate) is charged
 * by force and may lift the sum over the limit; then the heap only gets nothing more.
 *
 * The host's budget may be shared: what is taken from it must then also fit the total of the user's processes
 * (quota.h).
 */
#ifndef SPILLWAY_BUDGET_H
#define SPILLWAY_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct budget {
	_Atomic uint64_t limit, used, peak;
	_Atomic bool shared;
};

/*
 * Takes bytes. Returns false if they do not fit. Who lowers the limit, and then reads what is used, has seen all that
 * was taken by the limit before: from then on nothing is taken above the larger of the two.
 */
bool budget_take(struct budget *budget, uint64_t bytes);
/* Takes bytes whether they fit or not. */
void budget_charge(struct budget *budget, uint64_t bytes);
/* Gives bytes back, taken or charged; of a shared budget also to the quota. */
void budget_give(struct budget *budget, uint64_t bytes);
/* Returns the bytes that still fit, 0 if the budget is over its limit. */
uint64_t budget_left(const struct budget *budget);
/* Returns how many bytes the budget is over its limit. */
uint64_t budget_over(const struct budget *budget);

#endif
