/*
 * stats_page.h: the figures of a process as they lie in memory, and, once it uses CUDA memory, in a file that others of
 * the same user may map and read: PID-START.stats in the user's private folder (user_dir.h), mode 0600, or
 * PID-START-ID.stats where a process of another PID namespace has the former name. It is removed at exit and stays after a
 * crash, with the last figures in it; who finds one whose process is gone, and a day old, removes it.
 *
 * Used by the library and by the tool, so it needs libc alone. Every number is 8 bytes and written on its own, by relaxed
 * atomics: a reader sees each one whole, but two of them need not fit together to the byte while the program runs.
 * A reader believes nothing in the file: texts may lack their end, sizes may be anything.
 *
 * The first number is the size of the whole, the second the version; nothing else is promised between versions.
 */
#ifndef SPILLWAY_STATS_PAGE_H
#define SPILLWAY_STATS_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

#define STATS_VERSION 5
#define STATS_MAGIC   0x5753544154530a31u
#define STATS_TAIL    ".stats"
/* What has not been measured, in any number of the page: shown as n/a, never as 0. */
#define STATS_NA UINT64_MAX

/* Whole pages of memory: what lies behind it is not to be covered by the file. */
#ifdef __x86_64__
#define STATS_ALIGN 4096
#else
#define STATS_ALIGN 65536 /* the largest pages of aarch64 */
#endif

#define STATS_DEVICES 16  /* with figures of their own; more devices count in those of the process alone */
#define STATS_RULES   64  /* number 0 is "no rule", the last one all that are beyond */
#define STATS_SITES   256 /* number 0 is "all others" */
/* The last: what chunks cost that small allocations of several sites share. It has figures alone. */
#define STATS_SMALL      (STATS_SITES - 1)
#define STATS_SMALL_TEXT "small allocations"
#define STATS_TEXT       64
#define STATS_LINE       512

/* Of the time between two looks at a wait that much counts, ns: more has passed only where the process was stopped. */
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

/* Who serves an allocation; the numbers are those of enum policy_use. */
#define STATS_BACKENDS 5

enum stats_state {
	STATS_RUNNING,
	STATS_SUSPENDED,
	STATS_ENDED,
};

/* Where page faults are counted (faults.h). Slots are STATS_NA where nothing counts them. */
enum stats_fault {
#define FAULT(NAME, ...) FAULT_##NAME,
#include "shim/stats/stats.def"
	FAULT_COUNT, /* must be last */
};

/* What a device has to do with another one that may lend memory to it. */
enum stats_link_figure {
#define LINK(NAME, ...) LINK_##NAME,
#include "shim/stats/stats.def"
	LINK_COUNT, /* must be last */
};

/* What lies between them, as far as the driver says: it is asked when a heap is made that is to borrow. */
enum stats_link_kind {
	STATS_LINK_UNASKED, /* the policy does not name it, or the device has no heap */
	STATS_LINK_NONE,    /* the one does not reach the other */
	STATS_LINK_PCIE,    /* it does, and atomics do not work over it natively */
	STATS_LINK_NVLINK,  /* they do */
	STATS_LINK_UNKNOWN, /* the driver does not tell whether they do */
	STATS_LINK_KINDS,   /* must be last */
};

/*
 * Log-linear: below 8 a bucket for each value, then 8 for each power of two. A bucket's middle is within 1/16 (6.25 %) of
 * everything in it.
 */
#define STATS_BUCKETS 304 /* up to 2^40 ns, 18 minutes; the last takes all that is longer */

static inline unsigned stats_bucket(uint64_t value)
{
	if (value < 8)
		return (unsigned)value;
	unsigned power = 63 - (unsigned)__builtin_clzll(value);
	unsigned bucket = (power - 2) * 8 + (unsigned)(value >> (power - 3) & 7);
	return bucket < STATS_BUCKETS ? bucket : STATS_BUCKETS - 1;
}

