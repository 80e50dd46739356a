/*
 * Names, units and arithmetic of the figures of one page. figures_watch.c compares readings over time.
 */
#include "tools/common/figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const struct figures_name figures_counters[STAT_COUNT] = {
#define STAT(name, unit, text) [STAT_##name] = {#name, FIGURES_##unit, false, text},
#include "shim/stats/stats.def"
};

enum { KIND_COUNTER = false, KIND_GAUGE = true };
const struct figures_name figures_tables[FIGURE_COUNT] = {
#define FIGURE(name, kind, unit, text) [FIGURE_##name] = {#name, FIGURES_##unit, KIND_##kind, text},
#include "shim/stats/stats.def"
};

const struct figures_name figures_histograms[HISTOGRAM_COUNT] = {
#define HISTOGRAM(name, text) [HISTOGRAM_##name] = {#name, FIGURES_NS, false, text},
#include "shim/stats/stats.def"
};

const struct figures_name figures_places[PLACE_COUNT] = {
#define PLACE(NAME, name, text) [PLACE_##NAME] = {#name, FIGURES_BYTES, true, text},
#include "shim/stats/stats.def"
};

const struct figures_name figures_faults[FAULT_COUNT] = {
#define FAULT(NAME, name, unit, text) [FAULT_##NAME] = {#name, FIGURES_##unit, false, text},
#include "shim/stats/stats.def"
};

const struct figures_name figures_links[LINK_COUNT] = {
#define LINK(NAME, name, unit, text) [LINK_##NAME] = {#name, FIGURES_##unit, false, text},
#include "shim/stats/stats.def"
};

/* The suffix of a name in its own unit and in the base unit, and the value of one unit in base units. */
static const struct {
	const char *name, *tail, *base_tail;
	double scale;
} units[] = {
    [FIGURES_COUNT] = {"", "", "", 1},
    [FIGURES_BYTES] = {"bytes", "_bytes", "_bytes", 1},
    [FIGURES_US] = {"microseconds", "_us", "_seconds", 1e-6},
    [FIGURES_KIB_MS] = {"KiB x ms", "", "_byte_seconds", 1.024},
    [FIGURES_NS] = {"nanoseconds", "_ns", "_duration_seconds", 1e-9}, /* a suffix that no counter of seconds has */
};

const char *figures_unit_name(enum figures_unit unit)
{
	return units[unit].name;
}

double figures_prom_scale(enum figures_unit unit)
{
	return units[unit].scale;
}

const char *figures_prom_name(const struct figures_name *name, const char *table, char room[FIGURES_PROM])
{
	const char *tail = units[name->unit].tail;
	size_t length = strlen(name->name), tail_length = strlen(tail);

	if (length > tail_length && !strcmp(name->name + length - tail_length, tail))
		length -= tail_length;
	snprintf(room, FIGURES_PROM, "spillway_%s%.*s%s%s", table, (int)length, name->name, units[name->unit].base_tail,
		 name->gauge || name->unit == FIGURES_NS ? "" : "_total");
	return room;
}

/* ---- one page ---- */

uint64_t figures_live(const struct page *page, enum place place)
{
	return page->copy ? page->copy->live[place] : STATS_NA;
}

uint64_t figures_live_all(const struct page *page)
{
	uint64_t sum = 0;

	for (unsigned i = 0; page->copy && i < PLACE_COUNT; i++)
		if (i != PLACE_UNUSED)
			sum += page->copy->live[i];
	return sum;
}

uint64_t figures_fault(const struct page *page, enum stats_fault fault)
{
	return page->copy ? page->copy->fault[fault] : STATS_NA;
}

double figures_rate(uint64_t now, uint64_t before, double seconds)
{
	if (now == STATS_NA || before == STATS_NA || !(seconds > 0))
		return NAN;
	/* Sums that grow with time are exact only to a rounding, and may seem to decrease. */
	return now > before ? (double)(now - before) / seconds : 0;
}

/* ---- histograms ---- */

static double figures_middle(unsigned bucket)
{
	return ((double)stats_bucket_least(bucket) + (double)stats_bucket_least(bucket + 1) - 1) / 2;
}

uint64_t figures_measured(const _Atomic uint64_t histogram[STATS_BUCKETS])
{
	uint64_t n = 0;

	for (unsigned i = 0; i < STATS_BUCKETS; i++)
		n += histogram[i];
	return n;
}

double figures_percentile(const _Atomic uint64_t histogram[STATS_BUCKETS], double share)
{
	double wanted = share * (double)figures_measured(histogram), n = 0;

	for (unsigned i = 0; i < STATS_BUCKETS; i++) {
		n += (double)histogram[i];
		if (histogram[i] && n >= wanted)
			return figures_middle(i);
	}
	return NAN;
}

double figures_sum(const _Atomic uint64_t histogram[STATS_BUCKETS])
{
	double sum = 0;

	for (unsigned i = 0; i < STATS_BUCKETS; i++)
		if (histogram[i])
			sum += (double)histogram[i] * figures_middle(i);
	return sum;
}

const char *figures_uuid(const unsigned char uuid[16], const char *name, char room[FIGURES_UUID])
{
	/* A MIG instance has an id of its own, which all tools write with the prefix MIG. */
	int n = snprintf(room, FIGURES_UUID, "%s-", strstr(name, " MIG ") ? "MIG" : "GPU");

	for (unsigned i = 0; i < 16; i++)
		n += snprintf(room + n, FIGURES_UUID - (size_t)n, "%s%02x",
			      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
	return room;
}
