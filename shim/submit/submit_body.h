/*
 * submit_body.h: the body of an entry point that submits, for the files that generate such bodies from the rows of
 * hooks.def. While nothing is tracked it costs one counter, counting itself as inside the driver, a look at one flag,
 * and one jump through the table. Otherwise it takes the steps of submission.h.
 */
#ifndef SPILLWAY_SUBMIT_BODY_H
#define SPILLWAY_SUBMIT_BODY_H

#include "shim/driver/real.h"
#include "shim/process/enter.h"
#include "shim/stats/stats.h"
#include "shim/submit/operands.h"

#define SUBMIT_UNPACK(...) __VA_ARGS__

/* clang-format off */
/* call: the expression that calls the driver. */
#define SUBMIT_BODY(call, name, params, args)                                                                          \
	static __attribute__((noinline)) CUresult tracked_##name params                                                \
	{                                                                                                              \
		struct submission *use = submission_open(HOOK_##name);                                                               \
                                                                                                                       \
		if (use)                                                                                               \
			operands_##name(use, SUBMIT_UNPACK args);                                                      \
		CUresult result = submission_back(use);                                                                \
		if (__builtin_expect(result != CUDA_SUCCESS, 0))                                                       \
			return result;                                                                                 \
		struct submission_stripe *inside = admit(use);                                                            \
		result = call;                                                                                         \
		submission_close(use, inside);                                                                                \
		if (__builtin_expect(result == CUDA_ERROR_ILLEGAL_ADDRESS, 0))                                         \
			submission_faulted();                                                                          \
		return result;                                                                                         \
	}                                                                                                              \
	static inline CUresult track_##name params                                                                     \
	{                                                                                                              \
		/* Most programs that are ever watched are so from early on; this look spares them the second one. */  \
		if (__builtin_expect(submission_is_watched(), 0))                                                             \
			return tracked_##name args;                                                                    \
		struct submission_stripe *inside = submission_enter();                                                               \
                                                                                                                       \
		if (__builtin_expect(submission_is_watched(), 0)) {                                                           \
			submission_leave(inside);                                                                             \
			return tracked_##name args;                                                                    \
		}                                                                                                      \
		CUresult result = call;                                                                                \
		submission_leave(inside);                                                                                     \
		return result;                                                                                         \
	}
/* Counts the call. At STAGE_OFF (process.h) it only calls the driver: nothing waits for submissions inside it. */
#define SUBMIT_BEGIN(name, args)                                                                                       \
	do {                                                                                                           \
		if (__builtin_expect(process_stage() == STAGE_OFF, 0))                                                    \
			return REAL(name) args;                                                                        \
		stats_call(HOOK_##name);                                                                               \
	} while (0)

/* clang-format on */

#endif
