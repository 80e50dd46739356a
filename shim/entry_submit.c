/*
 * Bodies of everything that submits work or is only counted, generated from the rows. On the way of a launch stand one
 * counter and one jump through the table; the spill engine will add one predictable branch here, on a flag that is off
 * until the heap is under pressure.
 */
#include "shim/enter.h"
#include "shim/hook.h"
#include "shim/ledger.h"

/* clang-format off */
#define HOOK_SUBMIT(name, params, args)                                                                                \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		stats_call(HOOK_##name);                                                                               \
		return REAL(name) args;                                                                                \
	}
#define HOOK_FORWARD HOOK_SUBMIT
#include "shim/hooks.def"
/* clang-format on */

/*
 * CU_POINTER_ATTRIBUTE_SYNC_MEMOPS promises that the synchronous copies and sets are synchronous even where they may
 * return early. The driver cannot be told so for heap memory, so while any heap block has it set, they all are.
 */
static CUresult finish_memop(CUresult result)
{
	if (result == CUDA_SUCCESS && life_stage() == STAGE_RUNNING)
		result = REAL(cuCtxSynchronize)();
	return result;
}

/* clang-format off */
#define HOOK_SUBMIT_SYNC(name, params, args)                                                                           \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		stats_call(HOOK_##name);                                                                               \
		CUresult result = REAL(name) args;                                                                     \
		return __builtin_expect(ledger_n_sync_memops() == 0, 1) ? result : finish_memop(result);               \
	}
#include "shim/hooks.def"
/* clang-format on */
