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
 * Locking: may be called under any lock. Names of places in the program come from caller_name.h, which asks the loader at the
 * first event of a place; everything else that the trace needs to know is given with trace_start().
 */
#ifndef SPILLWAY_TRACE_H
#define SPILLWAY_TRACE_H

#include "shim/trace/trace_code.h"

#include <stdatomic.h>

struct policy;

extern _Atomic bool trace_on;

static inline bool trace_is_on(void)
{
	return __builtin_expect(atomic_load_explicit(&trace_on, memory_order_relaxed), 0);
}

/* Is a trace asked for? Looks at the environment: not for the launch path. */
bool trace_is_wanted(void);

/* A device as the trace sees it. bytes: as in trace.def, without its time. */
struct trace_source_device {
	int ordinal;
	uint64_t total; /* bytes */
	bool any;       /* there is something to report in `bytes` */
	struct trace_event sample;
};

/* At most this many bytes of a function's name are kept, with the final zero. */
#define TRACE_FUNCTION_NAME 120

/*
 * What the trace asks of the other modules. Locking: called by the drainer under `drain`, at the end of the process by the
 * exiting thread; submissions() by any thread. So they must take no lock.
 */
struct trace_sources {
	/* Calls visit for each device that is known. */
	void (*each_device)(void (*visit)(const struct trace_source_device *device, void *argument), void *argument);
	/* Returns false if the name is not known. */
	bool (*function_name)(uint64_t function, char ret_name[TRACE_FUNCTION_NAME]);
	/* A number that changes when a handle may stand for another function than before. */
	uint64_t (*function_generation)(void);
	/* Submissions are to be traced, or not any more. */
	void (*submissions)(bool on);
};

/*
 * Once, when the policy is read and the process starts. The file is made when the first event is there. `sources` must
 * last as long as the process.
 */
void trace_start(const struct policy *policy, const struct trace_sources *sources);
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
 * A submission: begin, every address it names, commit. One at a time in a thread, and no other event of the thread
 * between. False: this one is not traced. id: the entry point; function: a kernel's handle, or as in submission.h.
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

/* For sampler.h: figures since the process began, once a second; none of them STATS_NA. */
static inline void trace_faults(uint64_t device, uint64_t gpu, uint64_t cpu, uint64_t bytes_in, uint64_t bytes_out)
{
	trace_event(faults, device, gpu, cpu, bytes_in, bytes_out);
}

#endif
