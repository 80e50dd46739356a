#include "shim/pending.h"
#include "shim/backend.h"
#include "shim/capture.h"
#include "shim/real.h"

#include <stdatomic.h>

struct lock pending_lock = LOCK_INIT(LOCK_PENDING);
static struct ledger_row *list;
static atomic_uint n_pending;

void pending_add(struct ledger_row *row)
{
	lock_take(&pending_lock);
	row->next = list;
	list = row;
	atomic_fetch_add(&n_pending, 1);
	lock_drop(&pending_lock);
}

bool pending_any(void)
{
	return atomic_load_explicit(&n_pending, memory_order_relaxed) != 0;
}

/* The whole list, to be looked through without the lock; what stays is added again. */
static struct ledger_row *take_all(void)
{
	lock_take(&pending_lock);
	struct ledger_row *all = list;
	list = NULL;
	atomic_store(&n_pending, 0);
	lock_drop(&pending_lock);
	return all;
}

enum verdict { KEEP, FREE, FREE_WITHOUT_EVENT };

static void sift(enum verdict (*judge)(const struct ledger_row *row, void *argument), void *argument)
{
	for (struct ledger_row *row = take_all(), *next; row; row = next) {
		next = row->next;
		enum verdict verdict = judge(row, argument);

		if (verdict == KEEP) {
			pending_add(row);
			continue;
		}
		if (row->event && verdict == FREE)
			REAL(cuEventDestroy_v2)(row->event);
		backend_vmm.release(row);
	}
}

static enum verdict by_event(const struct ledger_row *row, void *argument)
{
	(void)argument;
	if (!row->event)
		return KEEP;
	/* Anything but "not ready" (a dead context, say) means that nothing runs any more. */
	return REAL(cuEventQuery)(row->event) == CUDA_ERROR_NOT_READY ? KEEP : FREE;
}

void pending_reap(void)
{
	if (!pending_any())
		return;
	CUstreamCaptureMode mode = capture_relax();
	sift(by_event, NULL);
	capture_restore(mode);
}

static enum verdict by_context(const struct ledger_row *row, void *argument)
{
	return row->context == argument && !row->event ? FREE : KEEP;
}

void pending_context_idle(CUcontext context)
{
	if (pending_any())
		sift(by_context, context);
}

static enum verdict by_waiting(const struct ledger_row *row, void *argument)
{
	(void)argument;
	return backend_wait_idle(row->context) == CUDA_SUCCESS ? FREE : KEEP;
}

bool pending_drain(void)
{
	if (!pending_any() || !capture_pause())
		return false;
	unsigned before = atomic_load(&n_pending);
	sift(by_waiting, NULL);
	capture_resume();
	return atomic_load(&n_pending) < before;
}

static enum verdict by_gone(const struct ledger_row *row, void *argument)
{
	return row->context == argument ? FREE_WITHOUT_EVENT : KEEP;
}

void pending_context_gone(CUcontext context)
{
	if (pending_any())
		sift(by_gone, context);
}
