/*
 * sim_cudart_errors.c: names of cudaError_t, from driver_types.h; texts come from the driver.
 */
#include "sim_cudart.h"

#define ERRORS(ROW)                                                                                                    \
	ROW(cudaSuccess)                                                                                               \
	ROW(cudaErrorInvalidValue)                                                                                     \
	ROW(cudaErrorMemoryAllocation)                                                                                 \
	ROW(cudaErrorInitializationError)                                                                              \
	ROW(cudaErrorCudartUnloading)                                                                                  \
	ROW(cudaErrorProfilerDisabled)                                                                                 \
	ROW(cudaErrorProfilerNotInitialized)                                                                           \
	ROW(cudaErrorProfilerAlreadyStarted)                                                                           \
	ROW(cudaErrorProfilerAlreadyStopped)                                                                           \
	ROW(cudaErrorInvalidConfiguration)                                                                             \
	ROW(cudaErrorInvalidPitchValue)                                                                                \
	ROW(cudaErrorInvalidSymbol)                                                                                    \
	ROW(cudaErrorInvalidHostPointer)                                                                               \
	ROW(cudaErrorInvalidDevicePointer)                                                                             \
	ROW(cudaErrorInvalidTexture)                                                                                   \
	ROW(cudaErrorInvalidTextureBinding)                                                                            \
	ROW(cudaErrorInvalidChannelDescriptor)                                                                         \
	ROW(cudaErrorInvalidMemcpyDirection)                                                                           \
	ROW(cudaErrorAddressOfConstant)                                                                                \
	ROW(cudaErrorTextureFetchFailed)                                                                               \
	ROW(cudaErrorTextureNotBound)                                                                                  \
	ROW(cudaErrorSynchronizationError)                                                                             \
	ROW(cudaErrorInvalidFilterSetting)                                                                             \
	ROW(cudaErrorInvalidNormSetting)                                                                               \
	ROW(cudaErrorMixedDeviceExecution)                                                                             \
	ROW(cudaErrorNotYetImplemented)                                                                                \
	ROW(cudaErrorMemoryValueTooLarge)                                                                              \
	ROW(cudaErrorStubLibrary)                                                                                      \
	ROW(cudaErrorInsufficientDriver)                                                                               \
	ROW(cudaErrorCallRequiresNewerDriver)                                                                          \
	ROW(cudaErrorInvalidSurface)                                                                                   \
	ROW(cudaErrorDuplicateVariableName)                                                                            \
	ROW(cudaErrorDuplicateTextureName)                                                                             \
	ROW(cudaErrorDuplicateSurfaceName)                                                                             \
	ROW(cudaErrorDevicesUnavailable)                                                                               \
	ROW(cudaErrorIncompatibleDriverContext)                                                                        \
	ROW(cudaErrorMissingConfiguration)                                                                             \
	ROW(cudaErrorPriorLaunchFailure)                                                                               \
	ROW(cudaErrorLaunchMaxDepthExceeded)                                                                           \
	ROW(cudaErrorLaunchFileScopedTex)                                                                              \
	ROW(cudaErrorLaunchFileScopedSurf)                                                                             \
	ROW(cudaErrorSyncDepthExceeded)                                                                                \
	ROW(cudaErrorLaunchPendingCountExceeded)                                                                       \
	ROW(cudaErrorInvalidDeviceFunction)                                                                            \
	ROW(cudaErrorNoDevice)                                                                                         \
	ROW(cudaErrorInvalidDevice)                                                                                    \
	ROW(cudaErrorDeviceNotLicensed)                                                                                \
	ROW(cudaErrorSoftwareValidityNotEstablished)                                                                   \
	ROW(cudaErrorStartupFailure)                                                                                   \
	ROW(cudaErrorInvalidKernelImage)                                                                               \
	ROW(cudaErrorDeviceUninitialized)                                                                              \
	ROW(cudaErrorMapBufferObjectFailed)                                                                            \
	ROW(cudaErrorUnmapBufferObjectFailed)                                                                          \
	ROW(cudaErrorArrayIsMapped)                                                                                    \
	ROW(cudaErrorAlreadyMapped)                                                                                    \
	ROW(cudaErrorNoKernelImageForDevice)                                                                           \
	ROW(cudaErrorAlreadyAcquired)                                                                                  \
	ROW(cudaErrorNotMapped)                                                                                        \
	ROW(cudaErrorNotMappedAsArray)                                                                                 \
	ROW(cudaErrorNotMappedAsPointer)                                                                               \
	ROW(cudaErrorECCUncorrectable)                                                                                 \
	ROW(cudaErrorUnsupportedLimit)                                                                                 \
	ROW(cudaErrorDeviceAlreadyInUse)                                                                               \
	ROW(cudaErrorPeerAccessUnsupported)                                                                            \
	ROW(cudaErrorInvalidPtx)                                                                                       \
	ROW(cudaErrorInvalidGraphicsContext)                                                                           \
	ROW(cudaErrorNvlinkUncorrectable)                                                                              \
	ROW(cudaErrorJitCompilerNotFound)                                                                              \
	ROW(cudaErrorUnsupportedPtxVersion)                                                                            \
	ROW(cudaErrorJitCompilationDisabled)                                                                           \
	ROW(cudaErrorUnsupportedExecAffinity)                                                                          \
	ROW(cudaErrorUnsupportedDevSideSync)                                                                           \
	ROW(cudaErrorContained)                                                                                        \
	ROW(cudaErrorInvalidSource)                                                                                    \
	ROW(cudaErrorFileNotFound)                                                                                     \
	ROW(cudaErrorSharedObjectSymbolNotFound)                                                                       \
	ROW(cudaErrorSharedObjectInitFailed)                                                                           \
	ROW(cudaErrorOperatingSystem)                                                                                  \
	ROW(cudaErrorInvalidResourceHandle)                                                                            \
	ROW(cudaErrorIllegalState)                                                                                     \
	ROW(cudaErrorLossyQuery)                                                                                       \
	ROW(cudaErrorSymbolNotFound)                                                                                   \
	ROW(cudaErrorNotReady)                                                                                         \
	ROW(cudaErrorIllegalAddress)                                                                                   \
	ROW(cudaErrorLaunchOutOfResources)                                                                             \
	ROW(cudaErrorLaunchTimeout)                                                                                    \
	ROW(cudaErrorLaunchIncompatibleTexturing)                                                                      \
	ROW(cudaErrorPeerAccessAlreadyEnabled)                                                                         \
	ROW(cudaErrorPeerAccessNotEnabled)                                                                             \
	ROW(cudaErrorSetOnActiveProcess)                                                                               \
	ROW(cudaErrorContextIsDestroyed)                                                                               \
	ROW(cudaErrorAssert)                                                                                           \
	ROW(cudaErrorTooManyPeers)                                                                                     \
	ROW(cudaErrorHostMemoryAlreadyRegistered)                                                                      \
	ROW(cudaErrorHostMemoryNotRegistered)                                                                          \
	ROW(cudaErrorHardwareStackError)                                                                               \
	ROW(cudaErrorIllegalInstruction)                                                                               \
	ROW(cudaErrorMisalignedAddress)                                                                                \
	ROW(cudaErrorInvalidAddressSpace)                                                                              \
	ROW(cudaErrorInvalidPc)                                                                                        \
	ROW(cudaErrorLaunchFailure)                                                                                    \
	ROW(cudaErrorCooperativeLaunchTooLarge)                                                                        \
	ROW(cudaErrorTensorMemoryLeak)                                                                                 \
	ROW(cudaErrorNotPermitted)                                                                                     \
	ROW(cudaErrorNotSupported)                                                                                     \
	ROW(cudaErrorSystemNotReady)                                                                                   \
	ROW(cudaErrorSystemDriverMismatch)                                                                             \
	ROW(cudaErrorCompatNotSupportedOnDevice)                                                                       \
	ROW(cudaErrorMpsConnectionFailed)                                                                              \
	ROW(cudaErrorMpsRpcFailure)                                                                                    \
	ROW(cudaErrorMpsServerNotReady)                                                                                \
	ROW(cudaErrorMpsMaxClientsReached)                                                                             \
	ROW(cudaErrorMpsMaxConnectionsReached)                                                                         \
	ROW(cudaErrorMpsClientTerminated)                                                                              \
	ROW(cudaErrorCdpNotSupported)                                                                                  \
	ROW(cudaErrorCdpVersionMismatch)                                                                               \
	ROW(cudaErrorStreamCaptureUnsupported)                                                                         \
	ROW(cudaErrorStreamCaptureInvalidated)                                                                         \
	ROW(cudaErrorStreamCaptureMerge)                                                                               \
	ROW(cudaErrorStreamCaptureUnmatched)                                                                           \
	ROW(cudaErrorStreamCaptureUnjoined)                                                                            \
	ROW(cudaErrorStreamCaptureIsolation)                                                                           \
	ROW(cudaErrorStreamCaptureImplicit)                                                                            \
	ROW(cudaErrorCapturedEvent)                                                                                    \
	ROW(cudaErrorStreamCaptureWrongThread)                                                                         \
	ROW(cudaErrorTimeout)                                                                                          \
	ROW(cudaErrorGraphExecUpdateFailure)                                                                           \
	ROW(cudaErrorExternalDevice)                                                                                   \
	ROW(cudaErrorInvalidClusterSize)                                                                               \
	ROW(cudaErrorFunctionNotLoaded)                                                                                \
	ROW(cudaErrorInvalidResourceType)                                                                              \
	ROW(cudaErrorInvalidResourceConfiguration)                                                                     \
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
