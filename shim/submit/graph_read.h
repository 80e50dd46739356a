/*
 * graph_read.h: which memory the nodes of a graph name. Asks the driver; takes no lock and may be called while streams
 * capture: no question about a graph disturbs a capture (driver 580: tried with the capture on another thread and on
 * this one, in global mode).
 */
#ifndef SPILLWAY_GRAPH_READ_H
#define SPILLWAY_GRAPH_READ_H

#include "shim/submit/graph_names.h"

/*
 * The addresses of all nodes, child graphs included; the caller drops the set. NULL: a node cannot be read (a kernel
 * that can be changed from the device, a conditional node, a type that is new to us), the driver failed, or there is no
 * memory. ret_number: equal for graphs that run the same functions in the same order of nodes; set also with NULL.
 * ret_overlaps: kernels of what was read may overlap (pdl.h); set also with NULL.
 */
struct graph_names *graph_read(CUgraph graph, uint64_t *ret_number, bool *ret_overlaps);

/* The same for the parameters of one node, as they are handed to the driver. */
struct graph_names *graph_read_params(const CUgraphNodeParams *params);

#endif
