// SPDX-License-Identifier: Apache-2.0
/*
 * Conversion of sw_status to and from CUresult, errno values and texts.
 */
#include "shim/base/status.h"

#include <errno.h>

static __thread CUresult last_driver_result __attribute__((tls_model("initial-exec"))) = CUDA_ERROR_UNKNOWN;

CUresult status_result(enum sw_status status)
{
#define RESULT(name, result, ...) result,
	static const CUresult results[] = {STATUSES(RESULT)};

	if (status == SW_DRIVER)
		return last_driver_result;
	return (unsigned)status < SW_STATUS_COUNT ? results[status] : CUDA_ERROR_UNKNOWN;
}

const char *status_text(enum sw_status status)
{
#define TEXT(name, result, error, text) text,
	static const char *const texts[] = {STATUSES(TEXT)};

	return (unsigned)status < SW_STATUS_COUNT ? texts[status] : "unknown";
}

int status_errno(enum sw_status status)
{
#define ERRNO(name, result, error, text) -(error),
	static const int errors[] = {STATUSES(ERRNO)};

	return (unsigned)status < SW_STATUS_COUNT ? errors[status] : -EIO;
}

enum sw_status status_of(CUresult result)
{
	switch (result) {
	case CUDA_SUCCESS:
		return SW_OK;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return SW_NO_MEMORY;
	case CUDA_ERROR_INVALID_VALUE:
		return SW_INVALID;
	case CUDA_ERROR_NOT_SUPPORTED:
	case CUDA_ERROR_NOT_FOUND:
		return SW_NOT_SUPPORTED;
	case CUDA_ERROR_INVALID_CONTEXT:
		return SW_CONTEXT;
	default:
		last_driver_result = result;
		return SW_DRIVER;
	}
}
