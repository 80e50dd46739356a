#include "shim/capture.h"
#include "shim/log.h"
#include "shim/real.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

struct capturing {
	CUstream stream;
	pthread_t thread; /* only told apart for the per-thread default stream */
	struct capturing *next;
};

struct lock capture_lock = LOCK_INIT(LOCK_CAPTURE);
static struct capturing *list;
static atomic_uint n_open;    /* captures open or about to be */
static atomic_uint n_waiting; /* threads of ours between pause and resume */

bool capture_is_open(void)
{
	return atomic_load(&n_open) != 0;
}

bool capture_pause(void)
{
	atomic_fetch_add(&n_waiting, 1);
	if (!capture_is_open())
		return true;
	atomic_fetch_sub(&n_waiting, 1);
	return false;
}

void capture_resume(void)
{
	atomic_fetch_sub(&n_waiting, 1);
}

void capture_opening(void)
{
	const struct timespec step = {.tv_nsec = 50000};

	atomic_fetch_add(&n_open, 1);
	for (unsigned i = 0; i < CAPTURE_PATIENCE_MS * 20 && atomic_load(&n_waiting); i++)
		nanosleep(&step, NULL);
}

/* Stream 0 of a _ptsz entry point and the handle 2 are the same stream, another one for each thread. */
static CUstream canonical(CUstream stream, bool per_thread)
{
	return per_thread && !stream ? CU_STREAM_PER_THREAD : stream;
}

static bool is_same(const struct capturing *entry, CUstream stream)
{
	return entry->stream == stream &&
	       (stream != CU_STREAM_PER_THREAD || pthread_equal(entry->thread, pthread_self()));
}

void capture_opened(CUstream stream, bool per_thread, bool success)
{
	struct capturing *entry = success ? malloc(sizeof(*entry)) : NULL;

	if (!entry) {
		/* Without memory for the entry we forget the capture: the worst is what happens without us. */
		atomic_fetch_sub(&n_open, 1);
		return;
	}
	*entry = (struct capturing){.stream = canonical(stream, per_thread), .thread = pthread_self()};
	lock_take(&capture_lock);
	entry->next = list;
	list = entry;
	lock_drop(&capture_lock);
}

static void remove_stream(CUstream stream)
{
	struct capturing *found = NULL;

	lock_take(&capture_lock);
	for (struct capturing **at = &list; *at; at = &(*at)->next) {
		if (!is_same(*at, stream))
			continue;
		found = *at;
		*at = found->next;
		break;
	}
	lock_drop(&capture_lock);
	if (found)
		atomic_fetch_sub(&n_open, 1);
	free(found);
}

void capture_closed(CUstream stream, bool per_thread, bool still_capturing)
{
	if (!still_capturing)
		remove_stream(canonical(stream, per_thread));
}

void capture_forget(CUstream stream)
{
	if (capture_is_open())
		remove_stream(stream);
}

CUstreamCaptureMode capture_relax(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	return mode;
}

void capture_restore(CUstreamCaptureMode mode)
{
	REAL(cuThreadExchangeStreamCaptureMode)(&mode);
}
