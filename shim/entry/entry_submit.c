/*
 * Exported bodies of the entry points that submit work, or are only counted and passed on, generated from the rows of
 * hooks.def.
 */
#include "shim/accounting/ledger.h"
#include "shim/device/peer.h"
#include "shim/entry/copy.h"
#include "shim/entry/entry.h"
#include "shim/process/process.h"
#include "shim/serve/make_room.h"
#include "shim/stats/stats.h"
#include "shim/submit/arguments.h"
#include "shim/submit/submit_body.h"

/*
 * Removes the permission to overlap from a launch, if the process must not overlap kernels. It is done here, just
 * before the driver, so that it covers launches that are tracked or not, in a capture or not.
 */
static inline CUresult launch_ex(pdl_launch_function launch, const CUlaunchConfig *config, CUfunction function,
				 void **params, void **extra)
{
	if (__builtin_expect(pdl_is_cleared(), 0))
		return pdl_launch(launch, config, function, params, extra);
	return launch(config, function, params, extra);
}

/* clang-format off */
#define SUBMIT(name, params, args)    SUBMIT_BODY(REAL(name) args, name, params, args)
#define SUBMIT_EX(name, params, args) SUBMIT_BODY(launch_ex(REAL(name), SUBMIT_UNPACK args), name, params, args)
#define HOOK_SUBMIT SUBMIT
#define HOOK_SUBMIT_SYNC SUBMIT
#define HOOK_LAUNCH_EX   SUBMIT_EX
/* submit_body.c generates these. */
#define HOOK_HINT(name, params, args)
#define HOOK_COPY(name, params, args)
#define HOOK_COPY_SYNC(name, params, args)
#include "shim/driver/hooks.def"

#define HOOK_SUBMIT(name, params, args)                                                                                \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		SUBMIT_BEGIN(name, args);                                                                              \
		return track_##name args;                                                                              \
	}
/*
 * A submission pins the blocks that it names, so it must have ended before room is made. If it was not the driver that
 * had no memory, no room is made: what finds none in the heap has had the host's as well, and each further try would
 * count as another refusal.
 */
#define HOOK_LAUNCH(name, params, args)                                                                                \
	static __attribute__((noinline, cold)) CUresult again_##name params                                            \
	{                                                                                                              \
		CUresult result = CUDA_ERROR_OUT_OF_MEMORY;                                                            \
		struct room room = {0};                                                                                \
                                                                                                                       \
		while (result == CUDA_ERROR_OUT_OF_MEMORY && !submission_was_refused() &&                              \
		       make_room_outside(&room, -1))                                                              \
			result = track_##name args;                                                                    \
		make_room_end(&room, result);                                                                               \
		return result;                                                                                         \
	}                                                                                                              \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		SUBMIT_BEGIN(name, args);                                                                              \
		CUresult result = track_##name args;                                                                   \
		return __builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0) ? again_##name args : result;           \
	}
#define HOOK_HINT(name, params, args)                                                                                  \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		if (!hint_##name(&result, SUBMIT_UNPACK args))                                                         \
			return submit_##name args;                                                                     \
		stats_call(HOOK_##name);                                                                               \
		return result;                                                                                         \
	}
/* A copy that is made in another way is counted, too, in addition to the call that replaces it. */
#define COPY(name, params, args)                                                                                       \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		if (!peer_is_any() || !copy_##name(&result, SUBMIT_UNPACK args))                                       \
			return submit_##name args;                                                                     \
		stats_call(HOOK_##name);                                                                               \
		if (__builtin_expect(result == CUDA_ERROR_ILLEGAL_ADDRESS, 0))                                         \
			submission_faulted();                                                                          \
		return result;                                                                                         \
	}
#define HOOK_COPY COPY
#define HOOK_COPY_SYNC COPY
#define HOOK_WAIT(name, params, args)                                                                                  \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		SUBMIT_BEGIN(name, args);                                                                              \
		CUresult result = REAL(name) args;                                                                     \
		if (__builtin_expect(result == CUDA_ERROR_ILLEGAL_ADDRESS, 0))                                         \
			submission_faulted();                                                                          \
		return result;                                                                                         \
	}
#define HOOK_FORWARD(name, params, args)                                                                               \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		SUBMIT_BEGIN(name, args);                                                                              \
		return REAL(name) args;                                                                                \
	}
#include "shim/driver/hooks.def"
/* clang-format on */

/* clang-format off */
#define HOOK_SUBMIT_SYNC(name, params, args)                                                                           \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		SUBMIT_BEGIN(name, args);                                                                              \
		CUresult result = track_##name args;                                                                   \
		if (__builtin_expect(ledger_n_sync_memops() != 0, 0))                                                  \
			return submit_finish_memop(result, submit_is_per_thread(#name));                               \
		return result;                                                                                         \
	}
#define HOOK_COPY_SYNC(name, params, args)
#include "shim/driver/hooks.def"
/* clang-format on */

/* ---- calls that take some of the driver's device memory as a side effect: for code, streams, graphs, limits ---- */

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
