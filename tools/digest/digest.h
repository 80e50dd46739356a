// SPDX-License-Identifier: Apache-2.0
/*
 * digest.h: computes what a trace (trace_read.h) shows: totals, tables, figures over time, costs and advice. It reads
 * and writes no files. Every output of `spillway report` shows only a digest.
 *
 * A digest points into its trace, which must live as long. Only for tools with one thread.
 *
 * Times are ns since the trace's first event unless stated otherwise. A value that the trace does not contain is
 * marked by a flag beside the figure (known, sampled), and never by 0.
 */
#ifndef TOOLS_DIGEST_H
#define TOOLS_DIGEST_H

#include "tools/trace/trace_read.h"

enum {
	DIGEST_DEVICES = 64, /* events of devices with higher numbers are counted and otherwise ignored */
	DIGEST_BINS = 800,   /* of the figures over time: as many as a wide screen can show */
	DIGEST_COSTS = 4,
	DIGEST_ADVICE = 3,
	DIGEST_MOMENTS = 50000, /* of what is alive, on each device; up to about twice as many are kept */
	DIGEST_CURVE = 13,      /* budgets from 100 % down to 40 %, 5 % apart */
	DIGEST_TEXT = 320,
};
#define DIGEST_HOST TRACE_NONE /* may stand in place of a device's number */

/* Sums over a group of allocations; a line of a table. */
struct digest_group {
	uint64_t number;               /* key of the group: see enum digest_by */
	uint64_t allocations, refused; /* refused: in every table and in total */
	uint64_t bytes, peak, live;    /* sum of requested bytes; maximum live at once; live at the end */
	uint64_t on_host;              /* placed on the host when they were made */
	uint64_t moves_in, moves_out, bytes_in, bytes_out, refetches;
	uint64_t submits, faults; /* submissions that named them; single faults, where those were recorded */
	uint64_t wait_ns;         /* waits of submissions for their pieces */
	/* The program's own managed memory: allocations that a GPU used; what the CPU touched of them after that. */
	uint64_t managed_used, managed_touches, managed_back; /* managed_back: bytes */
	uint64_t tensors,
	    tensor_bytes; /* only of all, by site and by calls: born there, as an allocator reports; their bytes */
};

/* The keys of tables, with the meaning of digest_group.number. */
enum digest_by {
	DIGEST_BY_RULE,  /* the rule's number plus 1; 0: no rule */
	DIGEST_BY_SITE,  /* the number of the first site of that name; 0: not known */
	DIGEST_BY_CALLS, /* the site's number: of one name there is one for each chain of callers; 0: not known */
	DIGEST_TABLES,   /* must be last */
};

/*
 * By site and by calls, what of a move was alive counts for the lines at which its tensors were born, as far as the
 * trace has them, and the waits for it; the rest counts for the allocation's site. Contains only groups in which
 * something happened, the costliest first.
 */
struct digest_table {
	struct digest_group *groups;
	size_t n;
};

/* One move of a piece, or an attempt. */
struct digest_move {
	uint64_t begin, end; /* end: UINT64_MAX if the trace does not contain it */
	uint64_t address, bytes;
	uint32_t device, why;
	uint32_t block; /* the first block in the piece, or TRACE_NONE */
	/*
	 * lender: the other end; left: for an eviction, another device that the piece leaves. DIGEST_HOST, a device,
	 * or DIGEST_DEVICES for one beyond the limit.
	 */
	uint32_t lender, left;
	uint64_t uncopied;    /* bytes that held no contents; 0 also if the trace does not say */
	uint64_t wait_ns;     /* its part of the waits of submissions */
	bool to_host, stayed; /* to_host: an eviction, to any place */
};

/* The part of a completed move in which tensors were alive that were born at this site. */
struct digest_share {
	uint32_t move, site;
	uint64_t bytes;
};

/* Moves that completed between a device and the host, or another device that lends to it. */
struct digest_link {
	uint32_t device, lender; /* lender: DIGEST_HOST, or a device */
	uint64_t moves_in, moves_out, bytes_in, bytes_out;
	uint64_t in_ns, out_ns; /* time in which at least one move was under way */
};

struct digest_step {
	uint64_t time, ns; /* ns: the distance to the next step; 0: the last one */
	uint64_t submissions;
	uint32_t device;
};

