/*
 * figures.h: what the numbers of a page mean, and what becomes of them between two readings. For tools of one thread.
 *
 * The names, units and texts are those of stats.def. A number that was not measured is STATS_NA, and what is computed of
 * it is NAN; so is a rate before the second reading.
 */
#ifndef TOOLS_FIGURES_H
#define TOOLS_FIGURES_H

#include "tools/common/page.h"

/* ---- names ---- */

enum figures_unit { FIGURES_COUNT, FIGURES_BYTES, FIGURES_US, FIGURES_KIB_MS, FIGURES_NS };

struct figures_name {
	const char *name; /* as in JSON */
	enum figures_unit unit;
	bool gauge; /* what holds now; else it only grows */
	const char *text;
};

extern const struct figures_name figures_counters[STAT_COUNT];
extern const struct figures_name figures_tables[FIGURE_COUNT]; /* by device, backend, rule and site */
extern const struct figures_name figures_histograms[HISTOGRAM_COUNT];
extern const struct figures_name figures_places[PLACE_COUNT];
extern const struct figures_name figures_faults[FAULT_COUNT];
extern const struct figures_name figures_links[LINK_COUNT];

/* "", "bytes", "microseconds", "KiB x ms", "nanoseconds" */
const char *figures_unit_name(enum figures_unit unit);

/* The name for Prometheus, in its base units: "spillway_", table ("" or "rule_", say), the name, unit, "_total". */
#define FIGURES_PROM 96
const char *figures_prom_name(const struct figures_name *name, const char *table, char room[FIGURES_PROM]);
/* What one of the unit is in base units: bytes, seconds, byte seconds. */
double figures_prom_scale(enum figures_unit unit);

/* ---- one page ---- */

uint64_t figures_live(const struct page *page, enum place place);
/* Bytes of all places. */
uint64_t figures_live_all(const struct page *page);
/* Of the process; STATS_NA where nothing counts it. */
uint64_t figures_fault(const struct page *page, enum stats_fault fault);

/* ---- histograms ---- */

uint64_t figures_measured(const _Atomic uint64_t histogram[STATS_BUCKETS]);
/* The value, ns, that so large a share of all does not exceed: the middle of its bucket. NAN of none. */
double figures_percentile(const _Atomic uint64_t histogram[STATS_BUCKETS], double share);
/* The sum of the buckets' middles, ns. */
double figures_sum(const _Atomic uint64_t histogram[STATS_BUCKETS]);

/* ---- readings over time ---- */

#define FIGURES_HISTORY 128

/* The last values of something, NAN where it was not known. */
struct figures_history {
	float value[FIGURES_HISTORY];
	unsigned n; /* ever */
};

/* The value of so many readings ago, 0 being the last; NAN beyond what is kept. */
double figures_ago(const struct figures_history *history, unsigned readings);

enum figures_flow { FLOW_IN, FLOW_OUT, FLOW_FAULTS, FLOW_COUNT };

struct figures_process {
	struct page *page, *before; /* before: NULL at first, or where either is not good */
	double seconds;             /* between the two */
	struct figures_history flow[FLOW_COUNT];
};

/* Devices that are the same for several processes, by their UUID. */
struct figures_device {
	char name[STATS_TEXT];
	unsigned char uuid[16];
	uint64_t number; /* of the first process that has it */
	uint64_t total, live[PLACE_COUNT];
	uint64_t lent; /* by it, in each process to the other devices of that */
	unsigned n_processes;
};

/* One that lends to another, of all processes together. */
struct figures_link {
	size_t device, lender;                          /* in the list of devices */
	uint64_t kind;                                  /* enum stats_link_kind */
	uint64_t figure[LINK_COUNT], moved[LINK_COUNT]; /* moved: since the reading before */
	bool has_before;                                /* there was one */
};

struct figures {
	struct figures_process *process;
	size_t n;
	size_t n_gone; /* of those: killed, so that their file is still there */
	struct figures_device *device;
	size_t n_devices;
	struct figures_link *link; /* those over which something may be, or was, moved */
	size_t n_links;
	struct figures_history flow[FLOW_COUNT]; /* of all together */
	size_t n_refused;
	uint64_t clock, wall; /* of the last reading: CLOCK_MONOTONIC, and since 1970; ns */
	double seconds;       /* since the one before; 0: there was none */
};

struct figures_choice {
	uid_t only; /* (uid_t)-1: all users that may be seen */
	const pid_t *pid;
	size_t n_pids;
	const uint64_t *identity;
	size_t n_identities; /* none of either: all */
};

/* Take a reading. False: no memory. */
bool figures_read(struct figures *figures, const struct figures_choice *choice);
void figures_free(struct figures *figures);

/* A second; NAN where it cannot be told. */
double figures_rate(uint64_t now, uint64_t before, double seconds);
double figures_counter_rate(const struct figures_process *process, enum stats_counter counter);
double figures_fault_rate(const struct figures_process *process, enum stats_fault fault);

/* ---- links (figures_links.c) ---- */

/* "NVLink", "PCIe", "none" or "unknown". */
const char *figures_link_kind(uint64_t kind);
/* Is there anything to say of it? */
bool figures_link_is_known(const struct stats_link *link);
/* A second; NAN before the second reading. Of one process, and of all. */
double figures_link_rate(const struct figures_process *process, unsigned device, unsigned lender,
			 enum stats_link_figure figure);
double figures_links_rate(const struct figures *figures, const struct figures_link *link,
			  enum stats_link_figure figure);
/* Add those of a process, whose i-th device is in the list at at[i]. False: no memory. */
bool figures_links_add(struct figures *figures, const struct figures_process *process, const size_t at[STATS_DEVICES]);

/* "GPU-01234567-...", "MIG-..." */
#define FIGURES_UUID 48
const char *figures_uuid(const unsigned char uuid[16], const char *name, char room[FIGURES_UUID]);

#endif
