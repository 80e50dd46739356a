/*
 * backend.c: the free that is common to backends: wait until the context is idle, then release; else defer the free.
 */
#include "shim/serve/backend.h"
#include "shim/context/capture.h"
#include "shim/context/context.h"
#include "shim/serve/deferred_free.h"
#include "shim/stats/stats.h"
#include "shim/submit/submission.h"

/*
 * Checks the current context: entering another one may fail by chance, and if there is none the free is deferred all
 * the same.
 */
static CUresult died_of(void)
{
	CUresult result = context_died_of(NULL);

	return context_is_gone(result) ? CUDA_SUCCESS : result;
}

/*
 * cudaFree promises that work submitted before it is done when it returns. During a capture no thread may wait for
 * that, so the free is deferred. If waiting fails the program gets the driver's error, and the memory, which may
 * still be in use, is deferred too: it is free for the program, and for us when deferred_free.h finds it idle.
 */
CUresult backend_free_idle(struct ledger_row *row)
{
	CUcontext context = row->context;
	CUresult result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	uint64_t before = deferred_free_mark();

	if (capture_pause()) {
		result = context_wait_idle(context);
		capture_resume();
	}
	if (result == CUDA_ERROR_ILLEGAL_ADDRESS)
		submission_faulted();
	if (result != CUDA_SUCCESS) {
		stats_add(STAT_deferred_frees, 1);
		deferred_free_add(row);
		return result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ? died_of() : result;
	}
	row->home->release(row);
	deferred_free_context_idle(context, before);
	return CUDA_SUCCESS;
}
