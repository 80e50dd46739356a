/*
 * What to change about a run.
 */
#include "shim/stats/advice.h"

#include <string.h>

/* Bytes that a default budget leaves free on the device (device.c), for contexts, libraries and arrays. */
#define DEVICE_RESERVE ((uint64_t)1 << 30)
/* Of a device whose memory is not known: up to this multiple of the budget there may be room for all. */
#define LITTLE_OVER 1.1

static bool has_room(const struct advice_figures *figures)
{
	if (!figures->total)
		return figures->need > figures->budget &&
		       (double)figures->need <= (double)figures->budget * LITTLE_OVER;
	return figures->total > DEVICE_RESERVE && figures->need < figures->total - DEVICE_RESERVE;
}

unsigned advice_find(const struct advice_figures *figures, enum advice ret[ADVICES])
{
	bool cheap = figures->moved && figures->lost < ADVICE_WORTH_IT * figures->run;
	unsigned n = 0;

	if (figures->vmm > figures->need && (figures->over || figures->refused))
		ret[n++] = ADVICE_VMM;
	if (figures->refused && (!figures->over || figures->by_total))
		ret[n++] = ADVICE_REFUSED;
	if (!figures->over || cheap) {
		ret[n++] = figures->over ? ADVICE_CHEAP : ADVICE_NOTHING;
		return n;
	}
	if (has_room(figures))
		ret[n++] = ADVICE_BUDGET;
	if (figures->dead && figures->need > figures->budget && figures->need - figures->dead <= figures->budget)
		ret[n++] = ADVICE_CACHE;
	if (!figures->moved && !strcmp(figures->mode, "static"))
		ret[n++] = ADVICE_MOVE;
	if (!strcmp(figures->mode, "exact") && figures->stopped > ADVICE_WORTH_IT * figures->run)
		ret[n++] = ADVICE_FAST;
	if (2 * figures->worst_in > figures->moved_in && (figures->worst_by_rule || figures->worst_born))
		ret[n++] = figures->worst_by_rule ? ADVICE_SITE : ADVICE_LINE;
	if (!n)
		ret[n++] = figures->refused ? ADVICE_REFUSED : ADVICE_UNKNOWN;
	return n;
}
