/*
 * Deciding is a walk over the packed ranges: two comparisons a rule without a branch between them, so that 1,000
 * rules take about a microsecond. A search tree over the sizes would be faster and stops working with the first
 * condition that is no size.
 *
 * The check for unreachable rules keeps the union of all earlier ranges as a sorted list of pieces with gaps between
 * them; a rule is dead when one piece holds it.
 */
#include "policy/decide.h"

#include <stdlib.h>
#include <string.h>

struct policy_decision policy_decide(const struct policy *policy, const struct policy_request *request)
{
	const struct policy_range *ranges = policy->ranges;
	uint64_t bytes = request->bytes;

	for (size_t i = 0; i < policy->n_rules; i++)
		if ((bytes >= ranges[i].lo) & (bytes <= ranges[i].hi))
			return (struct policy_decision){.use = (enum policy_use)policy->rules[i].use,
							.rule = (int)i,
							.movable = policy->rules[i].movable != 0};
	return (struct policy_decision){.use = (enum policy_use)policy->use, .rule = -1, .movable = true};
}

static bool holds(const struct policy_range *outer, const struct policy_range *inner)
{
	return outer->lo <= inner->lo && inner->hi <= outer->hi;
}

/* Index of the first piece that ends at or after lo - 1, that is, that touches or lies beyond lo. */
static size_t first_touching(const struct policy_range *pieces, size_t n, uint64_t lo)
{
	size_t from = 0, to = n;

	while (from < to) {
		size_t middle = from + (to - from) / 2;

		if (lo > 0 && pieces[middle].hi < lo - 1)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

/* Put a range into the union, joining what it touches. pieces has room for one more. Returns the new number. */
static size_t insert(struct policy_range *pieces, size_t n, struct policy_range range)
{
	size_t at = first_touching(pieces, n, range.lo), end = at;

	while (end < n && (range.hi == UINT64_MAX || pieces[end].lo <= range.hi + 1)) {
		if (pieces[end].lo < range.lo)
			range.lo = pieces[end].lo;
		if (pieces[end].hi > range.hi)
			range.hi = pieces[end].hi;
		end++;
	}
	memmove(pieces + at + 1, pieces + end, (n - end) * sizeof(*pieces));
	pieces[at] = range;
	return n + 1 - (end - at);
}

static void warn(const struct policy *policy, size_t dead, const char *file, struct policy_errors *errors)
{
	const struct policy_rule *rules = policy->rules;
	struct policy_place place = {rules[dead].line, rules[dead].column};
	size_t by = 0;

	while (by < dead && !holds(&policy->ranges[by], &policy->ranges[dead]))
		by++;
	if (by == dead)
		policy_warning_add(errors, file, place,
				   "rule %zu is unreachable: the rules before it together match all that it matches; "
				   "move it up or remove it",
				   dead + 1);
	else if (rules[by].size.lo == 0 && rules[by].size.hi == UINT64_MAX)
		policy_warning_add(
		    errors, file, place,
		    "rule %zu is unreachable: rule %zu (line %u) matches everything; move it up or remove it", dead + 1,
		    by + 1, rules[by].line);
	else
		policy_warning_add(
		    errors, file, place,
		    "rule %zu is unreachable: rule %zu (line %u) matches all that it matches; move it up or "
		    "remove it",
		    dead + 1, by + 1, rules[by].line);
}

void policy_warn_unreachable(const struct policy *policy, const char *file, struct policy_errors *errors)
{
	struct policy_range *pieces = malloc((policy->n_rules + 1) * sizeof(*pieces));
	size_t n = 0;

	if (!pieces)
		return;
	for (size_t i = 0; i < policy->n_rules; i++) {
		size_t at = first_touching(pieces, n, policy->ranges[i].lo);
		bool dead = false;

		/* A touching piece may end just before lo; the next one cannot hold the range then, for there is a gap. */
		if (at < n)
			dead = holds(&pieces[at], &policy->ranges[i]);
		if (dead)
			warn(policy, i, file, errors);
		else
			n = insert(pieces, n, policy->ranges[i]);
	}
	free(pieces);
}
