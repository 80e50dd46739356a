// SPDX-License-Identifier: Apache-2.0
/*
 * faults.h: page faults and migrations of managed and system memory, as the driver counts them.
 *
 * The policy's `faults` chooses the source: the driver's counters (faults_uvm.h), with its queue of events in addition.
 * If there is no source, nothing is counted, and the major faults that the kernel counts for the process are a hint.
 * What is not measured is STATS_NA, never 0. faults_source() describes in one line which source is used, or why none
 * is.
 *
 * Nothing happens before the first managed or system memory: a process without any opens nothing. After that, reading
 * calls no driver and takes no lock, because the driver adds to pages of this process.
 *
 * What the numbers mean. Migrated bytes are all that were copied, including prefetched and evicted bytes. A GPU fault
 * is one that the driver served, after it merged simultaneous faults on the same page. A CPU fault is one on managed
 * memory. Reads of host memory over the link are none of these: no faults does not mean no cost.
 */
#ifndef SPILLWAY_FAULTS_H
#define SPILLWAY_FAULTS_H

#include "shim/stats/stats_page.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Must be called before managed or system memory is used. Starts counting once for a process; other calls return at
 * once, even while the first still runs. Never waits, and keeps errno. Asks the driver for the number of devices and
 * their UUIDs, so the driver must be initialised. Locking: must be called under no lock of the library.
 */
void faults_start(void);

/*
 * Stores what was counted since the start, for one device, or for the process if device is -1. If the process sees
 * several devices, CPU faults belong to none of them and are STATS_NA for all but -1. So are lost events.
 * Locking: none.
 */
void faults_read(int device, uint64_t ret[FAULT_COUNT]);

/*
 * Writes which source is used, or why none is, then with the hint of the kernel's major faults: one line without a
 * newline. Returns buffer.
 */
char *faults_source(char *buffer, size_t room);

/*
 * Returns the major faults that the kernel has counted for the process since faults_start(), STATS_NA before. They
 * include reads from disks.
 */
uint64_t faults_major(void);

/* ---- single events (policy `faults: events`) ---- */

/* Traces contain these numbers (trace.def), so new kinds must be added at the end. */
enum fault_kind {
	FAULT_OF_GPU,
	FAULT_OF_CPU,
	FAULT_MIGRATION,
	FAULT_EVICTION,
	FAULT_THRASHING,      /* processors take a region from each other */
	FAULT_READ_DUPLICATE, /* a copy on another processor, for reading */
	FAULT_KINDS,          /* must be last */
};

/* Traces contain these numbers, too. */
enum fault_cause {
	FAULT_CAUSE_UNKNOWN,
	/* of faults */
	FAULT_BY_READ,
	FAULT_BY_WRITE,
	FAULT_BY_ATOMIC,
	FAULT_BY_PREFETCH, /* an instruction, not cuMemPrefetchAsync() */
	/* of migrations */
	FAULT_FOR_PROGRAM,         /* requested by the program, as with cuMemPrefetchAsync() */
	FAULT_FOR_ACCESS,          /* it was accessed */
	FAULT_FOR_NEIGHBOUR,       /* the driver expects it to be accessed */
	FAULT_FOR_ROOM,            /* evicted to free memory */
	FAULT_FOR_REMOTE_ACCESSES, /* accessed over the link too often */
};

#define FAULT_HOST      (-1)
#define FAULT_SOMEWHERE (-2) /* an unknown device, or none */

struct fault_event {
	enum fault_kind kind;
	enum fault_cause cause;
	int device;              /* the device that faulted, or the destination; FAULT_HOST, FAULT_SOMEWHERE */
	int from;                /* of migrations and evictions: the source; else equal to device */
	uint64_t address, bytes; /* bytes 0: not reported by the driver (a fault) */
	uint64_t time;           /* ns, by the driver's clock */
};

/*
 * Sets the function that is called for each event: one for the process, set before faults_start(). Events for which the
 * queue has no room are lost (FAULT_LOST). `visit` runs on the thread that drains the queue, or on a thread that polls
 * or frees; it must not allocate, free or submit. Locking: takes FAULTS; `visit` is called under FAULTS.
 */
void faults_listen(void (*visit)(const struct fault_event *event));

/* Reads the events that the queue has now; does nothing without a queue. Not for hot paths. Locking: takes FAULTS. */
void faults_poll(void);

/* ---- for the rest of the library ---- */

extern atomic_bool faults_queue_on;
/*
 * Must be called before an address goes out of use, so that its events are heard of first. Locking: takes FAULTS if
 * there is a queue.
 */
static inline void faults_before_free(void)
{
	if (__builtin_expect(atomic_load_explicit(&faults_queue_on, memory_order_relaxed), 0))
		faults_poll();
}

void faults_end(void);   /* at the end of the process: reads the last events, then no more */
void faults_child(void); /* in the child of a fork: closes the parent's descriptors; async-signal-safe */

#endif
