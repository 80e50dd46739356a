#include "shim/lender.h"

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t lender_left(const struct lender *lender)
{
	uint64_t beyond = budget_left(&lender->beyond), own = budget_left(lender->own);
	uint64_t both = beyond + own < beyond ? UINT64_MAX : beyond + own;

	return smaller(budget_left(&lender->lent), both);
}

/* As much of it as there is. */
static uint64_t take_beyond(struct lender *lender, uint64_t bytes)
{
	uint64_t part;

	while ((part = smaller(bytes, budget_left(&lender->beyond))) && !budget_take(&lender->beyond, part))
		;
	return part;
}

bool lender_take(struct lender *lender, uint64_t bytes)
{
	if (!budget_take(&lender->lent, bytes))
		return false;
	uint64_t beyond = take_beyond(lender, bytes), rest = bytes - beyond;
	if (!rest || budget_take(lender->own, rest)) {
		atomic_fetch_add(&lender->of_own, rest);
		return true;
	}
	budget_give(&lender->beyond, beyond);
	budget_give(&lender->lent, bytes);
	return false;
}

void lender_give(struct lender *lender, uint64_t bytes)
{
	uint64_t of_own = atomic_load(&lender->of_own), rest;

	do
		rest = smaller(bytes, of_own);
	while (!atomic_compare_exchange_weak(&lender->of_own, &of_own, of_own - rest));
	budget_give(lender->own, rest);
	budget_give(&lender->beyond, bytes - rest);
	budget_give(&lender->lent, bytes);
}
