/*
 * trace.h: a record of what the process does with its memory, in a file (trace_code.h). Off unless SPILLWAY_TRACE names
 * the file; then every call below costs one relaxed load and a branch.
 *
 * On, a call writes some words into a ring of its thread's own: no lock, no system call, no memory but for the first
 * call of a thread. One thread of low priority empties the rings some 20 times a second and writes what was in them to
 * the file, so a process that is killed loses a tenth of a second at most. A ring that is full drops what comes, counts
 * it, and the count is in the file. Nothing here can fail for the program: when the file cannot be written any more the
 * trace ends, and that is said once.
 *
 * May be called by all, under any lock but for trace_made(); calls nobody but layout.h (names), caller.h (names: the loader
 * is asked at the first event of a place in the program), device.h and stats.h (figures), and heap.h (trace_made).
 */
#ifndef SPILLWAY_TRACE_H
#define SPILLWAY_TRACE_H

#include "shim/trace/trace_code.h"

#include <stdatomic.h>

struct backend_request;
struct device;
struct ledger_row;
struct policy;

extern _Atomic bool trace_on;

static inline bool trace_is_on(void)
{
	return __builtin_expect(atomic_load_explicit(&trace_on, memory_order_relaxed), 0);
}

/* Is a trace asked for? Looks at the environment: not for the launch path. */
bool trace_is_wanted(void);
/* Once, when the policy is read and the process comes to life. The file is made when the first event is there. */
void trace_start(const struct policy *policy);
/* At the end of the process: what is in the rings goes into the file, for 100 ms at most, and then `end`. */
void trace_end(void);
/* In the child of a fork: nothing is written, the parent's file is not its own. */
void trace_child(void);
/* The file of this process; "" while there is none. And how many events found no room so far. */
const char *trace_path(void);
uint64_t trace_lost(void);

/*
 * One event: its kind, then the fields as in trace.def. trace_event_at() for one that began at another time than now.
 * Not for submit, name, again.
 */
#define trace_event(kind, ...) trace_event_at(kind, 0, __VA_ARGS__)
#define trace_event_at(kind, time, ...)                                                                                \
	do {                                                                                                           \
		if (trace_is_on()) {                                                                                   \
			const uint64_t trace_fields[] = {__VA_ARGS__};                                                 \
			_Static_assert(sizeof(trace_fields) == sizeof(((struct trace_event *)0)->kind),                \
				       "as many fields as in trace.def");                                              \
			trace_write(TRACE_##kind, time, trace_fields, sizeof(trace_fields) / sizeof(uint64_t));        \
		}                                                                                                      \
	} while (0)
/* time 0: now. */
void trace_write(uint32_t kind, uint64_t time, const uint64_t *fields, unsigned n);

/* The number of a place in the program, and of an NVTX range's name. 0: off, not known, or too many are there. */
uint64_t trace_site(void *caller);
uint64_t trace_range(const char *name);

/*
 * Allocations: asked for, refused, a row that is about to be committed, and one that is freed. Kinds that are not memory of
 * a device are left out. trace_made() looks at the heap, so under no lock of the rank of HEAP or above.
 *
 * A free is told when the driver has not refused it, at the time at which it began: somebody else may have the address
 * before the call returns.
 */
struct trace_freeing {
	uint64_t id, time; /* time 0: it is not told */
};
void trace_ask(const struct device *device, const struct backend_request *request);
void trace_refused(const struct device *device, const struct backend_request *request, int rule, int result);
void trace_made(const struct ledger_row *row, uint32_t api, void *caller);
struct trace_freeing trace_freeing(const struct ledger_row *row); /* accepts NULL */
void trace_freed(struct trace_freeing freeing);
uint32_t trace_api(const struct backend_request *request);

/*
 * A submission: begin, every address it names, commit. One at a time in a thread, and no other event of the thread
 * between. False: this one is not traced. id: the entry point; function: a kernel's handle, or as in use.h.
 */
bool trace_submit_begin(void);
void trace_submit_name(uint64_t address, uint64_t bytes);
void trace_submit_commit(uint64_t function, uint32_t id, int device);
/* What a submission is known by in `wait`. */
uint64_t trace_function(uint64_t function, uint32_t id);

/* Of a device, as it stands where 0 means none: its number plus 1. */
static inline uint64_t trace_device(int device)
{
	return device < 0 ? 0 : (uint64_t)device + 1;
}

/* For pulse.h: figures since the process began, once a second; none of them STATS_NA. */
static inline void trace_faults(uint64_t device, uint64_t gpu, uint64_t cpu, uint64_t bytes_in, uint64_t bytes_out)
{
	trace_event(faults, device, gpu, cpu, bytes_in, bytes_out);
}

#endif
