/*
 * The driver's queue of events. A thread of low priority drains it: it waits until the queue is half full, or for 50
 * ms, and reads everything. A thread that reads numbers, or is about to free a block, drains it first, so that events
 * are attributed to the allocation that was live when they happened. The driver reports migrations when they are done;
 * an event that comes too late is attributed to no allocation.
 *
 * Locking: FAULTS, over the reading end of the queue and the tallies; LEDGER is taken under it.
 */
#include "shim/faults/faults_internal.h"
#include "shim/base/lock.h"

#include "shim/process/process.h"
#include "shim/accounting/ledger.h"
#include "shim/base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	ENTRIES = 1 << 15, /* 2 MiB; at a million faults a second, half of it lasts 16 ms */
	PAGE = 4096,       /* the smallest page of any device */
	WAIT_MS = 50,
	STACK_BYTES = 1 << 18,
	LOOKS_MOST = 8, /* how often the table of processors is read again when a number is new */
};

/* Types of the driver's events. */
enum {
	TYPE_CPU_FAULT = 1,
	TYPE_MIGRATION = 2,
	TYPE_GPU_FAULT = 3,
	TYPE_READ_DUPLICATE = 7,
	TYPE_THRASHING = 10,
	TYPE_EVICTION = 14,
};
#define TYPES                                                                                                          \
	(1u << TYPE_CPU_FAULT | 1u << TYPE_MIGRATION | 1u << TYPE_GPU_FAULT | 1u << TYPE_READ_DUPLICATE |              \
	 1u << TYPE_THRASHING | 1u << TYPE_EVICTION)

const char *fault_kind_name(enum fault_kind kind)
{
	static const char *const names[FAULT_KINDS] = {
	    [FAULT_OF_GPU] = "GPU fault",  [FAULT_OF_CPU] = "CPU fault",    [FAULT_MIGRATION] = "migration",
	    [FAULT_EVICTION] = "eviction", [FAULT_THRASHING] = "thrashing", [FAULT_READ_DUPLICATE] = "read duplicate",
	};

	return (unsigned)kind < FAULT_KINDS ? names[kind] : "?";
}

const char *fault_cause_name(enum fault_cause cause)
{
	static const char *const names[FAULT_CAUSES] = {
	    [FAULT_CAUSE_UNKNOWN] = "unknown",
	    [FAULT_BY_READ] = "read",
	    [FAULT_BY_WRITE] = "write",
	    [FAULT_BY_ATOMIC] = "atomic",
	    [FAULT_BY_PREFETCH] = "prefetch instruction",
	    [FAULT_FOR_PROGRAM] = "asked for",
	    [FAULT_FOR_ACCESS] = "touched",
	    [FAULT_FOR_NEIGHBOUR] = "expected to be touched",
	    [FAULT_FOR_ROOM] = "gave way",
	    [FAULT_FOR_REMOTE_ACCESSES] = "touched often from afar",
	};

	return (unsigned)cause < FAULT_CAUSES ? names[cause] : "?";
}

/* The pages are in the memory of this process only, even if another shares its tables. */
static bool is_open(void)
{
	return faults_attributes() && faults_state.events.owner == getpid();
}

/* ---- decoding entries ---- */

static uint64_t long_at(const unsigned char *entry, unsigned at)
{
	uint64_t value;

	memcpy(&value, entry + at, sizeof(value));
	return value;
}

static bool is_nothing(const unsigned char *uuid)
{
	static const unsigned char zero[16];

	return !memcmp(uuid, zero, sizeof(zero));
}

/* Returns the ordinal of a processor by the driver's number. The only GPU of a process needs no UUID. */
static int device_of_processor(unsigned number)
{
	struct faults_events *const s = &faults_state.events;

	if (number == 0)
		return FAULT_HOST;
	if (s->devices.n == 1)
		return 0;
	if (number >= UVM_PROCESSORS)
		return FAULT_SOMEWHERE;
	/* The driver knows a GPU only from its first context on. */
	if (is_nothing(s->processors[number]) && s->looks < LOOKS_MOST) {
		s->looks++;
		uvm_processors(s->uvm, s->processors);
	}
	for (int i = 0; i < s->devices.n; i++)
		if (s->devices.known[i] && !memcmp(s->devices.uuid[i], s->processors[number], 16))
			return i;
	return FAULT_SOMEWHERE;
}