/*
 * One bin of the figures over time. Bytes by place are those at the moment within the bin with the highest total; the
 * other figures are sums over the bin. Memory that other devices lend is also contained in host, bytes_in and
 * bytes_out, here and everywhere else in the digest.
 */
struct digest_bin {
	uint64_t device, host, managed, system, driver, peers, lent, budget; /* lent: by this device, to others */
	uint64_t bytes_in, bytes_out, gap_ns;
	uint64_t wait_ns, waiting_ns; /* of submissions: summed over threads; time in which at least one waited */
	uint64_t lost_ns;             /* time of at least one wait or quiesce: less than their sum where they overlap */
	uint64_t peer_in, peer_out;   /* the part of bytes_in and bytes_out that came from or went to other devices */
	uint64_t faults_gpu, faults_cpu, fault_in, fault_out;
	uint64_t submits;
	/* Of an allocator that reports what is alive, at the moment within the bin at which most was. */
	uint64_t cache, cache_alive, cache_dead;
};

/*
 * What an allocator of the program keeps on a device, what of it is alive, and what has died. What nothing was ever
 * born in is neither.
 */
struct digest_alive {
	uint64_t time;
	uint32_t device;
	uint64_t kept, alive, dead;
};

struct digest_device {
	bool seen;       /* at least one event concerns it */
	bool sampled;    /* bytes by place were sampled; otherwise they are computed from allocations */
	char name[64];   /* "" if not known */
	uint64_t total;  /* its memory; 0: not known */
	uint64_t budget; /* the last one; 0: not known */
	uint64_t device, host, managed, system, driver,
	    need;                   /* bytes, each at its maximum; need: the peak of live allocations */
	uint64_t host_alone, peers; /* parts of host, each at its maximum: on the host itself, and on other devices */
	uint64_t lent;              /* by this device to others, maximum; 0 also if the trace has no samples */
	uint64_t over_ns;           /* time in which a part was on the host */
	uint64_t moves_in, moves_out, bytes_in, bytes_out; /* completed moves */
	uint64_t peer_in, peer_out;              /* the part of these bytes that came from or went to other devices */
	uint64_t uncopied_in, uncopied_out;      /* the part of them that was not copied, because it held no contents */
	bool tells_alive;                        /* an allocator reports what is alive */
	uint64_t cache, cache_alive, cache_dead; /* what it keeps, each at its maximum */
	uint64_t gaps, gaps_given_up, gap_ns, waits, wait_ns; /* wait_ns: summed over threads */
	uint64_t waiting_ns;                                  /* time in which at least one submission waited */
	uint64_t lost_ns;                                     /* of at least one wait or quiesce */
	bool faults_known;
	uint64_t faults_gpu, faults_cpu, fault_in, fault_out;
	uint64_t n_steps, step_median, step_least, step_most; /* of complete steps; 0: there is none */
	uint64_t steps_begun;    /* including the last step, whose end is not known; 0: none */
	struct digest_bin *bins; /* digest.n_bins */
};

struct digest_function {
	uint32_t number;
	uint64_t submits, waits, wait_ns;
};

enum digest_cost_kind {
	/* Those up to DIGEST_ASKING are measured. */
	DIGEST_WAITING,   /* submissions waited for pieces to be fetched */
	DIGEST_GAPS,      /* the GPU was quiesced */
	DIGEST_SUSPENDED, /* suspended on request */
	DIGEST_ASKING,    /* allocations took time */
	DIGEST_FAULTS,    /* faults of managed and system memory; their duration is not known */
	DIGEST_REACHING,  /* kernels named memory on the host: their bytes are estimated, the time is not known */
	DIGEST_COST_KINDS /* must be last */
};

struct digest_cost {
	enum digest_cost_kind kind;
	bool known; /* ns is known */
	uint64_t ns;
	char evidence[DIGEST_TEXT];
};

/* What Belady's rule fetches with this much device memory, and what it evicts: a reference and no bound. */
struct digest_point {
	unsigned percent; /* of the peak */
	uint64_t budget, bytes_in, bytes_out;
	uint64_t over; /* submissions that name more than fits */
};

