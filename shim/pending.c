#include "shim/pending.h"
#include "shim/backend.h"
#include "shim/capture.h"
#include "shim/context.h"
#include "shim/real.h"

#include <stdatomic.h>
#include <time.h>

struct lock pending_lock = LOCK_INIT(LOCK_PENDING);
static struct ledger_row *list;
static atomic_uint n_pending;    /* on the list */
static _Atomic uint64_t n_added; /* ever */

static void put(struct ledger_row *row)
{
	lock_take(&pending_lock);
	row->next = list;
	list = row;
	atomic_fetch_add(&n_pending, 1);
	lock_drop(&pending_lock);
}

void pending_add(struct ledger_row *row)
{
	row->since = atomic_fetch_add(&n_added, 1);
	put(row);
}

uint64_t pending_mark(void)
{
	return atomic_load(&n_added);
}

bool pending_any(void)
{
	return atomic_load_explicit(&n_pending, memory_order_relaxed) != 0;
}

/*
 * Take those rows out of which judge says so. The judge may ask about events, under the lock: so nobody else sees a row
 * whose event is being asked about or destroyed, and a context that ends waits for us here (pending_take_context).
 */
static struct ledger_row *sift(bool (*judge)(struct ledger_row *row, const void *argument), const void *argument)
{
	struct ledger_row *taken = NULL;

	lock_take(&pending_lock);
	for (struct ledger_row **at = &list; *at;) {
		struct ledger_row *row = *at;

		if (!judge(row, argument)) {
			at = &row->next;
			continue;
		}
		*at = row->next;
		row->next = taken;
		taken = row;
		atomic_fetch_sub(&n_pending, 1);
	}
	lock_drop(&pending_lock);
	return taken;
}

void pending_release(struct ledger_row *rows)
{
	for (struct ledger_row *next; rows; rows = next) {
		next = rows->next;
		backend_vmm.release(rows);
	}
}

void pending_put_back(struct ledger_row *rows)
{
	for (struct ledger_row *next; rows; rows = next) {
		next = rows->next;
		put(rows);
	}
}

/* argument: may events be recorded now? Done only when the event says so: an error proves nothing. */
static bool by_event(struct ledger_row *row, const void *argument)
{
	if (!row->event && *(const bool *)argument) {
		row->event = context_record(row->context);
		row->event_context = row->context;
	}
	if (!row->event || REAL(cuEventQuery)(row->event) != CUDA_SUCCESS)
		return false;
	REAL(cuEventDestroy_v2)(row->event);
	row->event = NULL;
	return true;
}

unsigned pending_reap(int device)
{
	unsigned n = 0;

	if (!pending_any())
		return 0;
	bool may_record = capture_pause();
	CUstreamCaptureMode mode = capture_relax();
	struct ledger_row *done = sift(by_event, &may_record);
	capture_restore(mode);
	if (may_record)
		capture_resume();
	for (const struct ledger_row *row = done; row; row = row->next)
		n += row->device == device;
	pending_release(done);
	return n;
}

bool pending_wait(int device)
{
	const struct timespec step = {.tv_nsec = 50000};

	for (unsigned i = 0; i < PENDING_PATIENCE_MS * 20 && pending_any(); i++) {
		if (pending_reap(device))
			return true;
		nanosleep(&step, NULL);
	}
	return false;
}

struct idle {
	CUcontext context;
	uint64_t before;
};

static bool by_idle(struct ledger_row *row, const void *argument)
{
	const struct idle *idle = argument;

	return row->context == idle->context && row->since < idle->before && !row->event;
}

void pending_context_idle(CUcontext context, uint64_t before)
{
	struct idle idle = {context, before};

	if (pending_any())
		pending_release(sift(by_idle, &idle));
}

static bool by_end(struct ledger_row *row, const void *argument)
{
	return (row->event ? row->event_context : row->context) == argument;
}

struct ledger_row *pending_take_context(CUcontext context)
{
	return pending_any() ? sift(by_end, context) : NULL;
}
