// SPDX-License-Identifier: Apache-2.0
/*
 * budget.c: taking from, charging and giving back to a budget; taking and giving lent memory of a device. See budget.h.
 */
#include "shim/accounting/budget.h"
#include "shim/accounting/quota.h"
#include "shim/base/clock.h"

#define WANTED_NS 1000000000
/* As for the heap's own device (chunk.c). */
#define FULL_NS 1000000000

static void note_peak(struct budget *budget, uint64_t now)
{
	uint64_t peak = atomic_load_explicit(&budget->peak, memory_order_relaxed);

	while (now > peak && !atomic_compare_exchange_weak(&budget->peak, &peak, now))
		;
}

/* Takes the shared part first: joining may change the limit. */
bool budget_take(struct budget *budget, uint64_t bytes)
{
	bool shared = atomic_load_explicit(&budget->shared, memory_order_relaxed);

	if (shared && !quota_take(bytes)) {
		atomic_fetch_add(&budget->refusals, 1);
		return false;
	}
	uint64_t limit = atomic_load(&budget->limit), used = atomic_load(&budget->used);
	while (used <= limit && bytes <= limit - used) {
		if (!atomic_compare_exchange_weak(&budget->used, &used, used + bytes))
			continue;
		if (used + bytes <= atomic_load(&budget->limit)) {
			note_peak(budget, used + bytes);
			return true;
		}
		/* The limit was lowered before this look: undone. If lowered after it, the take stands, and is seen. */
		atomic_fetch_sub(&budget->used, bytes);
		break;
	}
	if (shared)
		quota_give(bytes);
	return false;
}

void budget_charge(struct budget *budget, uint64_t bytes)
{
	note_peak(budget, atomic_fetch_add(&budget->used, bytes) + bytes);
}

void budget_give(struct budget *budget, uint64_t bytes)
{
	atomic_fetch_sub(&budget->used, bytes);
	if (atomic_load_explicit(&budget->shared, memory_order_relaxed))
		quota_give(bytes);
}

uint64_t budget_left(const struct budget *budget)
{
	uint64_t limit = atomic_load(&budget->limit), used = atomic_load(&budget->used);

	uint64_t left = used < limit ? limit - used : 0;

	if (left && atomic_load_explicit(&budget->shared, memory_order_relaxed)) {
		uint64_t shared = quota_left();

		return shared < left ? shared : left;
	}
	return left;
}

uint64_t budget_over(const struct budget *budget)
{
	uint64_t limit = atomic_load(&budget->limit), used = atomic_load(&budget->used);

	return used > limit ? used - limit : 0;
}

/* ---- lending ---- */

static bool is_before(const _Atomic uint64_t *until)
{
	uint64_t ns = atomic_load_explicit(until, memory_order_relaxed);

	return ns && clock_now() < ns;
}

static bool is_wanted(const struct lender *lender)
{
	return is_before(&lender->wanted_until);
}

static bool lends_none(const struct lender *lender)
{
	return is_wanted(lender) || is_before(&lender->full_until);
}

uint64_t lender_left(const struct lender *lender)
{
	if (lends_none(lender))
		return 0;
	uint64_t beyond = budget_left(&lender->beyond), own = budget_left(lender->own);
	uint64_t both = beyond + own < beyond ? UINT64_MAX : beyond + own;

	return smaller(budget_left(&lender->lent), both);
}

bool lender_take(struct lender *lender, uint64_t bytes)
{
	if (lends_none(lender) || !budget_take(&lender->lent, bytes))
		return false;
	uint64_t beyond;
	do
		beyond = smaller(bytes, budget_left(&lender->beyond));
	while (beyond && !budget_take(&lender->beyond, beyond));
	uint64_t rest = bytes - beyond;
	if (!rest || budget_take(lender->own, rest)) {
		atomic_fetch_add(&lender->of_own, rest);
		return true;
	}
	budget_give(&lender->beyond, beyond);
	budget_give(&lender->lent, bytes);
	return false;
}

/* Subtracts up to that many bytes, but not below 0. Returns how many. */
static uint64_t lender_subtract(_Atomic uint64_t *number, uint64_t bytes)
{
	uint64_t before = atomic_load(number), part;

	do
		part = smaller(bytes, before);
	while (!atomic_compare_exchange_weak(number, &before, before - part));
	return part;
}

void lender_give(struct lender *lender, uint64_t bytes)
{
	uint64_t rest = lender_subtract(&lender->of_own, bytes);

	lender_subtract(&lender->wanted, bytes);
	budget_give(lender->own, rest);
	budget_give(&lender->beyond, bytes - rest);
	budget_give(&lender->lent, bytes);
	atomic_store_explicit(&lender->full_until, 0, memory_order_relaxed);
}

void lender_is_full(struct lender *lender)
{
	atomic_store_explicit(&lender->full_until, clock_now() + FULL_NS, memory_order_relaxed);
}

/* Several callers may need memory, each less or more: the most that was asked for within that time holds. */
void lender_want(struct lender *lender, uint64_t bytes)
{
	uint64_t before = is_wanted(lender) ? atomic_load(&lender->wanted) : 0;

	atomic_store(&lender->wanted, bytes > before ? bytes : before);
	atomic_store(&lender->wanted_until, clock_now() + WANTED_NS);
}

uint64_t lender_wanted(const struct lender *lender)
{
	return is_wanted(lender) ? smaller(atomic_load(&lender->wanted), atomic_load(&lender->lent.used)) : 0;
}
