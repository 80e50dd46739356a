/*
 * digest.h: what a trace (trace_read.h) says, worked out: totals, tables, figures over time, what it cost, what to change.
 * Pure: no input, no output. Every output of `spillway report` shows a digest and nothing else.
 *
 * A digest points into its trace, which must live as long. For tools of one thread.
 *
 * Times are ns since the trace's first event unless said otherwise. What a trace does not tell is said by a flag beside
 * the figure (known, sampled), never by 0.
 */
#ifndef TOOLS_DIGEST_H
#define TOOLS_DIGEST_H

#include "tools/trace/trace_read.h"

enum {
	DIGEST_DEVICES = 64, /* events of devices with higher numbers are counted, and not looked at */
	DIGEST_BINS = 800,   /* of the figures over time: as many as a wide screen can show */
	DIGEST_ROWS = 96,    /* of the map of addresses ... */
	DIGEST_COLUMNS = 240,
	DIGEST_COSTS = 4,
	DIGEST_ADVICE = 3,
	DIGEST_CURVE = 13, /* budgets from 100 % down to 40 %, 5 % apart */
	DIGEST_TEXT = 320,
};
#define DIGEST_HOST TRACE_NONE /* where a device's number may stand */

/* Sums over some allocations; a line of a table. */
struct digest_group {
	uint64_t number;               /* what it is: see enum digest_by */
	uint64_t allocations, refused; /* refused: by rule and by site alone */
	uint64_t bytes, peak, live;    /* asked for in all; alive at once at most; alive at the end */
	uint64_t on_host;              /* placed there when they were made */
	uint64_t moves_in, moves_out, bytes_in, bytes_out, refetches;
	uint64_t submits, faults; /* submissions that named them; single faults, where those were recorded */
	uint64_t wait_ns;         /* of submissions, for them to arrive */
};

/* What lines of a table are: number is ... */
enum digest_by {
	DIGEST_BY_RULE,  /* the rule's plus 1; 0: none */
	DIGEST_BY_SITE,  /* the site's; 0: not known */
	DIGEST_BY_SIZE,  /* index of a class */
	DIGEST_BY_LIFE,  /* the same */
	DIGEST_BY_MOVES, /* the same */
	DIGEST_TABLES,   /* must be last */
};

/* Only groups in which something happened, the costliest first; classes in their own order. */
struct digest_table {
	struct digest_group *groups;
	size_t n;
};

/* One piece that moved, or was to. */
struct digest_move {
	uint64_t begin, end; /* end: UINT64_MAX where the trace has none */
	uint64_t address, bytes;
	uint32_t device, why;
	uint32_t block; /* the first that it is of; TRACE_NONE */
	/* The other end, and on the way out another device that it leaves: DIGEST_HOST; DIGEST_DEVICES: one beyond. */
	uint32_t lender, left;
	bool to_host, stayed; /* to_host: on the way out, wherever that leads */
};

/* What arrived between a device and the host, or another device that lends to it. */
struct digest_link {
	uint32_t device, lender; /* lender: DIGEST_HOST, or a device */
	uint64_t moves_in, moves_out, bytes_in, bytes_out;
	uint64_t in_ns, out_ns; /* in which at least one of them was on its way */
};

struct digest_step {
	uint64_t time, ns; /* ns: up to the next; 0: the last */
	uint64_t submissions;
	uint32_t device;
};

/*
 * Bytes by place: at the moment within the bin at which there were most. The rest: sums over the bin. What other devices
 * lend is in host, bytes_in and bytes_out, too; so it is in all of the digest.
 */
struct digest_bin {
	uint64_t device, host, managed, system, driver, peers, lent, budget; /* lent: by this device, to others */
	uint64_t bytes_in, bytes_out, gap_ns;
	uint64_t wait_ns, waiting_ns; /* of submissions: summed over threads; time in which at least one waited */
	uint64_t peer_in, peer_out;   /* of bytes_in and bytes_out: from and to other devices */
	uint64_t faults_gpu, faults_cpu, fault_in, fault_out;
	uint64_t submits;
};

/*
 * Where blocks were: rows of addresses, columns of time. Addresses that no block ever had are left out. used: how much of
 * the cell was allocated; host: how much of that lay on the host; both of 255.
 */
struct digest_map {
	uint32_t rows, columns; /* 0: there was no block */
	uint64_t row_bytes, column_ns;
	uint8_t *used, *host;
	uint64_t address[DIGEST_ROWS]; /* at which a row begins */
	uint32_t backend[DIGEST_ROWS]; /* of the last block that was made in it */
};

