// SPDX-License-Identifier: Apache-2.0
/*
 * sim_errors.c: names and texts of CUresult, as far as the simulation, the library or a test gives it. The names are
 * cuda.h's own; the text of an error here is its name in words, except for the few that programs print often.
 */
#include "sim_internal.h"

#define ERRORS(ROW)                                                                                                    \
	ROW(CUDA_SUCCESS, "no error")                                                                                  \
	ROW(CUDA_ERROR_INVALID_VALUE, "invalid argument")                                                              \
	ROW(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                                                 \
	ROW(CUDA_ERROR_NOT_INITIALIZED, "initialization error")                                                        \
	ROW(CUDA_ERROR_DEINITIALIZED, "deinitialized")                                                                 \
	ROW(CUDA_ERROR_NO_DEVICE, "no device")                                                                         \
	ROW(CUDA_ERROR_INVALID_DEVICE, "invalid device")                                                               \
	ROW(CUDA_ERROR_INVALID_IMAGE, "invalid image")                                                                 \
	ROW(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                                                      \
	ROW(CUDA_ERROR_MAP_FAILED, "map failed")                                                                       \
	ROW(CUDA_ERROR_UNSUPPORTED_LIMIT, "unsupported limit")                                                         \
	ROW(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access unsupported")                                             \
	ROW(CUDA_ERROR_OPERATING_SYSTEM, "operating system")                                                           \
	ROW(CUDA_ERROR_INVALID_HANDLE, "invalid handle")                                                               \
	ROW(CUDA_ERROR_ILLEGAL_STATE, "illegal state")                                                                 \
	ROW(CUDA_ERROR_LOSSY_QUERY, "lossy query")                                                                     \
	ROW(CUDA_ERROR_NOT_FOUND, "not found")                                                                         \
	ROW(CUDA_ERROR_NOT_READY, "device not ready")                                                                  \
	ROW(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")                                    \
	ROW(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "launch out of resources")                                             \
	ROW(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access already enabled")                                     \
	ROW(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access not enabled")                                             \
	ROW(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")                                                   \
	ROW(CUDA_ERROR_ASSERT, "assert")                                                                               \
	ROW(CUDA_ERROR_TOO_MANY_PEERS, "too many peers")                                                               \
	ROW(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "host memory already registered")                               \
	ROW(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "host memory not registered")                                       \
	ROW(CUDA_ERROR_LAUNCH_FAILED, "launch failed")                                                                 \
	ROW(CUDA_ERROR_NOT_PERMITTED, "not permitted")                                                                 \
	ROW(CUDA_ERROR_NOT_SUPPORTED, "operation not supported")                                                       \
	ROW(CUDA_ERROR_SYSTEM_NOT_READY, "system not ready")                                                           \
	ROW(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system driver mismatch")                                               \
	ROW(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "stream capture unsupported")                                       \
	ROW(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "stream capture invalidated")                                       \
	ROW(CUDA_ERROR_STREAM_CAPTURE_MERGE, "stream capture merge")                                                   \
	ROW(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "stream capture unmatched")                                           \
	ROW(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "stream capture unjoined")                                             \
	ROW(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "stream capture isolation")                                           \
	ROW(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "stream capture implicit")                                             \
	ROW(CUDA_ERROR_CAPTURED_EVENT, "captured event")                                                               \
	ROW(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "stream capture wrong thread")                                     \
	ROW(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "graph exec update failure")                                         \
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
