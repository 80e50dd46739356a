/*
 * graph_mend.h: changes of copies in instances of graphs that the driver refuses because memory has moved.
 *
 * Natively all memory of a program is of one kind, and a copy of an instance may be given other operands at will. Of what
 * is mapped by cuMemMap the driver notes, when a copy is given, whether either side is on the device, on the host, or
 * partly on both, and refuses operands of another kind later (driver 580). So a copy is led over: to scratch memory of the
 * kind that it was, which then becomes, at the same addresses, the kind that it is to be; the same copy given again
 * is not refused, and noted anew; and from there to what the program wants.
 *
 * Called with what the driver has said, whatever it was; the result is the program's. Any thread; takes MEND. Safe in a
 * capture: nothing of it disturbs one (driver 580).
 */
#ifndef SPILLWAY_GRAPH_MEND_H
#define SPILLWAY_GRAPH_MEND_H

#include <cuda.h>

/* One copy of an instance: cuGraphExecMemcpyNodeSetParams. */
CUresult mend_set(CUresult refused, CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext context);
/* All of them: cuGraphExecUpdate. reason: the driver's. */
CUresult mend_update(CUresult refused, CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResult reason);

#endif
