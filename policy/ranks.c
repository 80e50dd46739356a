/*
 * Conditions on the rank of a process. Ranges are kept in order, and ranges that touch are joined; so ranges that are
 * listed twice are found at once, and whether one condition covers another is a simple comparison.
 */
#include "policy/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/text.h"

bool policy_ranks_match(const struct policy_ranks *ranks, int64_t rank)
{
	for (unsigned i = 0; rank >= 0 && i < ranks->n; i++)
		if ((uint64_t)rank >= ranks->range[i].lo && (uint64_t)rank <= ranks->range[i].hi)
			return true;
	return false;
}

bool policy_ranks_cover(const struct policy_ranks *outer, const struct policy_ranks *inner)
{
	unsigned at = 0;

	if (!outer->n)
		return true;
	for (unsigned i = 0; i < inner->n; i++) {
		while (at < outer->n && outer->range[at].hi < inner->range[i].lo)
			at++;
		if (at == outer->n || outer->range[at].lo > inner->range[i].lo ||
		    outer->range[at].hi < inner->range[i].hi)
			return false;
	}
	return inner->n > 0;
}

/* ---- reading ---- */

/* Reads a number, with blanks in front and nothing behind. */
static bool last_number(const char *text, uint64_t *ret_number)
{
	return policy_number_read(text + strspn(text, " "), ret_number, &text) && !*text;
}

bool policy_numbers_read(const char *text, struct policy_range *ret_range)
{
	if (!policy_number_read(text, &ret_range->lo, &text))
		return false;
	ret_range->hi = ret_range->lo;
	if (!*text)
		return true;
	text += strspn(text, " ");
	return strncmp(text, "..", 2) == 0 && last_number(text + 2, &ret_range->hi);
}

/* Reads a comparison, as for sizes. An empty range has lo > hi. */
static bool comparison_read(const char *text, struct policy_range *ret_range)
{
	bool equal = text[1] == '=';
	uint64_t number;

	if ((*text == '=' && !equal) || !last_number(text + 1 + equal, &number))
		return false;
	*ret_range = (struct policy_range){number, number};
	if (*text == '>')
		*ret_range = (struct policy_range){equal ? number : number + 1, UINT64_MAX};
	else if (*text == '<' && !equal && !number)
		*ret_range = (struct policy_range){1, 0};
	else if (*text == '<')
		*ret_range = (struct policy_range){0, equal ? number : number - 1};
	return true;
}

static bool ranks_read(const char *text, struct policy_range *ret_range, char *ret_why)
{
	bool compares = *text && strchr("<>=", *text);

	if (!(compares ? comparison_read(text, ret_range) : policy_numbers_read(text, ret_range)))
		return policy_wrong(ret_why, text, "is no rank; write a number, \"0 .. 3\" or \">= 4\"");
	if (ret_range->lo <= ret_range->hi)
		return true;
	if (compares)
		return policy_wrong(ret_why, text, "matches nothing; write \"== 0\" or remove the rule");
	return policy_wrong(ret_why, text, "matches nothing; write \"%llu .. %llu\"", (unsigned long long)ret_range->hi,
			    (unsigned long long)ret_range->lo);
}

/* Return true if the range touches the one before index at, or the one at index at. */
static bool joins_before(const struct policy_ranks *ranks, unsigned at, struct policy_range range)
{
	return at > 0 && ranks->range[at - 1].hi + 1 == range.lo;
}

static bool joins_behind(const struct policy_ranks *ranks, unsigned at, struct policy_range range)
{
	return at < ranks->n && range.hi + 1 == ranks->range[at].lo;
}

/* Inserts the range before index at, and joins it with those that it touches. */
static void ranks_insert(struct policy_ranks *ranks, unsigned at, struct policy_range range)
{
	bool before = joins_before(ranks, at, range), behind = joins_behind(ranks, at, range);
	struct policy_range *here = ranks->range + at;

	if (before && behind) {
		here[-1].hi = here->hi;
		memmove(here, here + 1, (ranks->n - at - 1) * sizeof(*here));
		ranks->n--;
	} else if (before) {
		here[-1].hi = range.hi;
	} else if (behind) {
		here->lo = range.lo;
	} else {
		memmove(here + 1, here, (ranks->n - at) * sizeof(*here));
		*here = range;
		ranks->n++;
	}
}

bool policy_ranks_add(struct policy_ranks *ranks, const char *text, char *ret_why)
{
	struct policy_range range, *more;
	unsigned at = 0;

	if (!ranks_read(text, &range, ret_why))
		return false;
	while (at < ranks->n && ranks->range[at].hi < range.lo)
		at++;
	if (at < ranks->n && ranks->range[at].lo <= range.hi)
		return policy_wrong(ret_why, text, POLICY_LISTED);
	if (ranks->n == POLICY_MAX_RANKS && !joins_before(ranks, at, range) && !joins_behind(ranks, at, range))
		return policy_wrong(ret_why, NULL, "has more than %d ranks apart from each other; write ranges",
				    POLICY_MAX_RANKS);
	more = realloc(ranks->range, (ranks->n + 1) * sizeof(*more));
	if (!more)
		return policy_wrong(ret_why, NULL, "out of memory while reading; try again");
	ranks->range = more;
	ranks_insert(ranks, at, range);
	return true;
}

void policy_ranks_free(struct policy_ranks *ranks)
{
	free(ranks->range);
	*ranks = (struct policy_ranks){0};
}

char *policy_ranks_format(const struct policy_ranks *ranks, char *buffer, size_t bytes)
{
	size_t used = 0;

	*buffer = '\0';
	for (unsigned i = 0; i < ranks->n && used < bytes; i++) {
		unsigned long long lo = ranks->range[i].lo, hi = ranks->range[i].hi;
		const char *format = hi == UINT64_MAX ? "%s>= %llu" : lo == hi ? "%s%llu" : "%s%llu .. %llu";

		used += (size_t)snprintf(buffer + used, bytes - used, format, i ? " or " : "", lo, hi);
	}
	return buffer;
}
