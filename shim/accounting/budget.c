/*
 * budget.c: taking from, charging and giving back to a budget. See budget.h.
 */
#include "shim/accounting/budget.h"
#include "shim/accounting/quota.h"

static void note_peak(struct budget *budget, uint64_t now)
{
	uint64_t peak = atomic_load_explicit(&budget->peak, memory_order_relaxed);

	while (now > peak && !atomic_compare_exchange_weak(&budget->peak, &peak, now))
		;
}

static bool budget_try_take(struct budget *budget, uint64_t bytes)
{
	uint64_t limit = atomic_load(&budget->limit), used = atomic_load(&budget->used);

	do {
		if (used > limit || bytes > limit - used)
			return false;
	} while (!atomic_compare_exchange_weak(&budget->used, &used, used + bytes));
	/* Who has lowered the limit meanwhile has read what was used after this, or before: then it is undone. */
	if (used + bytes > atomic_load(&budget->limit)) {
		atomic_fetch_sub(&budget->used, bytes);
		return false;
	}
	note_peak(budget, used + bytes);
	return true;
}

/* Takes the shared part first: joining may change the limit. */
bool budget_take(struct budget *budget, uint64_t bytes)
{
	bool shared = atomic_load_explicit(&budget->shared, memory_order_relaxed);

	if (shared && !quota_take(bytes))
		return false;
	if (budget_try_take(budget, bytes))
		return true;
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
