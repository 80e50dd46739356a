/*
 * backend_pass.c: the backend that passes the request through to the driver.
 */
#include "shim/serve/backend.h"
#include "shim/driver/real.h"

static enum sw_status pass_alloc(struct device *device, const struct backend_request *request, struct ledger_row *row,
				 size_t *ret_pitch)
{
	CUdeviceptr address = 0;
	CUresult result;

	(void)device;
	if (request->height)
		result = REAL(cuMemAllocPitch_v2)(&address, ret_pitch, request->width, request->height,
						  (unsigned)request->element);
	else
		result = REAL(cuMemAlloc_v2)(&address, request->bytes);
	if (result != CUDA_SUCCESS)
		return status_of(result);
	row->kind = LEDGER_DRIVER;
	row->key = address;
	return SW_OK;
}

static CUresult pass_free(struct ledger_row *row)
{
	return REAL(cuMemFree_v2)(row->key);
}

const struct backend backend_pass = {
    .name = "driver",
    .alloc = pass_alloc,
    .free = pass_free,
};
