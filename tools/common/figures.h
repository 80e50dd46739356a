// SPDX-License-Identifier: Apache-2.0
/*
 * figures.h: the meaning of the numbers in a stats page, and the rates between two readings. Only for tools with one
 * thread.
 *
 * The names, units and texts are those of stats.def. A number that was not measured is STATS_NA, and a value computed
 * from it is NAN; a rate is NAN before the second reading.
 */
#ifndef TOOLS_FIGURES_H
#define TOOLS_FIGURES_H

#include "tools/common/page.h"
#include "tools/common/process.h"

/* ---- names ---- */

enum figures_unit { FIGURES_COUNT, FIGURES_BYTES, FIGURES_US, FIGURES_KIB_MS, FIGURES_NS };

struct figures_name {
	const char *name; /* as in JSON */
	enum figures_unit unit;
	bool gauge; /* a current value; otherwise the number only grows */
	const char *text;
	const char *prom; /* its name for Prometheus, before the unit; NULL: likewise */
	size_t at;        /* of GROUP_PROCESS and GROUP_DEVICE: where it is in the page, or in a device of it */
};

extern const struct figures_name figures_counters[STAT_COUNT];
extern const struct figures_name figures_tables[FIGURE_COUNT]; /* of devices, backends, rules and sites */
extern const struct figures_name figures_histograms[HISTOGRAM_COUNT];
extern const struct figures_name figures_places[PLACE_COUNT];
extern const struct figures_name figures_faults[FAULT_COUNT];
extern const struct figures_name figures_links[LINK_COUNT];

/* By enum figures_unit. scale: the value of one in base units: bytes, seconds, byte seconds. */
struct figures_unit_about {
	const char *name; /* "", "bytes", "microseconds", "KiB x ms" or "nanoseconds" */
	const char *tail, *base_tail;
	double scale;
};
extern const struct figures_unit_about figures_units[];

/*
 * Returns the Prometheus name, in base units: "spillway_", table (such as "" or "rule_"), the name, the unit,
 * "_total" (not for gauges or nanoseconds).
 */
#define FIGURES_PROM 96
const char *figures_prom_name(const struct figures_name *name, const char *table, char room[FIGURES_PROM]);

/* ---- one page ---- */

/*
 * The groups of numbers of a page, in the order in which they are shown. Each is a table of rows with the same names.
 */
enum figures_group {
	GROUP_PROCESS, /* said once of the process */
	GROUP_DEVICE,  /* said once of a device */
	GROUP_PLACES,
	GROUP_DEVICE_PLACES, /* a row for each device and place */
	GROUP_COUNTERS,
	GROUP_FAULTS, /* of the process; with several devices, some belong to none of them */
	GROUP_DEVICE_FAULTS,
	GROUP_LINKS, /* a row for each device that borrows and one that lends */
	GROUP_DEVICES,
	GROUP_BACKENDS,
	GROUP_RULES,
	GROUP_SITES,
	GROUPS,
};

struct figures_group_about {
	const struct figures_name *name;
	unsigned n, n_rows;
	const char *prom; /* what stands before its names for Prometheus */
};
extern const struct figures_group_about figures_groups[GROUPS];

/* Returns a number of a row; STATS_NA if it was not measured, or the page has no such row. */
uint64_t figures_get(const struct page *page, enum figures_group group, unsigned row, unsigned i);

uint64_t figures_live(const struct page *page, enum place place);

/* ---- histograms ---- */

uint64_t figures_measured(const _Atomic uint64_t histogram[STATS_BUCKETS]);
/*
 * Returns the value, in ns, that this share of all measurements does not exceed (the middle of its bucket). Returns
 * NAN for an empty histogram.
 */
double figures_percentile(const _Atomic uint64_t histogram[STATS_BUCKETS], double share);
/* Returns the sum of all measurements, in ns, each taken as the middle of its bucket. */
double figures_sum(const _Atomic uint64_t histogram[STATS_BUCKETS]);

/* ---- readings over time ---- */

#define FIGURES_HISTORY 128

/* The last values of a quantity; NAN where it was not known. */
struct figures_history {
	float value[FIGURES_HISTORY];
	unsigned n; /* number of values added, including those no longer kept */
};

/* Returns the value of `readings` readings ago, 0 being the last; NAN beyond what is kept. */
double figures_ago(const struct figures_history *history, unsigned readings);

enum figures_flow { FLOW_IN, FLOW_OUT, FLOW_FAULTS, FLOW_COUNT };

struct figures_process {
	struct page *page, *before; /* before: NULL after the first reading, and where either page is not good */
	double seconds;             /* between the two readings */
	struct figures_history flow[FLOW_COUNT];
};

/* One device. A device that several processes use is recognised by its UUID and appears once. */
struct figures_device {
	char name[STATS_TEXT];
	unsigned char uuid[16];
	uint64_t number; /* in the first process that has the device */
	uint64_t total, live[PLACE_COUNT];
	uint64_t lent; /* by this device, to other devices of the same process; summed over processes */
	unsigned n_processes;
};

/* A link from a device that lends to one that borrows, summed over all processes. */
struct figures_link {
	size_t device, lender;                          /* indices in the list of devices */
	uint64_t kind;                                  /* enum stats_link_kind */
	uint64_t figure[LINK_COUNT], moved[LINK_COUNT]; /* moved: since the previous reading */
	bool has_before;                                /* a previous reading exists */
};

struct figures {
	struct figures_process *process;
	size_t n;
	size_t n_gone; /* of those: killed processes, whose file still exists */
	struct figures_device *device;
	size_t n_devices;
	struct figures_link *link; /* links over which a move is possible or has happened */
	size_t n_links;
	struct figures_history flow[FLOW_COUNT]; /* all processes together */
	size_t n_refused;
	uint64_t clock, wall; /* time of the last reading: CLOCK_MONOTONIC, and since 1970; ns */
	double seconds;       /* since the previous reading; 0 if there was none */
};

struct figures_choice {
	uid_t only; /* (uid_t)-1: all users that are visible */
	const struct process_name *name;
	size_t n; /* 0: all processes */
};

/* Returns whether the page is of the process of that name. */
bool figures_is_named(const struct page *page, const struct process_name *name);
/* Takes a reading. Returns false if memory runs out. */
bool figures_read(struct figures *figures, const struct figures_choice *choice);
void figures_free(struct figures *figures);

/* Returns the rate per second; NAN where it is not known. */
double figures_rate(uint64_t now, uint64_t before, double seconds);
double figures_get_rate(const struct figures_process *process, enum figures_group group, unsigned row, unsigned i);

/* ---- links between devices that lend memory to each other ---- */

/* Returns "NVLink", "PCIe", "none" or "unknown". */
const char *figures_link_kind(uint64_t kind);
/* Returns whether anything is known about the link. */
bool figures_link_is_known(const struct stats_link *link);
/* Returns the rate per second, of all processes; NAN before the second reading. */
double figures_links_rate(const struct figures *figures, const struct figures_link *link,
			  enum stats_link_figure figure);
/* "GPU-01234567-..." or "MIG-..." */
#define FIGURES_UUID 48
const char *figures_uuid(const unsigned char uuid[16], const char *name, char room[FIGURES_UUID]);
#define figures_uuid_text(uuid, name) figures_uuid(uuid, name, (char[FIGURES_UUID]){0})

#endif
