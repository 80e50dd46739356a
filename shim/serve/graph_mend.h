/*
 * graph_mend.h: changes of copies in graph instances that the driver refuses because memory has moved.
 *
 * Natively all memory of a program is of one kind, and a copy of an instance may be given other operands at will. For
 * memory mapped by cuMemMap the driver records, when a copy is given, whether either side is on the device, on the
 * host, or partly on both, and later refuses operands of another kind. So a copy is changed in steps: first to
 * scratch memory of the kind that it was; that memory then becomes, at the same addresses, the kind that the copy is
 * to be; the same copy given again is not refused, and its kind is recorded again; last, the copy is set to what the
 * program wants.
 *
 * The functions are called with the driver's result, whatever it was; they return the program's result. Any thread.
 * Safe in a capture, which none of these calls disturbs. Measured (driver 580).
 *
 * Locking: takes MEND.
 */
#ifndef SPILLWAY_GRAPH_MEND_H
#define SPILLWAY_GRAPH_MEND_H

#include <cuda.h>

/* For one copy of an instance: cuGraphExecMemcpyNodeSetParams. */
CUresult mend_set(CUresult refused, CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext context);
/* For all copies of an instance: cuGraphExecUpdate. reason: the driver's. */
CUresult mend_update(CUresult refused, CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResult reason);

#endif
