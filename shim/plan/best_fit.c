/*
 * Best fit by a search of all free ranges: a job has a few hundred of them.
 */
#include "shim/plan/best_fit.h"
#include "shim/base/array.h"

#include <stdlib.h>
#include <string.h>

void best_fit_fini(struct best_fit *fit)
{
	free(fit->range);
	*fit = (struct best_fit){0};
}

void best_fit_clear(struct best_fit *fit)
{
	fit->n = 0;
}

/* Returns the index of the first range that begins after this byte. */
static uint32_t first_after(const struct best_fit *fit, uint64_t at)
{
	uint32_t low = 0, high = fit->n;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (fit->range[middle].begin > at)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static void best_fit_remove(struct best_fit *fit, uint32_t index)
{
	fit->n--;
	memmove(&fit->range[index], &fit->range[index + 1], (fit->n - index) * sizeof(*fit->range));
}

bool best_fit_give(struct best_fit *fit, uint64_t begin, uint64_t end, uint32_t block)
{
	uint32_t index = first_after(fit, begin);
	struct best_fit_range *before = index ? &fit->range[index - 1] : NULL;
	struct best_fit_range *after = index < fit->n ? &fit->range[index] : NULL;
	bool joins_after = after && after->block == block && after->begin == end;

	if (before && before->block == block && before->end == begin) {
		before->end = joins_after ? after->end : end;
		if (joins_after)
			best_fit_remove(fit, index);
		return true;
	}
	if (joins_after) {
		after->begin = begin;
		return true;
	}
	if (!ARRAY_ROOM(fit->range, fit->n, fit->room, BEST_FIT_MOST))
		return false;
	memmove(&fit->range[index + 1], &fit->range[index], (fit->n - index) * sizeof(*fit->range));
	fit->range[index] = (struct best_fit_range){begin, end, block};
	fit->n++;
	return true;
}

bool best_fit_take(struct best_fit *fit, uint64_t bytes, struct best_fit_range *ret)
{
	uint64_t least = UINT64_MAX;
	uint32_t best = 0;

	for (uint32_t i = 0; i < fit->n; i++) {
		uint64_t size = fit->range[i].end - fit->range[i].begin;

		if (size >= bytes && size < least) {
			least = size;
			best = i;
		}
	}
	if (least == UINT64_MAX)
		return false;
	struct best_fit_range *range = &fit->range[best];
	*ret = *range;
	if (least - bytes > BEST_FIT_SPLIT) {
		ret->end = range->begin + bytes;
		range->begin += bytes;
	} else {
		best_fit_remove(fit, best);
	}
	return true;
}
