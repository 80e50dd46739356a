/*
 * lender.h: what a device lends to the heaps of other devices in this process (spill.peers), and at whose expense.
 *
 * First it is taken from what the device has beyond its own budget, then from that, as far as there is room in it: the
 * device's own program never finds its budget overdrawn by what others have. What comes back is its own first. In all
 * no more than `lent` allows, whoever borrows. It needs neither a context nor a heap there.
 *
 * Owner: its device, for as long as the process lives. No lock, as in budget.h.
 */
#ifndef SPILLWAY_LENDER_H
#define SPILLWAY_LENDER_H

#include "shim/budget.h"

#include <cuda.h>

struct lender {
	CUdevice device;
	struct budget *own;
	struct budget lent;      /* all of it */
	struct budget beyond;    /* of it: what the device has beyond its own budget; the rest */
	_Atomic uint64_t of_own; /* is charged to that */
};

/* Bytes that it would lend now. */
uint64_t lender_left(const struct lender *lender);
/* Take all of them, or nothing: false. */
bool lender_take(struct lender *lender, uint64_t bytes);
void lender_give(struct lender *lender, uint64_t bytes);

#endif
