// SPDX-License-Identifier: Apache-2.0
/*
 * graph.h: the names of graph launches. A graph launch is one submission that names everything that the nodes of the
 * instance name. The names are read from the nodes when the graph is instantiated, and kept in a table of instances
 * until the instance is destroyed.
 *
 * The names read are too many rather than too few: disabled nodes count, and parameters set on an instance are added to
 * its names. An instance is *unknown* if a node of it cannot be read, if it can be changed or launched from the device,
 * if memory is short, or if it was made before the library was active. While an instance that can be launched from the
 * device is alive, every launch of a graph counts as unknown, because kernels of graphs may launch it.
 *
 * Locking: GRAPH protects the table. It is never held over a driver call, nor while memory is allocated or freed.
 */
#ifndef SPILLWAY_GRAPH_H
#define SPILLWAY_GRAPH_H

#include "shim/submit/submission.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/*
 * Adds the names of a launch of this instance to the submission, or marks the submission as unknown. Any thread may
 * call it. Locking: takes GRAPH, and names without it; may take POINTER_ARRAYS then.
 */
void graph_operands(struct submission *submission, CUgraphExec exec);

/* Returns the number of unknown instances that are alive, without those made before the library was active. */
unsigned graph_n_unknown(void);

/* ---- for the entry points, after the real call and only if it succeeded; each takes GRAPH ---- */

void graph_instantiated(CUgraphExec exec, CUgraph graph, cuuint64_t flags);
/* From now on all nodes of the instance have the parameters of this graph. */
void graph_updated(CUgraphExec exec, CUgraph graph);
/* One node of the instance has these parameters from now on. */
void graph_set(CUgraphExec exec, const CUgraphNodeParams *params);

/*
 * graph_ending() removes an instance from the table; the caller must call it before the real destroy, because after
 * that the handle may be another thread's new instance. Returns NULL if the instance is not in the table. The caller
 * must then call graph_ended(), which puts the instance back unless it is gone. Locking: each takes GRAPH.
 */
struct graph_exec *graph_ending(CUgraphExec exec);
void graph_ended(struct graph_exec *ending, bool gone);

/*
 * Removes the instances made in this context, which end with it.
 * Locking: takes GRAPH.
 * Measured (driver 580): the driver crashes if such an instance is launched or destroyed afterwards.
 */
void graph_context_ended(CUcontext context);

/* ---- sets of names ---- */

/*
 * The set of addresses that a graph names, as an array without duplicates, in the form that its launches
 * need, and by how many nodes each of them is used.
 *
 * A set is reference-counted. Every holder of a reference may read the set without a lock while its one writer adds to
 * it: entries below `n` never change, except that a reach and a number of uses may grow. The writer is graph.c under
 * GRAPH, or, before the set is published, the function that builds it.
 */

/* The most addresses of a set: with more, a launch would spend a millisecond on naming them. */
#define GRAPH_NAMES_MOST ((size_t)1 << 16)

struct graph_name {
	CUdeviceptr address;
	CUdeviceptr from; /* what a node copies these bytes from; 0: it is nothing that the host may have written */
	/* Reach, as in submission_name(). 0 if unknown, which is a different name from one with a known reach. */
	_Atomic size_t bytes;
	_Atomic uint32_t uses; /* nodes that name it */
	uint32_t node;         /* the latest of them; only the writer may read it */
};

struct graph_names {
	atomic_uint references;
	atomic_size_t n;
	size_t room;
	uint32_t *slots; /* hash of (address, from, reach known?) to index + 1; twice to four times as many as room */
	size_t n_slots;  /* a power of two */
	uint32_t node;   /* number of the node that is being read; only the writer uses it */
	struct graph_name at[];
};

/* Frees the set with the last reference; NULL is allowed. */
static inline void graph_names_drop(struct graph_names *names)
{
	if (names && atomic_fetch_sub_explicit(&names->references, 1, memory_order_acq_rel) == 1)
		free(names);
}

#endif
