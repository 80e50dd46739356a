/*
 * Bodies of the entry points that take some of the driver's device memory as a side effect: for code, streams,
 * graphs, limits. The call is passed on unchanged, and again if the driver had no memory for it and the heap could
 * make room.
 */
#include "shim/process/process.h"
#include "shim/stats/stats.h"
#include "shim/entry/hook.h"
#include "shim/serve/oom_retry.h"

/* clang-format off */
#define HOOK_OOM_RETRY(name, params, args)                                                                                  \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		OOM_RETRY_CALL(result, -1, REAL(name) args);                                                                \
		return result;                                                                                         \
	}
#include "shim/driver/hooks.def"
/* clang-format on */