static enum fault_cause access_of(unsigned type)
{
	static const enum fault_cause causes[] = {FAULT_CAUSE_UNKNOWN, FAULT_BY_READ, FAULT_BY_WRITE, FAULT_BY_ATOMIC,
						  FAULT_BY_PREFETCH};

	return type < sizeof(causes) / sizeof(causes[0]) ? causes[type] : FAULT_CAUSE_UNKNOWN;
}

static enum fault_cause purpose_of(unsigned cause)
{
	static const enum fault_cause causes[] = {FAULT_CAUSE_UNKNOWN, FAULT_FOR_PROGRAM, FAULT_FOR_ACCESS,
						  FAULT_FOR_NEIGHBOUR, FAULT_FOR_ROOM,    FAULT_FOR_REMOTE_ACCESSES};

	return cause < sizeof(causes) / sizeof(causes[0]) ? causes[cause] : FAULT_CAUSE_UNKNOWN;
}

static void faults_queue_moved(const unsigned char *entry, unsigned from, unsigned to, unsigned bytes, unsigned time,
			       struct fault_event *ret)
{
	ret->from = device_of_processor(entry[from]);
	ret->device = device_of_processor(entry[to]);
	ret->address = long_at(entry, 8);
	ret->bytes = long_at(entry, bytes);
	ret->time = long_at(entry, time);
}

static void faults_queue_region(const unsigned char *entry, enum fault_kind kind, struct fault_event *ret)
{
	ret->kind = kind;
	ret->processors = long_at(entry, 8);
	ret->address = long_at(entry, 16);
	ret->bytes = long_at(entry, 24);
	ret->time = long_at(entry, 32);
}

/*
 * Decodes an entry; returns false for a type that was not requested. The offsets are those of the first format of
 * uvm_types.h, which all drivers support.
 */
static bool read_entry(const unsigned char *entry, struct fault_event *ret)
{
	*ret = (struct fault_event){.device = FAULT_SOMEWHERE, .from = FAULT_SOMEWHERE};
	switch (entry[0]) {
	case TYPE_CPU_FAULT:
		ret->kind = FAULT_OF_CPU;
		ret->cause = access_of(entry[1]);
		ret->device = ret->from = FAULT_HOST;
		ret->address = long_at(entry, 8);
		ret->time = long_at(entry, 16);
		return true;
	case TYPE_GPU_FAULT:
		ret->kind = FAULT_OF_GPU;
		ret->cause = access_of(entry[2]);
		ret->device = ret->from = device_of_processor(entry[3]);
		ret->address = long_at(entry, 8);
		ret->time = long_at(entry, 16);
		return true;
	case TYPE_MIGRATION:
		ret->kind = FAULT_MIGRATION;
		ret->cause = purpose_of(entry[1]);
		faults_queue_moved(entry, 2, 3, 16, 24, ret);
		return true;
	case TYPE_EVICTION:
		ret->kind = FAULT_EVICTION;
		ret->cause = FAULT_FOR_ROOM;
		faults_queue_moved(entry, 1, 2, 24, 32, ret);
		ret->because = long_at(entry, 16);
		return true;
	case TYPE_THRASHING:
		faults_queue_region(entry, FAULT_THRASHING, ret);
		return true;
	case TYPE_READ_DUPLICATE:
		faults_queue_region(entry, FAULT_READ_DUPLICATE, ret);
		return true;
	default:
		return false;
	}
}

/* ---- attribution ---- */

static void faults_queue_attribute(struct fault_event *event)
{
	struct ledger_row row;

	/* The driver reports the page of a fault; an allocation may begin further on in it. */
	uint64_t bytes = event->bytes ? event->bytes : PAGE - event->address % PAGE;

	event->rule = FAULT_NOBODY;
	if (!ledger_find_any(LEDGER_MANAGED | LEDGER_SYSTEM, event->address, bytes, &row))
		return;
	event->rule = row.rule;
	event->block = row.id;
}

static struct faults_tally *tally_of(int rule)
{
	size_t at = (size_t)(rule - FAULT_NOBODY);

	return rule >= FAULT_NOBODY && at < faults_state.events.n_tallies ? &faults_state.events.tallies[at] : NULL;
}

