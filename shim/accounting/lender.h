/*
 * lender.h: what a device lends to the heaps of other devices in this process (spill.peers), and at whose expense.
 *
 * First it is taken from what the device has beyond its own budget, then from that, as far as there is room in it: the
 * device's own program never finds its budget overdrawn by what others have. What comes back is its own first. In all
 * no more than `lent` allows, whoever borrows. It needs neither a context nor a heap there.
 *
 * What is lent and in use comes back when the device needs it itself: it says how much (lender_want), and the movers of
 * those who have it send that much to where there is room (spill/recall.c). Meanwhile it lends nothing, or what has come
 * back would be borrowed again before it is used.
 *
 * What it lends is a promise of the user's, not of the driver's: others may have filled the device. The driver that had no
 * memory is taken at its word for a second, or until something of what is lent comes back; then it is asked again.
 *
 * Owner: its device, for as long as the process lives. No lock, as in budget.h.
 */
#ifndef SPILLWAY_LENDER_H
#define SPILLWAY_LENDER_H

#include "shim/accounting/budget.h"

#include <cuda.h>

struct lender {
	CUdevice device;
	struct budget *own;
	struct budget lent;                    /* all of it */
	struct budget beyond;                  /* of it: what the device has beyond its own budget; the rest */
	_Atomic uint64_t of_own;               /* is charged to that */
	_Atomic uint64_t wanted, wanted_until; /* bytes that are still to come back; ns */
	_Atomic uint64_t full_until; /* clock_now(): before that nothing more is lent; 0: it is not known to be full */
};

/* Bytes that it would lend now. */
uint64_t lender_left(const struct lender *lender);
/* Take all of them, or nothing: false. */
bool lender_take(struct lender *lender, uint64_t bytes);
void lender_give(struct lender *lender, uint64_t bytes);
/* The driver had none of what was taken, and is given back. */
void lender_is_full(struct lender *lender);

/*
 * So much of what is lent is needed here. That holds for a second, in which nothing is lent: who still needs it then says so
 * again.
 */
void lender_want(struct lender *lender, uint64_t bytes);
/* Of that, what has not come back. */
uint64_t lender_wanted(const struct lender *lender);

#endif
