/*
 * faults.h: page faults and migrations of managed and system memory, as the driver counts them.
 *
 * The ladder, from the policy's `faults`: the driver's own counters (faults_uvm.h), with its queue of events on top where
 * that is asked for (faults_queue.c); else nothing is counted, and the major faults that the kernel counts for the process
 * are a hint. What is not measured is FAULTS_NA, never 0. What became of the ladder is one line, faults_source().
 *
 * Nothing happens before the first managed or system memory: a process without any opens nothing. After that reading
 * calls no driver and takes no lock: the driver adds to pages of ours.
 *
 * What the numbers mean. Migrated bytes are what was copied, prefetched and evicted bytes among them; a GPU fault is one
 * that the driver served, after it merged what it got for the same page at once; a CPU fault is one on managed memory.
 * Reads of host memory over the link are none of these: no faults does not mean no cost.
 */
#ifndef SPILLWAY_FAULTS_H
#define SPILLWAY_FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAULTS_NA UINT64_MAX /* not measured */

enum faults_number {
	FAULTS_GPU,       /* faults of the GPU */
	FAULTS_CPU,       /* faults of the CPU */
	FAULTS_BYTES_IN,  /* migrated to the device */
	FAULTS_BYTES_OUT, /* migrated to the host */
	FAULTS_NUMBERS,   /* must be last */
};

/*
 * Managed or system memory is about to be used. Once for a process, everyone else returns at once, also while the first
 * is still at it. Never waits; asks the driver how many devices there are and for their UUIDs, so under no lock of ours
 * and with the driver initialised. Leaves errno as it is.
 */
void faults_start(void);

/*
 * What has been counted since the start, of one device, or of the process for device -1. Faults of the CPU belong to no
 * device where the process sees several: then they are FAULTS_NA but for -1.
 */
void faults_read(int device, uint64_t ret[FAULTS_NUMBERS]);

/* Which source, or why none, with the hint where there is none: one line without a newline. Returns buffer. */
#define FAULTS_LINE 512
char *faults_source(char *buffer, size_t room);

/* Major faults that the kernel has counted for the process since faults_start(); FAULTS_NA before. They read disks, too. */
uint64_t faults_major(void);

/* ---- one by one: faults: events ---- */

/* In traces by these numbers (trace.def): new ones go to the end. */
enum fault_kind {
	FAULT_OF_GPU,
	FAULT_OF_CPU,
	FAULT_MIGRATION,
	FAULT_EVICTION,
	FAULT_THRASHING,      /* processors take a region from each other */
	FAULT_READ_DUPLICATE, /* a copy on another processor, for reading */
	FAULT_KINDS,          /* must be last */
};
const char *fault_kind_name(enum fault_kind kind);

/* The same. */
enum fault_cause {
	FAULT_CAUSE_UNKNOWN,
	/* of faults */
	FAULT_BY_READ,
	FAULT_BY_WRITE,
	FAULT_BY_ATOMIC,
	FAULT_BY_PREFETCH, /* an instruction, not cuMemPrefetchAsync() */
	/* of migrations */
	FAULT_FOR_PROGRAM,         /* cuMemPrefetchAsync() and the like */
	FAULT_FOR_ACCESS,          /* it was touched */
	FAULT_FOR_NEIGHBOUR,       /* the driver thinks that it will be */
	FAULT_FOR_ROOM,            /* it had to give way */
	FAULT_FOR_REMOTE_ACCESSES, /* touched over the link too often */
	FAULT_CAUSES,              /* must be last */
};
const char *fault_cause_name(enum fault_cause cause);

#define FAULT_HOST      (-1)
#define FAULT_SOMEWHERE (-2) /* a device that we cannot tell, or nowhere */
#define FAULT_NOBODY    (-2) /* as a rule: no allocation that we know of has the address */

struct fault_event {
	enum fault_kind kind;
	enum fault_cause cause;
	int device;              /* who faulted, or where it went; FAULT_HOST, FAULT_SOMEWHERE */
	int from;                /* of migrations and evictions: where it came from; else as device */
	uint64_t address, bytes; /* bytes 0: the driver does not say (a fault) */
	uint64_t because;        /* FAULT_EVICTION: the address that needed room; else 0 */
	uint64_t processors;     /* thrashing, duplicates: bits; 0 the CPU, others as the driver numbers them */
	uint64_t time;           /* ns, by the driver's clock */
	uint64_t block;          /* id of the ledger's row; 0: none */
	int rule;                /* that placed it, -1 the default, FAULT_NOBODY */
};

/*
 * Who is told each event: one for the process, set before faults_start(). On the thread that drains, or a thread that
 * polls or frees: visit() must not allocate, free or submit.
 */
void faults_listen(void (*visit)(const struct fault_event *event, void *argument), void *argument);

/* What has been seen of each kind, for one rule: its index, -1 the default, FAULT_NOBODY. False: no events, or no such. */
struct faults_tally {
	uint64_t count[FAULT_KINDS];
	uint64_t bytes_in, bytes_out, bytes_evicted;
};
bool faults_of_rule(int rule, struct faults_tally *ret_tally);
/* Events that the queue had no room for; FAULTS_NA without a queue. */
uint64_t faults_dropped(void);

/* Take what the queue has now. Not on a hot path; nothing where there is no queue. */
void faults_poll(void);

/* ---- for the rest of the library ---- */

extern atomic_bool faults_queue_on;
/* Are events attributed? Then blocks that the program made itself must be found by every address, too. */
static inline bool faults_attributes(void)
{
	return atomic_load_explicit(&faults_queue_on, memory_order_relaxed);
}
/* An address goes out of use: what happened there is attributed first. */
static inline void faults_before_free(void)
{
	if (__builtin_expect(faults_attributes(), 0))
		faults_poll();
}

void faults_end(void);   /* the process ends: the last events; no more are taken */
void faults_child(void); /* in the child of a fork, async-signal-safe: the parent's descriptors are let go */

#endif
