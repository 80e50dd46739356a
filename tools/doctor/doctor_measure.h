/*
 * doctor_measure.h: the driver's functions that measuring calls, for doctor_measure.c and doctor_measure_peers.c. In the
 * child of doctor_cuda.c, which has one thread.
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

/* The clock that does not jump. */
double measure_seconds(void);

/*
 * How fast copies between the devices are; when the time is over, those that are left are not measured. contexts: of each
 * device, NULL where there is none or nothing shall be measured.
 */
void measure_peers(struct doctor_cuda *cuda, const CUcontext *contexts, double at_most_seconds);

#endif