struct digest_device {
	bool seen;       /* some event was about it */
	bool sampled;    /* bytes by place were; else they come from allocations */
	char name[64];   /* "": not known */
	uint64_t total;  /* the memory it has; 0: not known */
	uint64_t budget; /* the last; 0: not known */
	uint64_t device, host, managed, system, driver,
	    need;                   /* bytes, each at its most; need: of live allocations together, its peak */
	uint64_t host_alone, peers; /* of host: what was on the host itself, and on other devices; each at its most */
	uint64_t lent;              /* by it to others, at most; 0 also where the trace has no samples */
	uint64_t over_ns;           /* time in which some of it was on the host */
	uint64_t moves_in, moves_out, bytes_in, bytes_out;    /* that arrived */
	uint64_t peer_in, peer_out;                           /* of these bytes: from and to other devices */
	uint64_t gaps, gaps_given_up, gap_ns, waits, wait_ns; /* wait_ns: summed over threads */
	uint64_t waiting_ns;                                  /* time in which at least one of them waited */
	bool faults_known;
	uint64_t faults_gpu, faults_cpu, fault_in, fault_out;
	uint64_t n_steps, step_median, step_least, step_most; /* of whole ones; 0: there is none */
	uint64_t steps_begun;                                 /* with the last one, whose end is not known; 0: none */
	struct digest_bin *bins;                              /* digest.n_bins */
	struct digest_map map;
};

struct digest_function {
	uint32_t number;
	uint64_t submits, waits, wait_ns;
};

enum digest_cost_kind {
	DIGEST_WAITING,   /* submissions waited for memory on its way */
	DIGEST_GAPS,      /* the GPU was stopped */
	DIGEST_SUSPENDED, /* by request */
	DIGEST_ASKING,    /* allocations took their time */
	DIGEST_FAULTS,    /* of managed and system memory: how long they took nobody tells */
	DIGEST_REACHING,  /* kernels named memory on the host: an estimate, or not known */
	DIGEST_COST_KINDS /* must be last */
};

struct digest_cost {
	enum digest_cost_kind kind;
	bool known;    /* ns is */
	bool estimate; /* and was not measured */
	uint64_t ns;
	char evidence[DIGEST_TEXT];
};

/* The least that has to be brought in with so much device memory, and what goes out for it. */
struct digest_point {
	unsigned percent; /* of the peak */
	uint64_t budget, bytes_in, bytes_out;
	uint64_t over; /* submissions that name more than fits */
};

struct digest {
	const struct trace *trace;
	uint64_t run_ns;
	uint64_t peak; /* the most that was live at once, as asked for (trace_peaks()); of one device: its need */
	struct digest_device devices[DIGEST_DEVICES];
	uint64_t n_strangers; /* events of devices beyond */
	uint64_t n_events[TRACE_KINDS];
	uint64_t n_bins, bin_ns;
	struct digest_group total;
	struct digest_table tables[DIGEST_TABLES];
	uint64_t *block_wait_ns; /* by block */
	struct digest_move *moves;
	size_t n_moves;
	uint64_t moves_stayed, moves_open;
	struct digest_link *links; /* by device, the host's first */
	size_t n_links;
	uint64_t move_why[2][TRACE_WHYS]; /* bytes that arrived: in, out */
	struct digest_step *steps;
	size_t n_steps;
	struct digest_function *functions; /* those that waited or were submitted, the costliest first */
	size_t n_functions;
	/* Wall time in which at least one ... was under way */
	uint64_t wait_ns, gap_ns, suspended_ns;
	uint64_t link_ns;     /* at least one move was; summed over devices, as link_us of stats.def */
	uint64_t ask_ns;      /* summed over threads */
	uint64_t ask_host_ns; /* of that: for allocations that were placed on the host, at least in part */
	uint64_t n_ask_host;
	uint64_t lost_ns; /* at least one of waits, gaps and suspension */
	struct digest_cost costs[DIGEST_COSTS];
	unsigned n_costs;
	char advice[DIGEST_ADVICE][DIGEST_TEXT];
	unsigned n_advice;
	char verdict[DIGEST_TEXT];
	uint32_t *idle_rules; /* that never matched; numbers as in DIGEST_BY_RULE */
	size_t n_idle_rules;
	struct digest_point curve[DIGEST_CURVE];
	unsigned n_curve; /* 0: no submission names memory */
	/* What it is computed on: the last so many submissions, and the steps that began in their time; 0: not known. */
	uint64_t curve_submits, curve_ns, curve_steps;
};

/* Shows how far the work is; part of whole. May be NULL. */
typedef void digest_progress(const char *what, uint64_t part, uint64_t whole);

/* 0, or -ENOMEM: then there is nothing to free. */
int digest_make(const struct trace *trace, digest_progress *progress, struct digest *ret_digest);
void digest_free(struct digest *digest);

/* What a line of a table is called; into room where it has to be made. */
const char *digest_group_name(const struct digest *digest, enum digest_by by, uint64_t number, char *room,
			      size_t bytes);
const char *digest_by_name(enum digest_by by);
const char *digest_cost_name(enum digest_cost_kind kind);
const char *digest_why_name(unsigned why);
/* Where what was away lay, of a run and of a device: "on the host", on other GPUs, or on the host or on other GPUs. */
const char *digest_away(const struct digest *digest);
const char *digest_device_away(const struct digest_device *device);
/* Where an allocation was made: heap, managed, ... */
const char *digest_backend_name(uint32_t backend);
/* The group of a block in a table, as its number. */
uint64_t digest_group_of(const struct digest *digest, enum digest_by by, const struct trace_block *block);

#endif
