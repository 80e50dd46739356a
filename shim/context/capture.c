// SPDX-License-Identifier: Apache-2.0
/*
 * Open stream captures: a list of the capturing streams, and two counters by which captures and waits for the GPU keep
 * out of each other's way.
 */
#include "shim/base/libc.h"
#include "shim/context/context.h"
#include "shim/driver/real.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct capturing {
	CUstream stream;
	CUcontext context;
	pid_t thread; /* compared for the per-thread default stream only */
	struct capturing *next;
};

static struct {
	struct capturing *list; /* under capture_lock */
	atomic_uint n_open;     /* captures open or about to open */
	atomic_uint n_waiting;  /* threads between capture_pause() and capture_resume() */
} captures;

struct lock capture_lock = LOCK_INIT(LOCK_CAPTURE);

bool capture_is_open(void)
{
	return atomic_load(&captures.n_open) != 0;
}

void capture_opening(void)
{
	const struct timespec step = {.tv_nsec = 50000};
	int before;

	atomic_fetch_add(&captures.n_open, 1);
	/* nanosleep() is a cancellation point; a thread that ended here would leave the count raised. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	for (unsigned i = 0; i < CAPTURE_PATIENCE_MS * 20 && atomic_load(&captures.n_waiting); i++)
		nanosleep(&step, NULL);
	pthread_setcancelstate(before, NULL);
}

/* Stream 0 of a _ptsz entry point and the handle 2 are the same stream, a different one in each thread. */
static CUstream capture_canonical(CUstream stream, bool per_thread)
{
	return per_thread && !stream ? CU_STREAM_PER_THREAD : stream;
}

void capture_opened(CUstream stream, bool per_thread, CUcontext context, bool success)
{
	struct capturing *entry = success ? malloc(sizeof(*entry)) : NULL;

	if (!entry) {
		/*
		 * Without memory for the entry the capture is forgotten: at worst a wait of the library invalidates
		 * it.
		 */
		atomic_fetch_sub(&captures.n_open, 1);
		return;
	}
	*entry = (struct capturing){
	    .stream = capture_canonical(stream, per_thread), .context = context, .thread = libc_gettid()};
	lock_take(&capture_lock);
	entry->next = captures.list;
	captures.list = entry;
	lock_drop(&capture_lock);
}

/* Removes the entries for which judge() returns true. */
static void remove_those(bool (*judge)(const struct capturing *entry, const void *argument), const void *argument)
{
	struct capturing *gone = NULL;

	lock_take(&capture_lock);
	for (struct capturing **at = &captures.list; *at;) {
		struct capturing *entry = *at;

		if (!judge(entry, argument)) {
			at = &entry->next;
			continue;
		}
		*at = entry->next;
		entry->next = gone;
		gone = entry;
	}
	lock_drop(&capture_lock);
	while (gone) {
		struct capturing *next = gone->next;

		atomic_fetch_sub(&captures.n_open, 1);
		free(gone);
		gone = next;
	}
}

static bool is_of_stream(const struct capturing *entry, const void *argument)
{
	CUstream stream = *(const CUstream *)argument;

	return entry->stream == stream && (stream != CU_STREAM_PER_THREAD || entry->thread == libc_gettid());
}

static bool is_of_context(const struct capturing *entry, const void *argument)
{
	return entry->context == argument;
}

static bool is_of_ended_thread(const struct capturing *entry, const void *argument)
{
	(void)argument;
	return entry->stream == CU_STREAM_PER_THREAD && entry->thread != libc_gettid() &&
	       syscall(SYS_tgkill, getpid(), entry->thread, 0) && errno == ESRCH;
}

bool capture_pause(void)
{
	atomic_fetch_add(&captures.n_waiting, 1);
	/*
	 * Captures that can never end, because the thread ended during one of its per-thread default stream, go first.
	 */
	if (capture_is_open())
		remove_those(is_of_ended_thread, NULL);
	if (!capture_is_open())
		return true;
	atomic_fetch_sub(&captures.n_waiting, 1);
	return false;
}

void capture_resume(void)
{
	atomic_fetch_sub(&captures.n_waiting, 1);
}

void capture_closed(CUstream stream, bool per_thread, bool still_capturing)
{
	stream = capture_canonical(stream, per_thread);
	if (!still_capturing)
		remove_those(is_of_stream, &stream);
}

void capture_forget(CUstream stream)
{
	if (capture_is_open())
		remove_those(is_of_stream, &stream);
}

void capture_forget_context(CUcontext context)
{
	if (capture_is_open())
		remove_those(is_of_context, context);
}

#define EXCHANGES 8

static bool capture_exchange(CUstreamCaptureMode *mode)
{
	for (unsigned i = 0; i < EXCHANGES; i++)
		if (REAL(cuThreadExchangeStreamCaptureMode)(mode) == CUDA_SUCCESS)
			return true;
	return false;
}

CUstreamCaptureMode capture_relax(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	return capture_exchange(&mode) ? mode : CAPTURE_MODE_KEPT;
}

void capture_restore(CUstreamCaptureMode mode)
{
	if (mode != CAPTURE_MODE_KEPT)
		capture_exchange(&mode);
}
