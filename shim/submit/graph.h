/*
 * graph.h: what the launch of a graph touches. A launch is one submission that names everything its nodes name; what
 * that is was read when the graph was instantiated, from its nodes, and is kept by instance until that is destroyed.
 *
 * Whatever is read names too much rather than too little: nodes that are switched off count, and parameters set on an
 * instance are added to what it named before. An instance is *unknown* when a node of it cannot be read, when it can be
 * changed or launched from the device, when there is no memory, or when it was made before we were there to see it. While one
 * is alive that can be launched from the device, which kernels of graphs may do, no other is known either.
 *
 * Lock: GRAPH, for the table of instances; never held over a driver call, nor while memory is allocated or freed.
 */
#ifndef SPILLWAY_GRAPH_H
#define SPILLWAY_GRAPH_H

#include "shim/submit/submission.h"

#include <cuda.h>
#include <stdbool.h>

/* Name what a launch of this instance touches, or say that it is unknown. Any thread; it allocates nothing. */
void graph_operands(struct submission *use, CUgraphExec exec);

/* How many instances are alive that cannot be read. Those made before we were active are not among them. */
unsigned graph_n_unknown(void);

/* ---- for the entry points; each after the real call, and only when that succeeded ---- */

void graph_instantiated(CUgraphExec exec, CUgraph graph, cuuint64_t flags);
/* All nodes of the instance have the parameters of this graph's from now on. */
void graph_updated(CUgraphExec exec, CUgraph graph);
/* One node of the instance has got these. */
void graph_set(CUgraphExec exec, const CUgraphNodeParams *params);

/*
 * Before the real destroy: after it the handle may be another thread's new instance. NULL: not known. graph_ended()
 * must follow and tells whether the instance is gone.
 */
struct graph_exec;
struct graph_exec *graph_ending(CUgraphExec exec);
void graph_ended(struct graph_exec *ending, bool gone);

/* Instances die with the context they were made in (driver 580 crashes when one is launched or destroyed after it). */
void graph_context_ended(CUcontext context);

#endif
