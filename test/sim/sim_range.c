// SPDX-License-Identifier: Apache-2.0
/*
 * sim_range.c: sorted tables of address ranges. A plain sorted array: the model holds thousands of ranges at most, and
 * looks up far more often than it adds.
 */
#include "sim_internal.h"

size_t sim_range_index(const struct sim_ranges *set, uintptr_t address)
{
	size_t low = 0, high = set->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (set->at[middle]->start + set->at[middle]->bytes <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct sim_range *sim_range_at(const struct sim_ranges *set, uintptr_t address)
{
	size_t i = sim_range_index(set, address);

	return i < set->n && set->at[i]->start <= address ? set->at[i] : NULL;
}

bool sim_range_free(const struct sim_ranges *set, uintptr_t start, size_t bytes)
{
	size_t i = sim_range_index(set, start);

	return i == set->n || set->at[i]->start >= start + bytes;
}

void sim_range_add(struct sim_ranges *set, struct sim_range *range)
{
	size_t i = sim_range_index(set, range->start);

	if (set->n == set->room) {
		set->room = set->room ? 2 * set->room : 64;
		set->at = realloc(set->at, set->room * sizeof(*set->at));
	}
	memmove(&set->at[i + 1], &set->at[i], (set->n - i) * sizeof(*set->at));
	set->at[i] = range;
	set->n++;
}

void sim_range_remove(struct sim_ranges *set, struct sim_range *range)
{
	size_t i = sim_range_index(set, range->start);

	memmove(&set->at[i], &set->at[i + 1], (set->n - i - 1) * sizeof(*set->at));
	set->n--;
}
