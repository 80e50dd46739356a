// SPDX-License-Identifier: Apache-2.0
/*
 * sim_cudart_errors.c: names of cudaError_t, from driver_types.h, of what the simulated driver or a test gives; texts come
 * from the driver.
 */
#include "sim_cudart.h"

#define ERRORS(ROW)                                                                                                    \
	ROW(cudaSuccess)                                                                                               \
	ROW(cudaErrorInvalidValue)                                                                                     \
	ROW(cudaErrorMemoryAllocation)                                                                                 \
	ROW(cudaErrorInitializationError)                                                                              \
	ROW(cudaErrorCudartUnloading)                                                                                  \
	ROW(cudaErrorInsufficientDriver)                                                                               \
	ROW(cudaErrorInvalidDeviceFunction)                                                                            \
	ROW(cudaErrorNoDevice)                                                                                         \
	ROW(cudaErrorInvalidDevice)                                                                                    \
	ROW(cudaErrorInvalidKernelImage)                                                                               \
	ROW(cudaErrorDeviceUninitialized)                                                                              \
	ROW(cudaErrorMapBufferObjectFailed)                                                                            \
	ROW(cudaErrorUnsupportedLimit)                                                                                 \
	ROW(cudaErrorPeerAccessUnsupported)                                                                            \
	ROW(cudaErrorOperatingSystem)                                                                                  \
	ROW(cudaErrorInvalidResourceHandle)                                                                            \
	ROW(cudaErrorIllegalState)                                                                                     \
	ROW(cudaErrorLossyQuery)                                                                                       \
	ROW(cudaErrorSymbolNotFound)                                                                                   \
	ROW(cudaErrorNotReady)                                                                                         \
	ROW(cudaErrorIllegalAddress)                                                                                   \
	ROW(cudaErrorLaunchOutOfResources)                                                                             \
	ROW(cudaErrorPeerAccessAlreadyEnabled)                                                                         \
	ROW(cudaErrorPeerAccessNotEnabled)                                                                             \
	ROW(cudaErrorContextIsDestroyed)                                                                               \
	ROW(cudaErrorAssert)                                                                                           \
	ROW(cudaErrorTooManyPeers)                                                                                     \
	ROW(cudaErrorHostMemoryAlreadyRegistered)                                                                      \
	ROW(cudaErrorHostMemoryNotRegistered)                                                                          \
	ROW(cudaErrorLaunchFailure)                                                                                    \
	ROW(cudaErrorNotPermitted)                                                                                     \
	ROW(cudaErrorNotSupported)                                                                                     \
	ROW(cudaErrorSystemNotReady)                                                                                   \
	ROW(cudaErrorSystemDriverMismatch)                                                                             \
	ROW(cudaErrorStreamCaptureUnsupported)                                                                         \
	ROW(cudaErrorStreamCaptureInvalidated)                                                                         \
	ROW(cudaErrorStreamCaptureMerge)                                                                               \
	ROW(cudaErrorStreamCaptureUnmatched)                                                                           \
	ROW(cudaErrorStreamCaptureUnjoined)                                                                            \
	ROW(cudaErrorStreamCaptureIsolation)                                                                           \
	ROW(cudaErrorStreamCaptureImplicit)                                                                            \
	ROW(cudaErrorCapturedEvent)                                                                                    \
	ROW(cudaErrorStreamCaptureWrongThread)                                                                         \
	ROW(cudaErrorGraphExecUpdateFailure)                                                                           \
	ROW(cudaErrorUnknown)

static const struct {
	cudaError_t error;
	const char *name;
} names[] = {
#define ROW(error) {error, #error},
    ERRORS(ROW)
#undef ROW
};

SIM_EXPORT const char *cudaGetErrorName(cudaError_t error)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].error == error)
			return names[i].name;
	return "unrecognized error code";
}
