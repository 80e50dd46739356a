/*
 * graph_read.h: reads which memory the nodes of a graph name, by queries of the driver.
 *
 * Locking: takes no lock. It may be called while streams capture: queries about graphs do not disturb a capture.
 * Measured (driver 580): with the capture on another thread and on this one, in global mode.
 */
#ifndef SPILLWAY_GRAPH_READ_H
#define SPILLWAY_GRAPH_READ_H

#include "shim/submit/graph_names.h"

/*
 * Returns the names of all nodes, including those of child graphs; the caller must drop the set. Returns NULL if a node
 * cannot be read (a kernel node that can be updated from the device, a conditional node, a type unknown to this code),
 * if the driver fails, or if memory is short. Sets both results in any case. ret_number: equal for graphs that run the
 * same functions in the same order of nodes. ret_overlaps: kernels of the nodes that were read may overlap (pdl.h).
 */
struct graph_names *graph_read(CUgraph graph, uint64_t *ret_number, bool *ret_overlaps);

/* What a graph uses at its launches, at this address, is alive until it is freed: no births and deaths say when. */
void graph_read_distrust(CUdeviceptr address);

/* As graph_read(), for the parameters of one node, in the form in which the program sets them. */
struct graph_names *graph_read_params(const CUgraphNodeParams *params);

#endif