static void faults_queue_tally(const struct fault_event *event)
{
	struct faults_tally *tally = tally_of(event->rule);

	if (!tally)
		tally = tally_of(FAULT_NOBODY);
	tally->count[event->kind]++;
	if (event->kind == FAULT_EVICTION)
		tally->bytes_evicted += event->bytes;
	/* As in the counters, a migration between two devices is neither. */
	if (event->kind == FAULT_MIGRATION && event->from == FAULT_HOST)
		tally->bytes_in += event->bytes;
	if (event->kind == FAULT_MIGRATION && event->device == FAULT_HOST)
		tally->bytes_out += event->bytes;
}

/*
 * Reads at most as many entries as the queue holds, so that a driver that fills it faster than they are read cannot
 * keep the caller here.
 */
static void faults_queue_drain(void)
{
	struct faults_events *const s = &faults_state.events;
	unsigned char entry[UVM_ENTRY];
	struct fault_event event;

	lock_take(&s->lock);
	for (unsigned i = 0; i < ENTRIES && uvm_queue_read(&s->queue, entry); i++) {
		if (!read_entry(entry, &event))
			continue;
		faults_queue_attribute(&event);
		faults_queue_tally(&event);
		if (s->visit)
			s->visit(&event, s->argument);
	}
	lock_drop(&s->lock);
}

void faults_poll(void)
{
	if (is_open())
		faults_queue_drain();
}

bool faults_of_rule(int rule, struct faults_tally *ret_tally)
{
	struct faults_tally *tally;

	if (!is_open())
		return false;
	faults_queue_drain();
	lock_take(&faults_state.events.lock);
	tally = tally_of(rule);
	if (tally)
		*ret_tally = *tally;
	lock_drop(&faults_state.events.lock);
	return tally != NULL;
}

uint64_t faults_dropped(void)
{
	uint64_t n = 0;

	if (!is_open())
		return FAULTS_NA;
	for (int i = 0; i < UVM_EVENT_TYPES; i++)
		n += __atomic_load_n(&faults_state.events.queue.dropped[i], __ATOMIC_RELAXED);
	return n;
}

void faults_listen(void (*visit)(const struct fault_event *event, void *argument), void *argument)
{
	struct faults_events *const s = &faults_state.events;

	lock_take(&s->lock);
	s->visit = visit;
	s->argument = argument;
	lock_drop(&s->lock);
}

/* ---- the thread ---- */

static void *faults_queue_run(void *argument)
{
	struct faults_events *const s = &faults_state.events;

	(void)argument;
	enter_depth = 1;
	prctl(PR_SET_NAME, "spillway-faults");
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 10);
	while (!atomic_load(&s->over)) {
		uvm_queue_wait(s->uvm, &s->queue, WAIT_MS);
		if (!atomic_load(&s->over))
			faults_queue_drain();
	}
	return NULL;
}

bool faults_queue_start(struct uvm *uvm, const struct faults_devices *devices, size_t n_rules, char *ret_why)
{
	struct faults_events *const s = &faults_state.events;

	s->owner = getpid();
	s->uvm = uvm;
	s->devices = *devices;
	s->n_tallies = n_rules + 2;
	s->tallies = calloc(s->n_tallies, sizeof(*s->tallies));
	if (!s->tallies) {
		snprintf(ret_why, UVM_WHY, "no memory");
		return false;
	}
	if (!uvm_queue_open(uvm, ENTRIES, TYPES, &s->queue, ret_why)) {
		free(s->tallies);
		s->tallies = NULL;
		return false;
	}
	/* Without the thread, readers drain the queue, and it may overflow meanwhile; that is counted. */
	atomic_store(&faults_queue_on, true);
	thread_start(faults_queue_run, NULL, STACK_BYTES, false, NULL);
	return true;
}

void faults_queue_end(void)
{
	faults_poll();
	atomic_store(&faults_state.events.over, true);
}

void faults_queue_child(void)
{
	struct faults_events *const s = &faults_state.events;

	if (!atomic_exchange(&faults_queue_on, false))
		return;
	if (uvm_is_ours(&s->queue.held))
		close(s->queue.held.fd);
	s->queue.held.fd = -1;
}
