/*
 * sim_errors.c: names and texts of CUresult. The names are cuda.h's own; the text of an error here is its name in
 * words, except for the few that programs print often.
 */
#include "sim_internal.h"

#define ERRORS(ROW)                                                                                                    \
	ROW(CUDA_SUCCESS, "no error")                                                                                  \
	ROW(CUDA_ERROR_INVALID_VALUE, "invalid argument")                                                              \
	ROW(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                                                 \
	ROW(CUDA_ERROR_NOT_INITIALIZED, "initialization error")                                                        \
	ROW(CUDA_ERROR_DEINITIALIZED, "deinitialized")                                                                 \
	ROW(CUDA_ERROR_PROFILER_DISABLED, "profiler disabled")                                                         \
	ROW(CUDA_ERROR_PROFILER_NOT_INITIALIZED, "profiler not initialized")                                           \
	ROW(CUDA_ERROR_PROFILER_ALREADY_STARTED, "profiler already started")                                           \
	ROW(CUDA_ERROR_PROFILER_ALREADY_STOPPED, "profiler already stopped")                                           \
	ROW(CUDA_ERROR_STUB_LIBRARY, "stub library")                                                                   \
	ROW(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, "call requires newer driver")                                       \
	ROW(CUDA_ERROR_DEVICE_UNAVAILABLE, "device unavailable")                                                       \
	ROW(CUDA_ERROR_NO_DEVICE, "no device")                                                                         \
	ROW(CUDA_ERROR_INVALID_DEVICE, "invalid device")                                                               \
	ROW(CUDA_ERROR_DEVICE_NOT_LICENSED, "device not licensed")                                                     \
	ROW(CUDA_ERROR_INVALID_IMAGE, "invalid image")                                                                 \
	ROW(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                                                      \
	ROW(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, "context already current")                                             \
	ROW(CUDA_ERROR_MAP_FAILED, "map failed")                                                                       \
	ROW(CUDA_ERROR_UNMAP_FAILED, "unmap failed")                                                                   \
	ROW(CUDA_ERROR_ARRAY_IS_MAPPED, "array is mapped")                                                             \
	ROW(CUDA_ERROR_ALREADY_MAPPED, "already mapped")                                                               \
	ROW(CUDA_ERROR_NO_BINARY_FOR_GPU, "no binary for gpu")                                                         \
	ROW(CUDA_ERROR_ALREADY_ACQUIRED, "already acquired")                                                           \
	ROW(CUDA_ERROR_NOT_MAPPED, "not mapped")                                                                       \
	ROW(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, "not mapped as array")                                                     \
	ROW(CUDA_ERROR_NOT_MAPPED_AS_POINTER, "not mapped as pointer")                                                 \
	ROW(CUDA_ERROR_ECC_UNCORRECTABLE, "ecc uncorrectable")                                                         \
	ROW(CUDA_ERROR_UNSUPPORTED_LIMIT, "unsupported limit")                                                         \
	ROW(CUDA_ERROR_CONTEXT_ALREADY_IN_USE, "context already in use")                                               \
	ROW(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access unsupported")                                             \
	ROW(CUDA_ERROR_INVALID_PTX, "invalid ptx")                                                                     \
	ROW(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, "invalid graphics context")                                           \
	ROW(CUDA_ERROR_NVLINK_UNCORRECTABLE, "nvlink uncorrectable")                                                   \
	ROW(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "jit compiler not found")                                               \
	ROW(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "unsupported ptx version")                                             \
	ROW(CUDA_ERROR_JIT_COMPILATION_DISABLED, "jit compilation disabled")                                           \
	ROW(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "unsupported exec affinity")                                         \
	ROW(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC, "unsupported devside sync")                                           \
	ROW(CUDA_ERROR_CONTAINED, "contained")                                                                         \
	ROW(CUDA_ERROR_INVALID_SOURCE, "invalid source")                                                               \
	ROW(CUDA_ERROR_FILE_NOT_FOUND, "file not found")                                                               \
	ROW(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "shared object symbol not found")                               \
	ROW(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "shared object init failed")                                         \
	ROW(CUDA_ERROR_OPERATING_SYSTEM, "operating system")                                                           \
	ROW(CUDA_ERROR_INVALID_HANDLE, "invalid handle")                                                               \
	ROW(CUDA_ERROR_ILLEGAL_STATE, "illegal state")                                                                 \
	ROW(CUDA_ERROR_LOSSY_QUERY, "lossy query")                                                                     \
	ROW(CUDA_ERROR_NOT_FOUND, "not found")                                                                         \
	ROW(CUDA_ERROR_NOT_READY, "device not ready")                                                                  \
	ROW(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")                                    \
	ROW(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "launch out of resources")                                             \
	ROW(CUDA_ERROR_LAUNCH_TIMEOUT, "launch timeout")                                                               \
	ROW(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING, "launch incompatible texturing")                                 \
	ROW(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access already enabled")                                     \
	ROW(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access not enabled")                                             \
	ROW(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "primary context active")                                               \
	ROW(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")                                                   \
	ROW(CUDA_ERROR_ASSERT, "assert")                                                                               \
	ROW(CUDA_ERROR_TOO_MANY_PEERS, "too many peers")                                                               \
	ROW(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "host memory already registered")                               \
	ROW(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "host memory not registered")                                       \
	ROW(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error")                                                   \
	ROW(CUDA_ERROR_ILLEGAL_INSTRUCTION, "illegal instruction")                                                     \
	ROW(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address")                                                       \
	ROW(CUDA_ERROR_INVALID_ADDRESS_SPACE, "invalid address space")                                                 \
	ROW(CUDA_ERROR_INVALID_PC, "invalid pc")                                                                       \
	ROW(CUDA_ERROR_LAUNCH_FAILED, "launch failed")                                                                 \
	ROW(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "cooperative launch too large")                                   \
	ROW(CUDA_ERROR_TENSOR_MEMORY_LEAK, "tensor memory leak")                                                       \
	ROW(CUDA_ERROR_NOT_PERMITTED, "not permitted")                                                                 \
	ROW(CUDA_ERROR_NOT_SUPPORTED, "operation not supported")                                                       \
	ROW(CUDA_ERROR_SYSTEM_NOT_READY, "system not ready")                                                           \
	ROW(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system driver mismatch")                                               \
	ROW(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "compat not supported on device")                               \
	ROW(CUDA_ERROR_MPS_CONNECTION_FAILED, "mps connection failed")                                                 \
	ROW(CUDA_ERROR_MPS_RPC_FAILURE, "mps rpc failure")                                                             \
	ROW(CUDA_ERROR_MPS_SERVER_NOT_READY, "mps server not ready")                                                   \
	ROW(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, "mps max clients reached")                                             \
	ROW(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, "mps max connections reached")                                     \
	ROW(CUDA_ERROR_MPS_CLIENT_TERMINATED, "mps client terminated")                                                 \
	ROW(CUDA_ERROR_CDP_NOT_SUPPORTED, "cdp not supported")                                                         \
	ROW(CUDA_ERROR_CDP_VERSION_MISMATCH, "cdp version mismatch")                                                   \
	ROW(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "stream capture unsupported")                                       \
	ROW(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "stream capture invalidated")                                       \
	ROW(CUDA_ERROR_STREAM_CAPTURE_MERGE, "stream capture merge")                                                   \
	ROW(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "stream capture unmatched")                                           \
	ROW(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "stream capture unjoined")                                             \
	ROW(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "stream capture isolation")                                           \
	ROW(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "stream capture implicit")                                             \
	ROW(CUDA_ERROR_CAPTURED_EVENT, "captured event")                                                               \
	ROW(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "stream capture wrong thread")                                     \
	ROW(CUDA_ERROR_TIMEOUT, "timeout")                                                                             \
	ROW(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "graph exec update failure")                                         \
	ROW(CUDA_ERROR_EXTERNAL_DEVICE, "external device")                                                             \
	ROW(CUDA_ERROR_INVALID_CLUSTER_SIZE, "invalid cluster size")                                                   \
	ROW(CUDA_ERROR_FUNCTION_NOT_LOADED, "function not loaded")                                                     \
	ROW(CUDA_ERROR_INVALID_RESOURCE_TYPE, "invalid resource type")                                                 \
	ROW(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "invalid resource configuration")                               \
	ROW(CUDA_ERROR_KEY_ROTATION, "key rotation")                                                                   \
	ROW(CUDA_ERROR_UNKNOWN, "unknown")

static const struct {
	CUresult error;
	const char *name, *text;
} errors[] = {
#define ROW(error, text) {error, #error, text},
    ERRORS(ROW)
#undef ROW
};

/* As the driver: an unknown number is INVALID_VALUE and gives NULL. */
static CUresult name(CUresult error, const char **ret_name, bool text)
{
	if (!ret_name)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		if (errors[i].error != error)
			continue;
		*ret_name = text ? errors[i].text : errors[i].name;
		return CUDA_SUCCESS;
	}
	*ret_name = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

SPELL_RAW(cuGetErrorName, (CUresult error, const char **ret_name), name(error, ret_name, false))
SPELL_RAW(cuGetErrorString, (CUresult error, const char **ret_text), name(error, ret_text, true))
