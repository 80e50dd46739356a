/*
 * submit_body.c: copies and hints to the driver: submit_NAME(), generated from the rows of hooks.def.
 */
#include "shim/submit/submit_body.h"
#include "shim/accounting/ledger.h"
#include "shim/context/context.h"
#include "shim/device/device.h"

static __thread bool holds __attribute__((tls_model("initial-exec")));

void submit_let_go_access(void)
{
	if (holds)
		peer_let_go();
	holds = false;
}

void submit_hold_access(void)
{
	if (!holds)
		peer_hold();
	holds = true;
}

/*
 * CU_POINTER_ATTRIBUTE_SYNC_MEMOPS promises that synchronous copies and sets are synchronous even where they could
 * return early. The attribute cannot be set in the driver for heap memory, so while any heap block has it, all of them
 * wait. They wait only for the stream in which they run, because another stream may depend on what this thread does
 * next.
 */
CUresult submit_finish_memop(CUresult result, bool per_thread)
{
	struct enter_scope scope;

	if (result != CUDA_SUCCESS || !enter_serve(&scope))
		return result;
	result = context_wait_stream(NULL, per_thread);
	if (result == CUDA_ERROR_ILLEGAL_ADDRESS)
		submission_faulted();
	return enter_leave(&scope, result);
}

/* clang-format off */
#define SUBMIT(name, params, args) SUBMIT_BODY(REAL(name) args, name, params, args)
#define HOOK_HINT      SUBMIT
#define HOOK_COPY      SUBMIT
#define HOOK_COPY_SYNC SUBMIT
#include "shim/driver/hooks.def"

#define HOOK_HINT(name, params, args)                                                                                  \
	CUresult submit_##name params                                                                                  \
	{                                                                                                              \
		SUBMIT_BEGIN(name, args);                                                                              \
		return track_##name args;                                                                              \
	}
#define HOOK_COPY(name, params, args)                                                                                  \
	CUresult submit_##name params                                                                                  \
	{                                                                                                              \
		SUBMIT_BEGIN(name, args);                                                                              \
		if (!peer_is_any())                                                                                    \
			return track_##name args;                                                                      \
		CUresult result = track_##name args;                                                                   \
		submit_let_go_access();                                                                                \
		return result;                                                                                         \
	}
#define HOOK_COPY_SYNC(name, params, args)                                                                             \
	CUresult submit_##name params                                                                                  \
	{                                                                                                              \
		SUBMIT_BEGIN(name, args);                                                                              \
		bool any = peer_is_any();                                                                              \
		CUresult result = track_##name args;                                                                   \
		if (any)                                                                                               \
			submit_let_go_access();                                                                        \
		if (__builtin_expect(ledger_n_sync_memops() != 0, 0))                                                  \
			return submit_finish_memop(result, submit_is_per_thread(#name));                               \
		return result;                                                                                         \
	}
#include "shim/driver/hooks.def"
/* clang-format on */
