/*
 * pdl.h: programmatic dependent launch (PDL), and when the library turns it off.
 *
 * A kernel launched with the attribute for programmatic stream serialization may start before its predecessor in the
 * stream has ended, and must itself wait for the predecessor before it reads what that writes. Some libraries read too
 * early (CCCL issue 5297, fixed in CCCL 3.0, still present in PyTorch 2.11). In device memory such a read loses the
 * race too rarely to be noticed; over a link it fails often, whether the memory is spilled or pinned by the program
 * itself.
 *
 * So once memory is reached over a link, the attribute, and no other, is cleared in a copy of the launch's
 * configuration. Kernels then run one after the other, as they did before CUDA 11.8. The policy key submit.pdl says
 * when.
 *
 * Two things are not changed. Programmatic events and launch-completion events stay, because work that waits for them
 * would wait forever. Graphs that exist already stay, because their edges are fixed when they are captured or built.
 */
#ifndef SPILLWAY_PDL_H
#define SPILLWAY_PDL_H

#include "policy/policy.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>

/*
 * True if launches lose the attribute; never set back. Read on the path of cuLaunchKernelEx; set by the two functions
 * below. Hidden, so that its address is not loaded from the GOT.
 */
extern _Atomic bool pdl_cleared __attribute__((visibility("hidden")));

static inline bool pdl_is_cleared(void)
{
	return atomic_load_explicit(&pdl_cleared, memory_order_relaxed);
}

/* Applies the policy's setting. The caller must call it once, when the process starts to be served. */
void pdl_start(enum policy_pdl setting);

/* Called when heap memory is placed on the host or on another device, so that kernels reach it over a link. */
void pdl_spilled(void);

/* The driver's cuLaunchKernelEx or its _ptsz variant. */
typedef CUresult(CUDAAPI *pdl_launch_function)(const CUlaunchConfig *config, CUfunction function, void **params,
					       void **extra);

/*
 * Launches with `launch`, without programmatic stream serialization, and returns its result. Does not change `config`;
 * passes it on as it is if it does not ask for programmatic stream serialization.
 */
CUresult pdl_launch(pdl_launch_function launch, const CUlaunchConfig *config, CUfunction function, void **params,
		    void **extra);

/*
 * Returns true if kernels of the graph may overlap, because it has programmatic edges. Child graphs are not examined.
 * Queries the driver.
 */
bool pdl_graph_overlaps(CUgraph graph);

#endif
