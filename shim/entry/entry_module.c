/*
 * Bodies of what ends modules: the handles of their functions may be given out again, for functions that take
 * something else.
 */
#include "shim/entry/hook.h"
#include "shim/submit/kernel_params.h"
#include "shim/stats/stats.h"

/* Before, because the handle can be another thread's as soon as the driver has it back; after, see kernel_params.c. */
#define UNLOAD(name, type)                                                                                             \
	HOOK_EXPORT CUresult CUDAAPI name(type handle)                                                                 \
	{                                                                                                              \
		stats_call(HOOK_##name);                                                                               \
		kernel_params_drop();                                                                                  \
		CUresult result = REAL(name)(handle);                                                                  \
		kernel_params_drop();                                                                                  \
		return result;                                                                                         \
	}

UNLOAD(cuModuleUnload, CUmodule)
UNLOAD(cuLibraryUnload, CUlibrary)
