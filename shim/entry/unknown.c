// SPDX-License-Identifier: Apache-2.0
/*
 * unknown.c: bodies for functions whose parameters are not known (entry.h). A body takes and passes on every register
 * that can hold an argument, and 16 words of the caller's stack, as if they were arguments: integers and
 * floating-point numbers are assigned to registers independently of each other, and what finds none lies on the stack
 * in order. Where the function has fewer arguments, the rest is what happens to be there, read and not used. No
 * function of the driver has half as many.
 */
#include "shim/context/context.h"
#include "shim/entry/entry.h"
#include "shim/process/process.h"
#include "shim/submit/completion.h"
#include "shim/submit/submission.h"

#include <errno.h>

/* clang-format off */
#ifdef __aarch64__
#define EXTRA_TYPES uint64_t x6, uint64_t x7,
#define EXTRA x6, x7,
#else
#define EXTRA_TYPES
#define EXTRA
#endif
#define TYPES                                                                                                          \
	uint64_t x0, uint64_t x1, uint64_t x2, uint64_t x3, uint64_t x4, uint64_t x5, EXTRA_TYPES                      \
	double d0, double d1, double d2, double d3, double d4, double d5, double d6, double d7,                        \
	uint64_t s0, uint64_t s1, uint64_t s2, uint64_t s3, uint64_t s4, uint64_t s5, uint64_t s6, uint64_t s7,        \
	uint64_t s8, uint64_t s9, uint64_t s10, uint64_t s11, uint64_t s12, uint64_t s13, uint64_t s14, uint64_t s15
#define MANY                                                                                                           \
	x0, x1, x2, x3, x4, x5, EXTRA d0, d1, d2, d3, d4, d5, d6, d7,                                                  \
	s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15

/* Functions that no row knows, from the first on. Each is set once, by compare and exchange, by any thread. */
static _Atomic(void *) unknown_functions[UNKNOWN_MOST];

typedef uint64_t unknown_function(TYPES);

struct call {
	struct submission *submission;
	struct submission_stripe *inside; /* NULL: nothing is counted */
};

/* As a body of a known function (submit_body.h). Returns an error if the function must not be called. */
static __attribute__((noinline)) CUresult unknown_begin(unsigned i, struct call *ret_call)
{
	struct call call = {NULL, NULL};
	CUresult result = CUDA_SUCCESS;
	int saved = errno;

	*ret_call = call;
	if (process_stage() == STAGE_OFF)
		return CUDA_SUCCESS;
	stats_unknown_call();
	call.inside = submission_enter();
	if (submission_is_watched()) {
		submission_leave(call.inside);
		call.submission = submission_open(REAL_COUNT);
		if (call.submission) {
			submission_function(call.submission, UINT64_C(1) << 63 | i);
			submission_stream(call.submission, COMPLETION_ANY_STREAM, false);
			submission_unknown(call.submission);
		}
		result = submission_back(call.submission);
		while (result == CUDA_SUCCESS && !(call.inside = admit(call.submission)))
			result = submission_back(call.submission);
	}
	errno = saved;
	*ret_call = call;
	return result;
}

static __attribute__((noinline)) void unknown_end(struct call call, CUresult result)
{
	int saved = errno;
	CUdevice device;

	/* It may have made a context and left it current, whose work counts before the submission does not any more. */
	if (call.inside && process_counts())
		context_device(context_current(), &device);
	if (call.inside)
		submission_close(call.submission, call.inside);
	if (result == CUDA_ERROR_ILLEGAL_ADDRESS)
		submission_faulted();
	errno = saved;
}

static inline __attribute__((always_inline)) uint64_t call_it(unsigned i, TYPES)
{
	struct call call;
	uint64_t result = unknown_begin(i, &call);

	if (result != CUDA_SUCCESS)
		return result;
	unknown_function *function = (unknown_function *)atomic_load(&unknown_functions[i]);
	result = function(MANY);
	unknown_end(call, (CUresult)result);
	return result;
}

#define BODY(i) static uint64_t body_##i(TYPES) { return call_it(0x##i, MANY); }
#define NAME(i) (void *)body_##i,
#define SIXTEEN(X, h)                                                                                                  \
	X(h##0) X(h##1) X(h##2) X(h##3) X(h##4) X(h##5) X(h##6) X(h##7)                                                \
	X(h##8) X(h##9) X(h##a) X(h##b) X(h##c) X(h##d) X(h##e) X(h##f)
#define ALL(X)                                                                                                         \
	SIXTEEN(X, 0) SIXTEEN(X, 1) SIXTEEN(X, 2) SIXTEEN(X, 3) SIXTEEN(X, 4) SIXTEEN(X, 5) SIXTEEN(X, 6) SIXTEEN(X, 7)
ALL(BODY)
static void *const unknown_bodies[] = {ALL(NAME)};
/* clang-format on */

_Static_assert(sizeof(unknown_bodies) / sizeof(unknown_bodies[0]) == UNKNOWN_MOST, "a body for each");

void *unknown_body(void *function)
{
	for (unsigned i = 0; i < UNKNOWN_MOST; i++) {
		void *taken = NULL;

		if (atomic_compare_exchange_strong(&unknown_functions[i], &taken, function) || taken == function)
			return unknown_bodies[i];
	}
	return NULL;
}
