/*
 * Bodies of the entry points that make and destroy arrays. Arrays are opaque and stay with the driver. The device
 * memory that they take is not available to the heap, so it is counted with the driver's and charged to the device's
 * budget (account.h says how much).
 */
#include "shim/serve/account.h"
#include "shim/process/enter.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/entry/hook.h"
#include "shim/serve/oom_retry.h"
#include "shim/serve/serve.h"

/* Each form of the descriptor, converted to the widest one. */
#define PLANE(d)                                                                                                       \
	{                                                                                                              \
		.Width = (d)->Width, .Height = (d)->Height, .Format = (d)->Format, .NumChannels = (d)->NumChannels     \
	}
#define SOLID(d)                                                                                                       \
	{                                                                                                              \
		.Width = (d)->Width, .Height = (d)->Height, .Depth = (d)->Depth, .Format = (d)->Format,                \
		.NumChannels = (d)->NumChannels, .Flags = (d)->Flags                                                   \
	}
#define ARRAY_cuArrayCreate          PLANE(pAllocateArray)
#define ARRAY_cuArrayCreate_v2       PLANE(pAllocateArray)
#define ARRAY_cuArray3DCreate        SOLID(pAllocateArray)
#define ARRAY_cuArray3DCreate_v2     SOLID(pAllocateArray)
#define ARRAY_cuMipmappedArrayCreate SOLID(pMipmappedArrayDesc)
#define LEVELS_cuArrayCreate         1
#define LEVELS_cuArrayCreate_v2      1
#define LEVELS_cuArray3DCreate       1
#define LEVELS_cuArray3DCreate_v2    1
/* The driver limits the number of levels to what the size allows: down to 1 x 1 x 1. */
#define LEVELS_cuMipmappedArrayCreate levels_of(pMipmappedArrayDesc, numMipmapLevels)

static unsigned levels_of(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned asked)
{
	size_t most = array->Width | array->Height;
	unsigned levels = 1;

	if (!(array->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
		most |= array->Depth;
	while (most >>= 1)
		levels++;
	return asked < levels ? asked : levels;
}

/* Size of the array. The driver must have accepted the descriptor. */
#define BYTES(name) array_bytes(&(CUDA_ARRAY3D_DESCRIPTOR)ARRAY_##name, LEVELS_##name)

/* If the driver has no memory left, the heap makes room, and the call is made again (oom_retry.h). */
/* clang-format off */
#define HOOK_MAKE(name, params, args)                                                                                  \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		struct enter_scope scope;                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		if (!lifecycle_enter(&scope))                                                                        \
			return serve_refusal() ? serve_refusal() : REAL(name) args;                                    \
		struct oom_retry room = {0};                                                                                \
		do                                                                                                     \
			result = REAL(name) args;                                                                      \
		while (result == CUDA_ERROR_OUT_OF_MEMORY && oom_retry_make(&room, -1, BYTES(name)));                       \
		oom_retry_end(&room, result);                                                                               \
		if (result == CUDA_SUCCESS)                                                                            \
			account_note(LEDGER_ARRAY, (uint64_t)(uintptr_t)*pHandle, BYTES(name), -1);                      \
		return enter_leave(&scope, result);                                                                    \
	}
#include "shim/driver/hooks.def"
/* clang-format on */

/*
 * The row is removed before the driver's call, which may give the handle to another thread, and restored if it fails.
 */
#define DESTROY(name, type)                                                                                            \
	HOOK_EXPORT CUresult CUDAAPI name(type handle)                                                                 \
	{                                                                                                              \
		struct enter_scope scope;                                                                              \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		if (!enter_serve(&scope))                                                                       \
			return REAL(name)(handle);                                                                     \
		struct ledger_row *row = account_forget(LEDGER_ARRAY, (uint64_t)(uintptr_t)handle);                    \
		CUresult result = REAL(name)(handle);                                                                  \
		account_forgotten(row, result == CUDA_SUCCESS);                                                        \
		return enter_leave(&scope, result);                                                                    \
	}

DESTROY(cuArrayDestroy, CUarray)
DESTROY(cuMipmappedArrayDestroy, CUmipmappedArray)
