/*
 * graph.c: the table of graph instances and the names of each (graph.h). Reading a graph queries the driver and
 * allocates, so it is done before GRAPH is taken. A launch takes a reference to the set of names under GRAPH and names
 * its addresses without the lock.
 */
#include "shim/submit/graph.h"
#include "shim/base/libc.h"
#include "shim/base/lock.h"
#include "shim/driver/real.h"
#include "shim/submit/graph_read.h"
#include "shim/submit/pointer_arrays.h"
#include "shim/submit/types.h"
#include "shim/stats/stats.h"

#include <pthread.h>
#include <stdlib.h>

struct graph_exec {
	struct graph_exec *next; /* in the same bucket */
	CUgraphExec exec;
	CUcontext context;
	uint64_t number;
	bool sealed;               /* the device may launch it: always unknown, whatever it is updated to */
	struct graph_names *names; /* NULL if unknown */
};

unsigned graph_n_unknown(void)
{
	return atomic_load(&submit_tables.graph.n_unknown);
}

/* ---- fork: graphs may be counted before the first allocation, and the child of such a process starts again ---- */

static void before_fork(void)
{
	pthread_mutex_lock(&submit_state.graph_lock.mutex);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&submit_state.graph_lock.mutex);
}

/*
 * Registered here and not in lifecycle.c: the holder of GRAPH takes no further lock and waits for nothing, so the order
 * of the fork handlers does not matter.
 */
__attribute__((constructor)) static void graph_begin(void)
{
	libc_atfork(before_fork, after_fork, after_fork);
}

/* ---- the table, under GRAPH ---- */

static struct graph_exec **place_of(CUgraphExec exec)
{
	struct graph_exec **at = &submit_tables.graph.buckets[(uintptr_t)exec * UINT64_C(0x9e3779b97f4a7c15) >> 54];

	while (*at && (*at)->exec != exec)
		at = &(*at)->next;
	return at;
}

static struct graph_exec *find_locked(CUgraphExec exec)
{
	lock_assert_held(LOCK_GRAPH);
	return *place_of(exec);
}

static struct graph_exec *take_locked(struct graph_exec **at)
{
	struct graph_exec *entry = *at;

	lock_assert_held(LOCK_GRAPH);
	if (!entry)
		return NULL;
	*at = entry->next;
	entry->next = NULL;
	if (!entry->names)
		atomic_fetch_sub(&submit_tables.graph.n_unknown, 1);
	if (entry->sealed)
		atomic_fetch_sub(&submit_tables.graph.n_sealed, 1);
	return entry;
}

static void put_locked(struct graph_exec *entry)
{
	struct graph_exec **at = place_of(entry->exec);

	lock_assert_held(LOCK_GRAPH);
	entry->next = *at;
	*at = entry;
	if (!entry->names)
		atomic_fetch_add(&submit_tables.graph.n_unknown, 1);
	if (entry->sealed)
		atomic_fetch_add(&submit_tables.graph.n_sealed, 1);
}

/* Returns the previous names; the caller must drop them after it has dropped GRAPH. */
static struct graph_names *exchange_locked(struct graph_exec *entry, struct graph_names *names)
{
	struct graph_names *before = entry->names;

	lock_assert_held(LOCK_GRAPH);
	if (before && !names)
		atomic_fetch_add(&submit_tables.graph.n_unknown, 1);
	else if (!before && names)
		atomic_fetch_sub(&submit_tables.graph.n_unknown, 1);
	entry->names = names;
	return before;
}

static void graph_drop_row(struct graph_exec *entry)
{
	if (entry)
		graph_names_drop(entry->names);
	free(entry);
}

/* ---- launches ---- */

static void name_pointer(struct submission *use, CUdeviceptr address)
{
	submission_name(use, address, 0);
	graph_read_distrust(address);
}

/* First the copies, then what kernels find in the memory that they have filled. */
static void name_all(struct submission *use, const struct graph_names *names)
{
	size_t n = atomic_load_explicit(&names->n, memory_order_acquire);

	for (size_t i = 0; i < n; i++) {
		const struct graph_name *name = &names->at[i];
		size_t bytes = atomic_load_explicit(&name->bytes, memory_order_relaxed);

		submission_name(use, name->address, bytes);
		if (name->from)
			pointer_arrays_copied(use, name->address, name->from, bytes);
	}
	for (size_t i = 0; i < n && atomic_load_explicit(&pointer_arrays_any, memory_order_relaxed); i++)
		if (!atomic_load_explicit(&names->at[i].bytes, memory_order_relaxed))
			pointer_arrays_each(use, names->at[i].address, name_pointer);
}

void graph_operands(struct submission *use, CUgraphExec exec)
{
	struct graph_names *names = NULL;
	uint64_t number = (uintptr_t)exec;

	lock_take(&submit_state.graph_lock);
	struct graph_exec *entry = find_locked(exec);
	if (entry)
		number = entry->number;
	if (entry && entry->names) {
		names = entry->names;
		graph_names_hold(names);
	}
	lock_drop(&submit_state.graph_lock);

	submission_function(use, number);
	/* Only kernels of graphs may launch graphs that can be launched from the device. */
	if (!names || atomic_load_explicit(&submit_tables.graph.n_sealed, memory_order_relaxed))
		submission_unknown(use);
	if (!names)
		return;
	name_all(use, names);
	submission_graph(use, names);
}

/* ---- instantiation and update ---- */