/* The least value of a bucket. */
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
	_Atomic uint64_t known; /* 0: no such device here; 1: all that does not change is written */
	char name[STATS_TEXT];
	unsigned char uuid[16];
	_Atomic uint64_t total, budget, used; /* bytes; used: of the budget */
	_Atomic uint64_t live[PLACE_COUNT], peak[PLACE_COUNT];
	_Atomic uint64_t fault[FAULT_COUNT];
	_Atomic uint64_t lent, most_lent; /* bytes, by this device to others */
	struct stats_figures figures;
	struct stats_link link[STATS_DEVICES]; /* with those that lend to it */
};

struct stats_rule {
	char name[STATS_TEXT];
	struct stats_figures figures;
};

/* Where in the program memory was asked for, for which use, under which rule, and of what size. */
struct stats_site {
	_Atomic uint64_t known;         /* 0: free; 1: being written; 2: written */
	uint64_t caller;                /* address; 0: not known */
	uint64_t device, backend, rule; /* numbers of the tables above */
	uint64_t least_bytes;           /* a power of two: allocations of that many bytes up to twice as many */
	char text[STATS_TEXT];          /* "libtorch_cuda.so+0x1234", "" where it is not known */
	struct stats_figures figures;
};

struct stats_page {
	uint64_t bytes, version;
	uint64_t magic;
	/* Constant once the page can be seen. */
	uint64_t pid,
	    started; /* started: of the process, in the ticks of /proc/PID/stat: tells whether it is still that process */
	/* Unique on the machine (base/identity.h); and the PID namespace in which pid is its number, 0: not known. */
	uint64_t identity, space;
	uint64_t start_ns, start_clock; /* when the page was made: since 1970, and CLOCK_MONOTONIC */
	char command[256], policy[STATS_TEXT], policy_hash[STATS_TEXT], mode[16], spillway[16];
	/* One line: what counts page faults, or why nothing does. It changes: stats_page_line(). */
	char fault_source[STATS_LINE];
	_Atomic uint64_t state; /* enum stats_state */
	/*
	 * The last change of what is on the host: how far over_us and host_time are known of a process that was killed.
	 */
	_Atomic uint64_t last_clock;
	_Atomic uint64_t end_clock; /* CLOCK_MONOTONIC at which it ended; 0: it has not */
	/* The last look of those who wait for memory on its way, CLOCK_MONOTONIC; 0: nobody waits (stats/waiting.h). */
	_Atomic uint64_t waiting_since;
	_Atomic uint64_t host_budget, host_used;
	/* Pinned host memory that processes of the user share (quota.h): bytes, and how many they are; 0: not shared. */
	_Atomic uint64_t share_total, share_used, share_ranks, share_most_used, share_most_ranks;
	_Atomic uint64_t
	    fault[FAULT_COUNT]; /* of the process: where there are several devices, those of the CPU are of none */
	_Atomic uint64_t live[PLACE_COUNT], peak[PLACE_COUNT];
	_Atomic uint64_t counter[STAT_COUNT];
	_Atomic uint64_t histogram[HISTOGRAM_COUNT][STATS_BUCKETS];
	struct stats_device device[STATS_DEVICES];
	struct stats_figures backend[STATS_BACKENDS];
	struct stats_rule rule[STATS_RULES];
	struct stats_site site[STATS_SITES];
} __attribute__((aligned(STATS_ALIGN)));

/*
 * How long somebody has waited at that time: what is counted, and what has passed since the last look. Both are read
 * again where they change meanwhile; a copy of the page can only be short by what has passed.
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
 * A counter at a time, CLOCK_MONOTONIC in ns. The two that grow with time alone are kept as sums from which the share of
 * what is there is still missing (stats.c); all others are simply read. Of a process that is gone ask for the time of its
 * last sign of life.
 *
 * Sum and share are two numbers, and between the two changes of them the result is absurd: it is read again then.
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
	return value <= most * 2 ? most : 0; /* a little too much, by rounding; or a little less than nothing */
}

/*
 * The line about page faults, which whoever looks once a second writes while others may read it: a byte at a time, so that
 * a line that changes just now may be of both, but ends. Returns buffer.
 */
static inline char *stats_page_line(const struct stats_page *page, char buffer[STATS_LINE])
{
	for (unsigned i = 0; i < STATS_LINE; i++)
		buffer[i] = __atomic_load_n(&page->fault_source[i], __ATOMIC_RELAXED);
	buffer[STATS_LINE - 1] = 0;
	return buffer;
}

#endif