struct digest {
	const struct trace *trace;
	uint64_t run_ns;
	uint64_t peak; /* maximum of bytes live at once, as requested (trace_peaks()); of one device: its need */
	struct digest_device devices[DIGEST_DEVICES];
	uint64_t n_strangers; /* events of devices beyond the limit */
	uint64_t events_lost; /* as `lost` of the last `faults` */
	uint64_t n_events[TRACE_KINDS];
	uint64_t n_bins, bin_ns;
	struct digest_group total;
	/*
	 * Only bytes_in, bytes_out and wait_ns: what total lacks of the sums over devices. It is of no allocation: room
	 * in pieces that moved, and waits for pieces that no move explains.
	 */
	struct digest_group rest;
	struct digest_table tables[DIGEST_TABLES];
	uint64_t *block_wait_ns; /* by block */
	uint32_t *first_site;    /* by number of a site: the first one of the same name */
	struct digest_move *moves;
	size_t n_moves;
	struct digest_share *shares; /* in the order of moves */
	size_t n_shares, shares_room;
	uint64_t moves_stayed, moves_open;
	struct digest_link *links; /* by device, the host's first */
	size_t n_links;
	uint64_t move_why[2][TRACE_WHYS]; /* bytes of completed moves, by reason: in, out */
	struct digest_alive *moments;     /* in order of time; not all of them (DIGEST_MOMENTS) */
	size_t n_moments;
	struct digest_step *steps;
	size_t n_steps;
	struct digest_function *functions; /* those that waited or were submitted, the costliest first */
	size_t n_functions;
	/* Wall time in which at least one of the kind was under way. */
	uint64_t wait_ns, gap_ns, suspended_ns;
	uint64_t both_ns;     /* a submission waited and the GPU was quiesced: it is part of wait_ns and of gap_ns */
	uint64_t link_ns;     /* at least one move was under way; summed over devices, as link_us of stats.def */
	uint64_t ask_ns;      /* summed over threads */
	uint64_t ask_host_ns; /* the part of it for allocations that were placed on the host, at least partly */
	uint64_t n_ask_host;
	uint64_t lost_ns; /* time of at least one of waits, quiesces and suspension */
	struct digest_cost costs[DIGEST_COSTS];
	unsigned n_costs;
	char advice[DIGEST_ADVICE][DIGEST_TEXT];
	unsigned n_advice;
	char verdict[DIGEST_TEXT];
	bool tells_untouched; /* managed memory without managed_touches was not touched: no event is missing */
	uint32_t *idle_rules; /* rules that never matched; numbers as in DIGEST_BY_RULE */
	size_t n_idle_rules;
	struct digest_point curve[DIGEST_CURVE];
	unsigned n_curve; /* 0: no submission names memory */
	/*
	 * What the curve is computed on: the last submissions, their time, and the steps that began in it; 0: not
	 * known.
	 */
	uint64_t curve_submits, curve_ns, curve_steps;
};

/* Shows progress: part of whole. May be NULL. */
typedef void digest_progress(const char *what, uint64_t part, uint64_t whole);

/* Returns 0, or -ENOMEM; nothing needs to be freed then. */
int digest_make(const struct trace *trace, digest_progress *progress, struct digest *ret_digest);
void digest_free(struct digest *digest);

/* Returns the name of a group, in the caller's buffer if it must be composed. */
const char *digest_group_name(const struct digest *digest, enum digest_by by, uint64_t number, char *room,
			      size_t bytes);
/* Returns the callers of a group by calls, from the inside out, with " < " between them; NULL: not known. */
const char *digest_callers(const struct digest *digest, uint64_t number);
extern const char *const digest_by_names[DIGEST_TABLES];
extern const char *const digest_cost_names[DIGEST_COST_KINDS];
const char *digest_why_name(unsigned why);
/* Returns where nonresident memory was, of the run or a device: "on the host", on other GPUs, or both. */
const char *digest_away(const struct digest *digest);
const char *digest_device_away(const struct digest_device *device);
/* Returns the name of a backend: heap, managed, ... */
const char *digest_backend_name(uint32_t backend);
/* Returns the number in a table of the group of what has this rule and this site. */
uint64_t digest_group_of(const struct digest *digest, enum digest_by by, uint64_t rule, uint64_t site);

#endif
