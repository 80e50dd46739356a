// SPDX-License-Identifier: Apache-2.0
/*
 * stats_page.h: the statistics page, which holds the figures of a process. It is in memory, and, once the process
 * uses CUDA memory, in a file that other processes of the same user may map and read: PID-START.stats in the user's
 * private folder (user_dir.h), mode 0400 once it is filled, or PID-START-ID.stats if a process of another PID namespace
 * has the former name. The file is removed at exit. After a crash it stays, with the last figures; another process
 * removes it once it is a day old, or 10 s if more than 64 such files are left.
 *
 * The library and the tool both use the page, so it needs only libc. Every number has 8 bytes and is written
 * separately, by relaxed atomics: a reader sees each number whole, but two numbers need not be consistent to the byte
 * while the program runs. A reader must not trust the file: texts may lack their terminating zero, and sizes may have
 * any value.
 *
 * The first number is the size of the page, the second the version; nothing else is stable between versions.
 */
#ifndef SPILLWAY_STATS_PAGE_H
#define SPILLWAY_STATS_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

#define STATS_VERSION 7
#define STATS_MAGIC   0x5753544154530a31u
#define STATS_TAIL    ".stats"
/* Value of any number that has not been measured; shown as n/a, never as 0. */
#define STATS_NA UINT64_MAX

/* Alignment and granularity of the page, so that mapping the file covers no other variable. */
#ifdef __x86_64__
#define STATS_ALIGN 4096
#else
#define STATS_ALIGN 65536 /* largest page size of aarch64 */
#endif

#define STATS_DEVICES 16  /* devices with figures; further ones have none of their own */
#define STATS_RULES   64  /* number 0 is "no rule", the last one all further rules */
#define STATS_SITES   256 /* number 0 is "all others" */
/* The last site: the cost of chunks that small allocations of several sites share. It has only figures. */
#define STATS_SMALL      (STATS_SITES - 1)
#define STATS_SMALL_TEXT "small allocations"
#define STATS_TEXT       64
#define STATS_LINE       512

/* Limit of the time counted between two checks of a wait, ns: more passes only if the process was stopped. */
#define WAITING_MOST_NS 200000000u

enum place {
#define PLACE(NAME, ...) PLACE_##NAME,
#include "shim/stats/stats.def"
	PLACE_COUNT, /* must be last */
};

enum stats_counter {
#define STAT(name, ...) STAT_##name,
#include "shim/stats/stats.def"
	STAT_COUNT, /* must be last */
};

enum figure {
#define FIGURE(name, ...) FIGURE_##name,
#include "shim/stats/stats.def"
	FIGURE_COUNT, /* must be last */
};

enum histogram {
#define HISTOGRAM(name, ...) HISTOGRAM_##name,
#include "shim/stats/stats.def"
	HISTOGRAM_COUNT, /* must be last */
};

/* Backends that serve allocations, numbered as in enum policy_use. */
#define STATS_BACKENDS 5

enum stats_process_state {
	STATS_RUNNING,
	STATS_SUSPENDED,
	STATS_ENDED,
};

/* Counters of page faults (faults.h); STATS_NA if they are not counted. */
enum stats_fault {
#define FAULT(NAME, ...) FAULT_##NAME,
#include "shim/stats/stats.def"
	FAULT_COUNT, /* must be last */
};

/* Figures of a device and another one that may lend memory to it. */
enum stats_link_figure {
#define LINK(NAME, ...) LINK_##NAME,
#include "shim/stats/stats.def"
	LINK_COUNT, /* must be last */
};

/* The connection between the two, as reported by the driver. It is queried when a heap that is to borrow is created. */
enum stats_link_kind {
	STATS_LINK_UNASKED, /* the policy does not name it, or the device has no heap */
	STATS_LINK_NONE,    /* no peer access */
	STATS_LINK_PCIE,    /* peer access without native atomics */
	STATS_LINK_NVLINK,  /* peer access with native atomics */
	STATS_LINK_UNKNOWN, /* peer access; the driver does not report atomics */
	STATS_LINK_KINDS,   /* must be last */
};

