// SPDX-License-Identifier: Apache-2.0
/*
 * trace.h: a record of what the process does with its memory, in a file (trace_code.h). Off unless SPILLWAY_TRACE names
 * the file; then every call below costs one relaxed load and a branch.
 *
 * If it is on, a call writes a few words into a ring of its thread. It takes a lock only until the process has written
 * an event, allocates only at the first call of a thread or for a new name, and makes a system call only then or if the
 * ring is half full. One thread of low priority, the drainer, empties the rings about 20 times a second into the file,
 * so a killed process loses at most a tenth of a second. A full ring drops events and counts them; the file has the
 * count. No error reaches the program: if the file cannot be written any more, the trace ends, which is logged once.
 *
 * Locking: may be called under any lock. Everything that the trace needs to know is given with trace_start(), and names
 * of places in the program with the events.
 */
#ifndef SPILLWAY_TRACE_H
#define SPILLWAY_TRACE_H

#include "shim/trace/trace_code.h"

#include <stdatomic.h>

struct call_site;
struct policy;

extern _Atomic bool trace_on;

static inline bool trace_is_on(void)
{
	return __builtin_expect(atomic_load_explicit(&trace_on, memory_order_relaxed), 0);
}

/* Returns true if a trace is requested. Reads the environment: not for the launch path. */
bool trace_is_wanted(void);

/* A device as the trace sees it. sample: its event `bytes` (trace.def), without the time. */
struct trace_source_device {
	int ordinal;
	uint64_t total; /* bytes */
	bool any;       /* `sample` has figures to report */
	struct trace_event sample;
};

/* At most this many bytes of a function's name are kept, with the final zero. */
#define TRACE_FUNCTION_NAME 120

/*
 * Functions of other modules that the trace calls. The drainer calls them under TRACE_FILE, at exit the exiting thread
 * does; any thread may call submissions(). Locking: they must take no lock.
 */
struct trace_sources {
	/* Calls visit for each device that is known. */
	void (*each_device)(void (*visit)(const struct trace_source_device *device, void *argument), void *argument);
	/* Returns false if the name is not known. */
	bool (*function_name)(uint64_t function, char ret_name[TRACE_FUNCTION_NAME]);
	/* Returns a number that changes when a handle may have been reused for another function. */
	uint64_t (*function_generation)(void);
	/* Starts or stops the tracing of submissions. */
	void (*submissions)(bool on);
};

/*
 * Called once, when the policy has been read and the process starts. The file is created with the first event.
 * `sources` must last as long as the process.
 */
void trace_start(const struct policy *policy, const struct trace_sources *sources);
/* Called at the end of the process: waits for the drainer, 2 s at most, writes the rings to the file, then `end`. */
void trace_end(void);
/* Called in the child of a fork: stops writing, since the file belongs to the parent. */
void trace_child(void);
/* Return the path of the process's file, "" if none exists, and the number of events dropped so far. */
const char *trace_path(void);
uint64_t trace_lost(void);

/*
 * Writes one event: its kind, then the fields as in trace.def. trace_event_at() is for an event that did not begin now.
 * Neither is for the kinds submit, name and again.
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

/* Return the number of a call site, or of an NVTX range's name. 0: tracing is off, not known, or the table is full. */
uint64_t trace_site(const struct call_site *site);
uint64_t trace_range(const char *name);

/*
 * Write a submission: begin, each address that it names, commit. A thread writes one at a time and no other event in
 * between. Returns false if it is not traced. id: the entry point; function: a kernel's handle, or as in submission.h.
 */
bool trace_submit_begin(void);
void trace_submit_name(uint64_t address, uint64_t bytes);
void trace_submit_commit(uint64_t function, uint32_t id, int device);
/* Returns the number that stands for a submission's function in the event `wait`. */
uint64_t trace_function(uint64_t function, uint32_t id);

/* Returns the ordinal plus 1, for fields in which 0 means no device. */
static inline uint64_t trace_device(int device)
{
	return device < 0 ? 0 : (uint64_t)device + 1;
}

#endif
