/*
 * doctor_measure.h: driver functions used for measurements, shared by doctor_measure.c and doctor_measure_peers.c.
 * They run in the child of doctor_cuda.c, which has one thread.
 */
#ifndef TOOLS_DOCTOR_MEASURE_H
#define TOOLS_DOCTOR_MEASURE_H

#include <cuda.h>

#include "tools/doctor/doctor_cuda.h"

#define MEASURE_FUNCTIONS(ROW)                                                                                         \
	ROW(cuDevicePrimaryCtxRetain)                                                                                  \
	ROW(cuDevicePrimaryCtxRelease)                                                                                 \
	ROW(cuCtxSetCurrent)                                                                                           \
	ROW(cuCtxEnablePeerAccess)                                                                                     \
	ROW(cuCtxDisablePeerAccess)                                                                                    \
	ROW(cuMemGetInfo)                                                                                              \
	ROW(cuMemAlloc)                                                                                                \
	ROW(cuMemFree)                                                                                                 \
	ROW(cuMemHostAlloc)                                                                                            \
	ROW(cuMemFreeHost)                                                                                             \
	ROW(cuStreamCreate)                                                                                            \
	ROW(cuStreamDestroy)                                                                                           \
	ROW(cuStreamSynchronize)                                                                                       \
	ROW(cuMemcpyHtoDAsync)                                                                                         \
	ROW(cuMemcpyDtoHAsync)                                                                                         \
	ROW(cuMemcpyPeerAsync)

enum measure_function {
#define ROW(name) MEASURE_##name,
	MEASURE_FUNCTIONS(ROW)
#undef ROW
	    MEASURE_N_FUNCTIONS /* must be last */
};

extern void *measure_functions[MEASURE_N_FUNCTIONS];
#define MEASURE(name) ((__typeof__(&name))measure_functions[MEASURE_##name])

/* Returns the time of the monotonic clock. */
double measure_seconds(void);

/*
 * Measures copies between devices; pairs that are left when the time is over are not measured. contexts: one per
 * device, NULL for a device without one or one not to be measured.
 */
void measure_peers(struct doctor_cuda *cuda, const CUcontext *contexts, double at_most_seconds);

#endif
