// SPDX-License-Identifier: Apache-2.0
/*
 * budget.h: a budget, and a lender.
 *
 * A budget: bytes that may be used, how many are used, and the peak.
 *
 * A budget has no lock; each number is one atomic. The heap takes from a budget before it asks the driver, and gives
 * back after the driver has freed. What the program takes without asking us (pools, its own cuMemCreate) is charged
 * by force and may lift the sum over the limit; then the heap only gets nothing more.
 *
 * The host's budget may be shared: what is taken from it must then also fit the total of the user's processes
 * (quota.h).
 *
 * The lender: what a device lends to the heaps of other devices in this process (spill.peers), and which
 * budget pays.
 *
 * A loan first takes what the device has beyond its own budget, then from its own budget, as far as bytes are left
 * there: the device's own program never finds its budget overdrawn by loans. What comes back goes to its own budget
 * first. All borrowers together get no more than the limit of `lent`. Lending needs neither a context nor a heap on
 * the device.
 *
 * When the device needs lent memory itself, it says how much (lender_want), and the movers of the borrowers send that
 * much to where it fits (mover/mover.c). Meanwhile it lends nothing, or what has come back would be borrowed again
 * before it is used.
 *
 * The limit is a promise of the user's, not of the driver's: other processes may have filled the device. If the
 * driver had no memory, nothing is lent for a second, or until part of what is lent comes back; then the driver is
 * asked again.
 *
 * A lender belongs to its device, as long as the process lives. It has no lock either.
 */
#ifndef SPILLWAY_BUDGET_H
#define SPILLWAY_BUDGET_H

#include "shim/base/number.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Any thread takes and gives: it writes `used`, then reads `limit`. The control thread, and a look at what the device
 * has, write `limit`, then read `used`. All of that is in one order (seq_cst), which budget_take() relies on.
 */
struct budget {
	_Atomic uint64_t limit, used;
	_Atomic uint64_t peak;     /* only grows; no order */
	_Atomic uint64_t refusals; /* takes for which the total of the user's processes had no room; no order */
	_Atomic bool shared;       /* set before the first take */
};

/*
 * Takes bytes. Returns false if they do not fit. A thread that lowers the limit and then reads `used` sees all that was
 * taken under the old limit. From then on nothing is taken above the larger of the new limit and what it read.
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

/* ---- lending ---- */

/* Any thread reads and writes the atomics; each is a figure of its own, and no two are ordered. */
struct lender {
	CUdevice device;
	struct budget *own;
	struct budget lent;                    /* all that is lent */
	struct budget beyond;                  /* the part of it that the device has beyond its own budget */
	_Atomic uint64_t of_own;               /* the rest of it, charged to `own` */
	_Atomic uint64_t wanted, wanted_until; /* bytes that are still to come back; ns */
	/* clock_now(): nothing more is lent before; 0: the device is not known to be full */
	_Atomic uint64_t full_until;
};

/* Returns the bytes that it would lend now. */
uint64_t lender_left(const struct lender *lender);
/* Takes all the bytes. Returns false, and takes none, if they cannot be lent. */
bool lender_take(struct lender *lender, uint64_t bytes);
/* Gives lent bytes back, first what was charged to the own budget. */
void lender_give(struct lender *lender, uint64_t bytes);
/* Records that the driver had no memory for what was taken. The caller gives the bytes back. */
void lender_is_full(struct lender *lender);

/*
 * Asks for that many bytes of what is lent to come back. This holds for a second, in which nothing is lent; the
 * caller must call again if it still needs them.
 */
void lender_want(struct lender *lender, uint64_t bytes);
/* Returns the part of the wanted bytes that has not come back. */
uint64_t lender_wanted(const struct lender *lender);

#endif
