// SPDX-License-Identifier: Apache-2.0
/*
 * submit_body.h: the body of an entry point that submits, for the files that generate such bodies from the rows of
 * hooks.def; and those of copies and hints, for the exported entry points and for code that makes copies and hints in
 * their place. While nothing is tracked, a body costs one counter, counting itself as inside the driver, two looks at
 * one flag, and one jump through the table. Otherwise it takes the steps of submission.h.
 */
#ifndef SPILLWAY_SUBMIT_BODY_H
#define SPILLWAY_SUBMIT_BODY_H

#include "shim/driver/real.h"
#include "shim/process/process.h"
#include "shim/stats/stats.h"
#include "shim/submit/submission.h"

#include <cuda.h>
#include <stdbool.h>
#include <string.h>

/* Removes the brackets around a list of parameters or arguments. */
#define SUBMIT_UNPACK(...) __VA_ARGS__

/* ---- operands.c ---- */

/*
 * What each submission names. Each row of hooks.def that submits work has one function in operands.c, declared from the
 * rows: operands_NAME(submission, arguments of the call) gives the submission the stream, the work, and every address.
 * A row without a definition does not link.
 *
 * These functions read only what the real call is about to read, and only as far as its arguments say. Arguments that
 * the driver would refuse (a NULL, a size that exceeds the address space) yield no name, or too many, and never crash
 * where the driver would not. They preserve errno. They allocate only for the submission's lists of names, and for
 * arrays of pointers (pointer_arrays.h).
 *
 * Locking: graph launches take GRAPH; they, kernels, copies and written words may take POINTER_ARRAYS; others no lock.
 */
/* clang-format off */
#define HOOK_SUBMIT(name, params, args) void operands_##name(struct submission *submission, SUBMIT_UNPACK params);
#define HOOK_SUBMIT_SYNC(name, params, args) void operands_##name(struct submission *submission, SUBMIT_UNPACK params);
#include "shim/driver/hooks.def"

/* ---- the body ---- */

/*
 * call: the expression that calls the driver. glance: one that says that the call surely names nothing that is backed
 * on use; asked while nothing else has to be known of it.
 */
#define SUBMIT_BODY_UNLESS(glance, call, name, params, args)                                                                          \
	static __attribute__((noinline)) CUresult tracked_##name params                                                \
	{                                                                                                              \
		struct submission *submission = submission_open(HOOK_##name);                                                               \
                                                                                                                       \
		if (submission)                                                                                               \
			operands_##name(submission, SUBMIT_UNPACK args);                                                      \
		CUresult result = submission_back(submission);                                                                \
		if (__builtin_expect(result != CUDA_SUCCESS, 0))                                                       \
			return result;                                                                                 \
		struct submission_stripe *inside;                                                                      \
		while (__builtin_expect(!(inside = admit(submission)), 0)) {                                           \
			result = submission_back(submission);                                                          \
			if (result != CUDA_SUCCESS)                                                                    \
				return result;                                                                         \
		}                                                                                                      \
		result = call;                                                                                         \
		submission_close(submission, inside);                                                                                \
		if (__builtin_expect(result == CUDA_ERROR_ILLEGAL_ADDRESS, 0))                                         \
			submission_faulted();                                                                          \
		return result;                                                                                         \
	}                                                                                                              \
	static inline CUresult track_##name params                                                                     \
	{                                                                                                              \
		/* Most programs that are ever watched are so from early on; this look spares them the second one. */  \
		uint32_t seen = atomic_load(&submission_state);                                                        \
                                                                                                                       \
		if (__builtin_expect(seen != 0, 0) && !(seen == SUBMISSION_ON_USE && (glance)))                        \
			return tracked_##name args;                                                                    \
		struct submission_stripe *inside = submission_enter();                                                               \
                                                                                                                       \
		if (__builtin_expect(atomic_load(&submission_state) & ~seen, 0)) {                                                           \
			submission_leave(inside);                                                                             \
			return tracked_##name args;                                                                    \
		}                                                                                                      \
		CUresult result = call;                                                                                \
		submission_leave(inside);                                                                                     \
		return result;                                                                                         \
	}
#define SUBMIT_BODY(call, name, params, args) SUBMIT_BODY_UNLESS(false, call, name, params, args)
/* Counts the call. At STAGE_OFF (process.h) it only calls the driver: nothing waits for submissions inside it. */
#define SUBMIT_BEGIN(name, args)                                                                                       \
	do {                                                                                                           \
		if (__builtin_expect(process_stage() == STAGE_OFF, 0))                                                    \
			return REAL(name) args;                                                                        \
		stats_call(HOOK_##name);                                                                               \
	} while (0)

/* clang-format on */

/* ---- copies and hints: submit_NAME() counts the call, tracks it and makes it ---- */

/* clang-format off */
#define HOOK_HINT(name, params, args) CUresult submit_##name(SUBMIT_UNPACK params);
#define HOOK_COPY(name, params, args) CUresult submit_##name(SUBMIT_UNPACK params);
#define HOOK_COPY_SYNC(name, params, args) CUresult submit_##name(SUBMIT_UNPACK params);
#include "shim/driver/hooks.def"
/* clang-format on */

/*
 * The first keeps peer access as it is from when this thread has looked at it (peer_hold), until the thread has
 * submitted its next copy or calls the second. Both may be called repeatedly.
 */
void submit_hold_access(void);
void submit_let_go_access(void);

/*
 * Waits for a synchronous copy or set, as CU_POINTER_ATTRIBUTE_SYNC_MEMOPS promises. result: what the copy returned; an
 * error is returned unchanged. Returns the result of the wait otherwise.
 */
CUresult submit_finish_memop(CUresult result, bool per_thread);

/*
 * Returns whether the spelling uses the per-thread default stream: its name ends in _ptds or _ptsz. Folded at compile
 * time.
 */
static inline bool submit_is_per_thread(const char *name)
{
	size_t n = strlen(name);

	return n > 5 && !strncmp(name + n - 5, "_pt", 3);
}

#endif
