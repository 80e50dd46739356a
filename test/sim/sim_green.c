// SPDX-License-Identifier: Apache-2.0
/*
 * sim_green.c: green contexts: a part of a device with a context of its own for what is submitted. Its memory belongs
 * to the primary context of the device, which lives as long. How much of a device it is makes no difference here.
 */
#include "sim_context.h"

struct CUgreenCtx_st {
	CUgreenCtx next;
	CUcontext context;
};
static CUgreenCtx greens;

static bool is_green(CUgreenCtx green)
{
	for (CUgreenCtx at = greens; at; at = at->next)
		if (at == green)
			return at->context->alive;
	return false;
}

static CUresult create(CUgreenCtx *ret_green, CUdevice device, unsigned flags)
{
	CUgreenCtx green;
	CUcontext primary;

	if (!ret_green || flags != CU_GREEN_CTX_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = sim_primary_retain(&primary, device);
	if (result)
		return result;
	green = calloc(1, sizeof(*green));
	green->context = sim_context_new(device);
	green->context->memory = primary;
	green->next = greens;
	greens = green;
	*ret_green = green;
	return CUDA_SUCCESS;
}

static CUresult context_of(CUcontext *ret_context, CUgreenCtx green)
{
	if (!ret_context)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_green(green))
		return sim_why(CUDA_ERROR_INVALID_CONTEXT, "%p is not a green context", (void *)green);
	*ret_context = green->context;
	return CUDA_SUCCESS;
}

static CUresult destroy(CUgreenCtx green)
{
	if (!is_green(green))
		return sim_why(CUDA_ERROR_INVALID_CONTEXT, "%p is not a green context", (void *)green);
	sim_context_end(green->context);
	return sim_primary_release(green->context->device);
}

SPELL_FREE(cuGreenCtxCreate, (CUgreenCtx * green, CUdevResourceDesc part, CUdevice device, unsigned flags),
	   ((void)part, create(green, device, flags)))
SPELL_FREE(cuCtxFromGreenCtx, (CUcontext * context, CUgreenCtx green), context_of(context, green))
SPELL_FREE(cuGreenCtxDestroy, (CUgreenCtx green), destroy(green))
