/*
 * pdl.h: programmatic dependent launch (PDL), and when launches lose it.
 *
 * A kernel launched with the attribute of programmatic stream serialization may start before its predecessor in the
 * stream has ended, and has to wait for it in its own code before it reads what the predecessor writes. Some libraries
 * read too early (CCCL issue 5297, mended in CCCL 3.0, still in PyTorch 2.11). In device memory such a read loses the
 * race too rarely to be seen; behind a link it fails often, whether the memory is spilled or pinned by the program itself.
 *
 * So once memory lies behind the link the attribute, and it alone, is cleared in a copy of the launch's configuration:
 * kernels then run one after the other, as they did before CUDA 11.8. The policy's key submit.pdl says when.
 *
 * Not changed are programmatic events and launch-completion events, for work that waits for them would wait for ever, and
 * graphs that exist already: the edges of a graph are decided when it is captured or built.
 */
#ifndef SPILLWAY_PDL_H
#define SPILLWAY_PDL_H

#include "policy/policy.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>

/* True: launches lose the attribute. Read on the path of cuLaunchKernelEx; set once, by the two functions below. */
extern _Atomic bool pdl_cleared;

static inline bool pdl_is_cleared(void)
{
	return atomic_load_explicit(&pdl_cleared, memory_order_relaxed);
}

/* Takes over the policy's setting. The caller must call it once, when the process starts to be served. */
void pdl_start(enum policy_pdl setting);

/* Memory of the heap lies on the host or on another device from now on, so that kernels reach it over a link. */
void pdl_spilled(void);

/* cuLaunchKernelEx or its _ptsz spelling, as the driver has it. */
typedef CUresult(CUDAAPI *pdl_launch_function)(const CUlaunchConfig *config, CUfunction function, void **params,
					       void **extra);

/*
 * Launches by `launch` without programmatic stream serialization, and returns what it returns. `config` is not changed;
 * it is passed on as it is where it does not ask for it.
 */
CUresult pdl_launch(pdl_launch_function launch, const CUlaunchConfig *config, CUfunction function, void **params,
		    void **extra);

/* May kernels of the graph overlap: has it programmatic edges? Of its child graphs nothing is said. Asks the driver. */
bool pdl_graph_overlaps(CUgraph graph);

#endif