/* Replaces a stale entry: an instance whose end was not seen had the same handle, or this entry replaces it. */
static void graph_put(struct graph_exec *entry)
{
	lock_take(&submit_state.graph_lock);
	struct graph_exec *stale = take_locked(place_of(entry->exec));
	put_locked(entry);
	lock_drop(&submit_state.graph_lock);
	graph_drop_row(stale);
}

void graph_instantiated(CUgraphExec exec, CUgraph graph, cuuint64_t flags)
{
	struct graph_exec *entry = malloc(sizeof(*entry));
	bool sealed = flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH, overlaps;
	CUcontext context = NULL;
	uint64_t number;

	if (!entry) {
		/*
		 * Without an entry, launches treat the instance as unknown. Its end will not be noticed, so it counts
		 * as alive for good.
		 */
		graph_drop_row(graph_ending(exec));
		atomic_fetch_add(&submit_tables.graph.n_unknown, 1);
		atomic_fetch_add(&submit_tables.graph.n_sealed, sealed);
		return;
	}
	struct graph_names *names = graph_read(graph, &number, &overlaps);
	if (overlaps)
		stats_add(STAT_pdl_graphs, 1);
	/* Launches from the device are not seen, so its names are never used, although it can be read. */
	if (sealed) {
		graph_names_drop(names);
		names = NULL;
	}
	if (REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS)
		context = NULL;
	*entry =
	    (struct graph_exec){.exec = exec, .context = context, .number = number, .sealed = sealed, .names = names};
	graph_put(entry);
}

void graph_updated(CUgraphExec exec, CUgraph graph)
{
	uint64_t number; /* unused: the instance keeps the number of its first graph */
	bool overlaps;   /* unused: an update cannot change edges */
	struct graph_names *names = graph_read(graph, &number, &overlaps);

	lock_take(&submit_state.graph_lock);
	struct graph_exec *entry = find_locked(exec);
	if (entry && !entry->sealed)
		names = exchange_locked(entry, names);
	lock_drop(&submit_state.graph_lock);
	graph_names_drop(names);
}

static bool is_known(CUgraphExec exec)
{
	lock_take(&submit_state.graph_lock);
	struct graph_exec *entry = find_locked(exec);
	bool known = entry && entry->names;
	lock_drop(&submit_state.graph_lock);
	return known;
}

/*
 * Adds names to an instance. Returns true if done. Returns false and sets *room if there is not enough room; the caller
 * must then try again with *larger, a set for *room names.
 */
static bool graph_add(CUgraphExec exec, const struct graph_names *more, struct graph_names **larger, size_t *room)
{
	struct graph_names *before = NULL;
	bool done = true;

	lock_take(&submit_state.graph_lock);
	struct graph_exec *entry = find_locked(exec);
	if (!entry || !entry->names || graph_names_merge(entry->names, more)) {
		/* gone, unknown by now, or all names fitted */
	} else if (*larger && graph_names_merge(*larger, entry->names) && graph_names_merge(*larger, more)) {
		before = exchange_locked(entry, *larger);
		*larger = NULL;
	} else {
		size_t need = entry->names->n + more->n;

		*room = need <= GRAPH_NAMES_MOST && 2 * need > GRAPH_NAMES_MOST ? GRAPH_NAMES_MOST : 2 * need;
		done = false;
	}
	lock_drop(&submit_state.graph_lock);
	graph_names_drop(before);
	return done;
}

static void graph_lost(CUgraphExec exec)
{
	struct graph_names *before = NULL;

	lock_take(&submit_state.graph_lock);
	struct graph_exec *entry = find_locked(exec);
	if (entry)
		before = exchange_locked(entry, NULL);
	lock_drop(&submit_state.graph_lock);
	graph_names_drop(before);
}

void graph_set(CUgraphExec exec, const CUgraphNodeParams *params)
{
	struct graph_names *larger = NULL;
	size_t room = 0;

	if (!is_known(exec))
		return;
	struct graph_names *more = graph_read_params(params);
	if (!more) {
		graph_lost(exec);
		return;
	}
	while (!graph_add(exec, more, &larger, &room)) {
		graph_names_drop(larger);
		larger = graph_names_new(room);
		if (!larger) {
			graph_lost(exec);
			break;
		}
	}
	graph_names_drop(larger);
	graph_names_drop(more);
}

/* ---- ends ---- */

struct graph_exec *graph_ending(CUgraphExec exec)
{
	lock_take(&submit_state.graph_lock);
	struct graph_exec *entry = take_locked(place_of(exec));
	lock_drop(&submit_state.graph_lock);
	return entry;
}

void graph_ended(struct graph_exec *ending, bool gone)
{
	if (gone || !ending)
		graph_drop_row(ending);
	else
		graph_put(ending);
}

void graph_context_ended(CUcontext context)
{
	struct graph_exec *gone = NULL;

	if (!context)
		return;
	lock_take(&submit_state.graph_lock);
	for (size_t i = 0; i < GRAPH_BUCKETS; i++) {
		for (struct graph_exec **at = &submit_tables.graph.buckets[i]; *at;) {
			if ((*at)->context != context) {
				at = &(*at)->next;
				continue;
			}
			struct graph_exec *entry = take_locked(at);
			entry->next = gone;
			gone = entry;
		}
	}
	lock_drop(&submit_state.graph_lock);
	while (gone) {
		struct graph_exec *next = gone->next;

		graph_drop_row(gone);
		gone = next;
	}
}