/*
 * Log-linear histograms: below 8 each value has a bucket, above each power of two has 8. The middle of a bucket is
 * within 1/16 (6.25 %) of every value in it.
 */
#define STATS_BUCKETS 304 /* up to 2^40 ns, 18 minutes; the last bucket takes all longer times */

/* Returns the least value of a bucket. */
static inline uint64_t stats_bucket_least(unsigned bucket)
{
	return bucket < 8 ? bucket : (uint64_t)(8 + bucket % 8) << (bucket / 8 - 1);
}

struct stats_figures {
	_Atomic uint64_t figure[FIGURE_COUNT];
};

struct stats_link {
	_Atomic uint64_t kind; /* enum stats_link_kind */
	_Atomic uint64_t figure[LINK_COUNT];
};

struct stats_device {
	_Atomic uint64_t known; /* 0: no such device; 1: its constant members are written */
	char name[STATS_TEXT];
	unsigned char uuid[16];
	_Atomic uint64_t total, budget, used; /* bytes; used counts against budget */
	_Atomic uint64_t live[PLACE_COUNT], peak[PLACE_COUNT];
	_Atomic uint64_t fault[FAULT_COUNT];
	_Atomic uint64_t lent, most_lent; /* bytes that this device lends to others, now and at most */
	/*
	 * Bytes of the blocks of an allocator that reports births and deaths, and of them those that are alive, now and
	 * at most, and those that have died. Kept while the device's mover runs.
	 */
	_Atomic uint64_t cache, cache_alive, cache_most_alive, cache_dead;
	struct stats_figures figures;
	struct stats_link link[STATS_DEVICES]; /* by lender */
};

struct stats_rule {
	char name[STATS_TEXT];
	struct stats_figures figures;
};

/*
 * A site: where in the program memory was allocated, from which backend, under which rule, and of which size; or where
 * tensors were born that lie in such memory (lifetimes.h).
 */
struct stats_site {
	_Atomic uint64_t known;         /* 0: free; 1: being written; 2: complete */
	uint64_t caller;                /* address of code (call_site.h), or 0 if it is not known */
	uint64_t device, backend, rule; /* indices as in the tables of the page */
	/*
	 * A power of two: the site has allocations from this size to below twice this size. 0: it is a line at which
	 * tensors were born, of any size; only what moved and was waited for is counted for it.
	 */
	uint64_t least_bytes;
	char text[STATS_TEXT]; /* call_site.h: "train.py:57 in forward"; "" if it is not known */
	struct stats_figures figures;
};

struct stats_page {
	uint64_t bytes, version;
	uint64_t magic;
	/* Constant once the page is visible to others. */
	uint64_t pid, started; /* started: ticks, as in /proc/PID/stat; identifies the process if the PID is reused */
	/* identity: unique on the machine (base/user_dir.h). space: the PID namespace of pid, or 0 if not known. */
	uint64_t identity, space;
	uint64_t start_ns, start_clock; /* creation of the page, ns: since 1970, and CLOCK_MONOTONIC */
	char command[256], policy[STATS_TEXT], policy_hash[STATS_TEXT];
	char mode[16]; /* spill.mode; may change, all of it at once (stats_set_mode) */
	char spillway[16];
	char rank[16], local_rank[16], job[64]; /* base/rank.h; "" if there is none */
	/*
	 * One line: what counts page faults, or why they are not counted. It may change; read it with
	 * stats_page_line().
	 */
	char fault_source[STATS_LINE];
	_Atomic uint64_t state; /* enum stats_process_state */
	/*
	 * CLOCK_MONOTONIC of the last change of the bytes on the host. For a process that was killed, over_us and
	 * host_time are known up to this time.
	 */
	_Atomic uint64_t last_clock;
	_Atomic uint64_t end_clock; /* end of the process, CLOCK_MONOTONIC; 0 while it runs */
	/* Last check by a thread that waits for memory, CLOCK_MONOTONIC; 0: no thread waits (stats.c). */
	_Atomic uint64_t waiting_since;
	_Atomic uint64_t host_budget, host_used;
	/* Pinned host memory that processes of the user share (quota.h): bytes, number of processes; 0: not shared. */
	_Atomic uint64_t share_total, share_used, share_ranks, share_most_used, share_most_ranks;
	/* Faults of the process; with several devices, faults of the CPU and lost events count for none of them. */
	_Atomic uint64_t fault[FAULT_COUNT];
	_Atomic uint64_t live[PLACE_COUNT], peak[PLACE_COUNT];
	_Atomic uint64_t counter[STAT_COUNT];
	_Atomic uint64_t histogram[HISTOGRAM_COUNT][STATS_BUCKETS];
	struct stats_device device[STATS_DEVICES];
	struct stats_figures backend[STATS_BACKENDS];
	struct stats_rule rule[STATS_RULES];
	struct stats_site site[STATS_SITES];
} __attribute__((aligned(STATS_ALIGN)));

