/*
 * budget.h: a number of bytes that may be used, how much of it is, and the most that ever was.
 *
 * No lock: one atomic each. The heap takes from a budget before it asks the driver, and gives back after the driver
 * has freed; what others take without asking us (pools, the program's own cuMemCreate) is charged by force and may lift
 * the sum over the limit, which only means that the heap gets nothing more.
 *
 * One of them, the host's, may be shared: what is taken must then fit what the user's processes have together, too
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

/* Take bytes if they fit; false when they do not. */
bool budget_take(struct budget *budget, uint64_t bytes);
/* Take bytes whether they fit or not. */
void budget_charge(struct budget *budget, uint64_t bytes);
void budget_give(struct budget *budget, uint64_t bytes);
/* Bytes that still fit, 0 when over. */
uint64_t budget_left(const struct budget *budget);
/* How far it is over. */
uint64_t budget_over(const struct budget *budget);

#endif
