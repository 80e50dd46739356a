/*
 * Bodies of everything that submits work or is only counted, generated from the rows. While the heap is under no
 * pressure a launch costs one counter, the mark that it is inside the driver, a look at one flag, and one jump through
 * the table. Under pressure it goes the way of use.h.
 */
#include "shim/context/capture.h"
#include "shim/entry/copy.h"
#include "shim/process/enter.h"
#include "shim/entry/hint.h"
#include "shim/entry/hook.h"
#include "shim/accounting/ledger.h"
#include "shim/device/peer.h"
#include "shim/serve/room.h"
#include "shim/serve/serve.h"
#include "shim/submit/operands.h"
#include "shim/submit/pdl.h"

#include <string.h>

#define ARGUMENTS(...) __VA_ARGS__

/* A launch loses its overlap here, where it leaves for the driver: tracked or not, in a capture or not. */
static inline CUresult launch_ex(pdl_launch_function launch, const CUlaunchConfig *config, CUfunction function,
				 void **params, void **extra)
{
	if (__builtin_expect(pdl_is_cleared(), 0))
		return pdl_launch(launch, config, function, params, extra);
	return launch(config, function, params, extra);
}

/* clang-format off */
#define SUBMIT(name, params, args)    SUBMIT_BY(REAL(name) args, name, params, args)
#define SUBMIT_EX(name, params, args) SUBMIT_BY(launch_ex(REAL(name), ARGUMENTS args), name, params, args)
/* call: how the driver is called. */
#define SUBMIT_BY(call, name, params, args)                                                                            \
	static __attribute__((noinline)) CUresult tracked_##name params                                                \
	{                                                                                                              \
		struct use *use = use_open(HOOK_##name);                                                               \
                                                                                                                       \
		if (use)                                                                                               \
			operands_##name(use, ARGUMENTS args);                                                          \
		struct use_stripe *inside = use_admit(use);                                                            \
		CUresult result = call;                                                                                \
		use_close(use, inside);                                                                                \
		return result;                                                                                         \
	}                                                                                                              \
	static inline CUresult submit_##name params                                                                    \
	{                                                                                                              \
		/* In most programs that are watched at all they are from early on: then one look is enough. */       \
		if (__builtin_expect(use_is_watched(), 0))                                                            \
			return tracked_##name args;                                                                    \
		struct use_stripe *inside = use_enter();                                                               \
                                                                                                                       \
		if (__builtin_expect(use_is_watched(), 0)) {                                                          \
			use_leave(inside);                                                                             \
			return tracked_##name args;                                                                    \
		}                                                                                                      \
		CUresult result = call;                                                                                \
		use_leave(inside);                                                                                     \
		return result;                                                                                         \
	}
#define HOOK_SUBMIT SUBMIT
#define HOOK_SUBMIT_SYNC SUBMIT
#define HOOK_LAUNCH_EX   SUBMIT_EX
#include "shim/driver/hooks.def"

/* Counted; when switched off for good (enter.h) not even that, and nobody waits for what is inside the driver. */
#define BEGIN(name, args)                                                                                              \
	do {                                                                                                           \
		if (__builtin_expect(life_stage() == STAGE_OFF, 0))                                                    \
			return REAL(name) args;                                                                        \
		stats_call(HOOK_##name);                                                                               \
	} while (0)

#define HOOK_SUBMIT(name, params, args)                                                                                \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		BEGIN(name, args);                                                                                     \
		return submit_##name args;                                                                             \
	}
/* A submission holds what it names back from leaving, so it is over before room is made. */
#define HOOK_LAUNCH(name, params, args)                                                                                \
	static __attribute__((noinline, cold)) CUresult again_##name params                                            \
	{                                                                                                              \
		CUresult result = CUDA_ERROR_OUT_OF_MEMORY;                                                            \
		struct room room = {0};                                                                                \
                                                                                                                       \
		while (result == CUDA_ERROR_OUT_OF_MEMORY && room_make_outside(&room, -1))                             \
			result = submit_##name args;                                                                   \
		room_end(&room, result);                                                                               \
		return result;                                                                                         \
	}                                                                                                              \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		BEGIN(name, args);                                                                                     \
		CUresult result = submit_##name args;                                                                  \
		return __builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0) ? again_##name args : result;           \
	}
#define HOOK_HINT(name, params, args)                                                                                  \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		BEGIN(name, args);                                                                                     \
		return hint_##name(&result, ARGUMENTS args) ? result : submit_##name args;                             \
	}
#define HOOK_COPY(name, params, args)                                                                                  \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		BEGIN(name, args);                                                                                     \
		if (!peer_is_any())                                                                                    \
			return submit_##name args;                                                                     \
		if (copy_##name(&result, ARGUMENTS args))                                                              \
			return result;                                                                                 \
		result = submit_##name args;                                                                           \
		copy_submitted();                                                                                      \
		return result;                                                                                         \
	}
#define HOOK_FORWARD(name, params, args)                                                                               \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		BEGIN(name, args);                                                                                     \
		return REAL(name) args;                                                                                \
	}
#include "shim/driver/hooks.def"
/* clang-format on */

/*
 * CU_POINTER_ATTRIBUTE_SYNC_MEMOPS promises that the synchronous copies and sets are synchronous even where they may
 * return early. The driver cannot be told so for heap memory, so while any heap block has it set, they all are. Only
 * the stream they run in is waited for: another one may be held by what this thread does next.
 */
static CUresult finish_memop(CUresult result, bool per_thread)
{
	struct enter_scope scope;

	if (result != CUDA_SUCCESS || !enter_serve(&scope))
		return result;
	CUstreamCaptureMode mode = capture_relax();
	result = per_thread ? REAL(cuStreamSynchronize_ptsz)(NULL) : REAL(cuStreamSynchronize)(NULL);
	capture_restore(mode);
	return enter_leave(&scope, result);
}

/* The spellings with a per-thread default stream end in _ptds; known when the body is compiled. */
static inline bool is_per_thread(const char *name)
{
	size_t n = strlen(name);

	return n > 5 && !strcmp(name + n - 5, "_ptds");
}

/* clang-format off */
#define HOOK_SUBMIT_SYNC(name, params, args)                                                                           \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		BEGIN(name, args);                                                                                     \
		CUresult result = submit_##name args;                                                                  \
		if (__builtin_expect(ledger_n_sync_memops() != 0, 0))                                                  \
			return finish_memop(result, is_per_thread(#name));                                             \
		return result;                                                                                         \
	}
#define HOOK_COPY_SYNC(name, params, args)                                                                             \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		BEGIN(name, args);                                                                                     \
		bool any = peer_is_any();                                                                              \
		if (any && copy_##name(&result, ARGUMENTS args))                                                       \
			return result;                                                                                 \
		result = submit_##name args;                                                                           \
		if (any)                                                                                               \
			copy_submitted();                                                                              \
		if (__builtin_expect(ledger_n_sync_memops() != 0, 0))                                                  \
			return finish_memop(result, is_per_thread(#name));                                             \
		return result;                                                                                         \
	}
#include "shim/driver/hooks.def"
/* clang-format on */