/*
 * Returns the time during which at least one submission has waited, up to `now`, us: the counter, and the time since
 * the last check. Reads both again if they change meanwhile. A copy of the page can only lack the time since the last
 * check.
 */
static inline uint64_t stats_page_waiting(const struct stats_page *page, uint64_t now)
{
	uint64_t since, us, passed;

	for (unsigned tries = 0; tries < 1000; tries++) {
		since = atomic_load(&page->waiting_since);
		us = atomic_load(&page->counter[STAT_waiting_us]);
		if (since == atomic_load(&page->waiting_since))
			break;
	}
	passed = since && now > since ? now - since : 0;
	return us + (passed < WAITING_MOST_NS ? passed : WAITING_MOST_NS) / 1000;
}

/*
 * Returns a counter at the time `now` (CLOCK_MONOTONIC, ns). over_us and host_time also grow while nothing changes;
 * they are kept as sums that lack the share of the bytes now present (stats.c), which is added here. All other
 * counters are simply read. For a process that has ended the caller must pass the time of its last sign of life.
 *
 * Sum and share are two numbers. A result between their two updates is out of range; both are read again then.
 */
static inline uint64_t stats_page_get(const struct stats_page *page, enum stats_counter stat, uint64_t now)
{
	uint64_t run = now > page->start_clock ? now - page->start_clock : 0, value = 0;

	if (stat == STAT_waiting_us)
		return stats_page_waiting(page, now);
	if (stat != STAT_over_us && stat != STAT_host_time)
		return atomic_load_explicit(&page->counter[stat], memory_order_relaxed);
	uint64_t most = run / 1000;
	if (stat == STAT_host_time)
		most = (atomic_load(&page->peak[PLACE_HOST]) + atomic_load(&page->peak[PLACE_PEER])) / 1024 *
		       (run / 1000000);
	for (unsigned tries = 0; tries < 1000; tries++) {
		uint64_t away = atomic_load(&page->live[PLACE_HOST]) + atomic_load(&page->live[PLACE_PEER]);

		value = atomic_load(&page->counter[stat]);
		if (stat == STAT_host_time)
			value += away / 1024 * (run / 1000000);
		else if (away)
			value += run / 1000;
		if (value <= most)
			return value;
	}
	return value <= most * 2 ? most : 0; /* slightly too large by rounding, or slightly below 0 */
}

/*
 * Copies the line about page faults and returns buffer. The tick writes the line while others may read it, byte by
 * byte: a copy taken during a change may mix both lines, but is terminated.
 */
static inline char *stats_page_line(const struct stats_page *page, char buffer[STATS_LINE])
{
	for (unsigned i = 0; i < STATS_LINE; i++)
		buffer[i] = __atomic_load_n(&page->fault_source[i], __ATOMIC_RELAXED);
	buffer[STATS_LINE - 1] = 0;
	return buffer;
}

#endif
