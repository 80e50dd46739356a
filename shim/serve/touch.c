// SPDX-License-Identifier: Apache-2.0
/*
 * touch.c: gives the CPU, between submissions, what the GPU has of managed memory on the heap (managed.h).
 *
 * The pages that the CPU has are a copy of what the heap has. The kernel's page table says what they are: an absent
 * page is the GPU's, a protected one has been read, any other one has been written. While the CPU has any, the GPU does
 * nothing: SUBMISSION_TOUCHED is set, so whatever is submitted brings all of them back first, whether or not it names
 * them (managed_bring). So no address that a kernel finds in memory need be known here.
 *
 * Who touches and who submits meet without a lock. Here the flag is set first (submission_set_touched), and what is
 * inside the driver is looked at second (submission_is_quiet). A submission counts as inside first (submission_enter),
 * and looks at the flag second (track_NAME, admit). What was inside by then is waited for, and what it submitted.
 *
 * One thread serves one touch after the other. It takes memory and calls the driver, and may wait for what the toucher
 * holds, if that is inside the driver; the pager ends the touch then.
 */
#include "shim/base/clock.h"
#include "shim/base/libc.h"
#include "shim/base/log.h"
#include "shim/base/number.h"
#include "shim/base/pager.h"
#include "shim/context/context.h"
#include "shim/driver/real.h"
#include "shim/process/process.h"
#include "shim/serve/make_room.h"
#include "shim/serve/types.h"
#include "shim/stats/stats.h"
#include "shim/submit/completion.h"
#include "shim/submit/submission.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define STACK_BYTES ((size_t)1 << 20)

static struct managed_state *const managed = &serve_state.managed;

/* ---- waiting for the GPU ---- */

#define POLL_NS        20000
#define LOOKS_AT_ONCE  20
#define MS             UINT64_C(1000000)
#define PATIENCE_FIRST (20 * MS) /* with the turn; doubles each time */
#define PATIENCE_MOST  (20000 * MS)
/* In all. A function of the host, in which the touch may be, is a part of the GPU's work. */
#define WAIT_MOST(uses_host) ((uses_host) ? 10000 * MS : PAGER_MS * MS)

/* The GPU is often idle, and then tells so within a few microseconds. */
static bool goes_on(const struct pager_fault *fault, uint64_t until, unsigned *n_looks)
{
	if (++*n_looks > LOOKS_AT_ONCE)
		clock_sleep(POLL_NS);
	else
		sched_yield();
	return clock_now() < until && pager_has(fault) && process_stage() == STAGE_RUNNING;
}

/* Waits until nothing is inside the driver, and all that was submitted is complete. As the mover does (quiesce.c). */
static bool wait_until_idle(const struct pager_fault *fault, uint64_t patience)
{
	uint64_t until = clock_now() + patience;
	enum context_idleness state = CONTEXT_UNKNOWN;
	struct context_idle idle;
	unsigned n_looks = 0;

	while (!submission_is_quiet(CONTEXT_ALL_DEVICES))
		if (!goes_on(fault, until, &n_looks))
			return false;
	uint64_t newest = completion_newest();
	do {
		/* Nobody can tell before it ends, and who captures may wait for the turn. */
		if (state == CONTEXT_UNKNOWN && capture_is_open())
			return false;
		if (state != CONTEXT_UNKNOWN || context_idle_ask_living(CONTEXT_ALL_DEVICES, &idle))
			state = context_idle_look(&idle);
		if (state == CONTEXT_IDLE && completion_is_idle(0, CONTEXT_ALL_DEVICES, &idle, newest))
			return true;
		if (state == CONTEXT_IDLE)
			state = CONTEXT_UNKNOWN;
	} while (goes_on(fault, until, &n_looks));
	if (state == CONTEXT_BUSY)
		context_idle_forget(&idle);
	return false;
}

/* ---- one touch ---- */

/* Touches in a row bring more and more; the first one brings what the driver would move at once. */
#define WINDOW_FIRST ((size_t)64 << 10)

static struct touch_window window_of(const struct pager_fault *fault)
{
	struct touch_window *last = &managed->touch_last;
	bool in_a_row = fault->at == last->at + last->bytes;
	CUdeviceptr at = in_a_row ? fault->at : fault->at / WINDOW_FIRST * WINDOW_FIRST;
	size_t bytes = in_a_row ? 2 * last->bytes : WINDOW_FIRST, room = HEAP_UNIT - at % HEAP_UNIT;

	*last = (struct touch_window){at, bytes < room ? bytes : room};
	return *last;
}

static CUresult fetch(void *argument, struct managed it, CUstream stream)
{
	const struct touch_window *window = argument;
	CUresult result = REAL(cuMemcpyDtoHAsync_v2)(managed->touch_stage, window->at, window->bytes, stream);

	(void)it;
	return result == CUDA_SUCCESS ? REAL(cuStreamSynchronize)(stream) : result;
}

static enum sw_status fetch_window(struct managed it, struct touch_window *window)
{
	CUresult result = managed_on_stream(it, window->at, window->bytes, true, fetch, window);

	stats_add(STAT_managed_touched_bytes, result == CUDA_SUCCESS ? window->bytes : 0);
	/* Errors may pass, also that of a context that ended or died; INVALID_CONTEXT stays: there is no other one. */
	return result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_CONTEXT ? status_of(result) : SW_BUSY;
}

/* Returns BUSY if the touch must wait for a later turn. Settles it, or returns an error for which it is refused. */
static enum sw_status serve_in_turn(struct managed it, const struct pager_fault *fault, uint64_t patience)
{
	_Atomic uint8_t *side = &managed_state_of(it)->side;
	bool first = atomic_load(side) == ON_USE_GPU, only = !managed->n_touched;
	struct touch_window window = window_of(fault);
	enum sw_status status = SW_OK;

	if (first && !managed_touched(it))
		return SW_NO_HOST_MEMORY;
	/* As long as anything is touched, nothing has run since. */
	if (only && !wait_until_idle(fault, patience))
		status = SW_BUSY;
	/* It has memory, but for what was freed and made anew meanwhile. */
	if (status == SW_OK && !arena_look(managed_arena(it), window.at))
		status = SW_BUSY;
	if (status == SW_OK && !fault->is_protected)
		status = fetch_window(it, &window);
	/* Before the toucher can go on, and look at the figures. */
	stats_add(STAT_managed_touches, status == SW_OK);
	/* Pages may be written before all are there, or without that. */
	if (status == SW_OK && fault->is_write)
		atomic_store(side, ON_USE_DIRTY);
	else if (status != SW_OK && first) {
		atomic_store(side, ON_USE_GPU);
		managed_touched_end(it);
	}
	if (status == SW_OK &&
	    !(fault->is_protected ? pager_allow((void *)window.at, window.bytes)
				  : pager_give((void *)window.at, window.bytes, managed->touch_stage, fault->is_write)))
		status = SW_NO_HOST_MEMORY;
	return status;
}

static enum sw_status serve_once(const struct pager_fault *fault, uint64_t patience)
{
	struct managed it;
	enum sw_status status = SW_OK;

	/* Before the turn: to make room may need those that wait for it. */
	if (managed_find(fault->at, &it) && !arena_on_use_is_cpus(managed_arena(it), it.first) &&
	    !arena_look(managed_arena(it), fault->at)) {
		status = atomic_load(&managed->take)(it.device, fault->at / HEAP_UNIT * HEAP_UNIT, HEAP_UNIT, false);
		on_use_settle();
	}
	managed_turn_begin();
	/* Settled by who had the turn; or it is the CPU's again, or nobody's any more. */
	if (!pager_has(fault))
		status = SW_OK;
	else if (!managed_find(fault->at, &it) || atomic_load(&managed_state_of(it)->side) == ON_USE_CPU)
		status = pager_settle((void *)fault->at) ? SW_OK : SW_NO_HOST_MEMORY;
	else if (status == SW_OK)
		status = process_stage() == STAGE_RUNNING ? serve_in_turn(it, fault, patience) : SW_BUSY;
	managed_turn_end();
	return status;
}

static void serve(const struct pager_fault *fault)
{
	uint64_t patience = PATIENCE_FIRST, waited = 0;
	enum sw_status status = SW_BUSY;
	struct enter_scope scope = {0};
	bool served = enter_serve(&scope);

	while (served && pager_has(fault) && status == SW_BUSY &&
	       waited < WAIT_MOST(atomic_load(&managed->host_functions))) {
		uint64_t began = clock_now(), nap = patience < 400 * MS ? patience / 4 : 100 * MS;

		status = serve_once(fault, patience);
		uint64_t took = clock_now() - began;
		/* Not the time for which the process was stopped. */
		waited += (took < patience ? took : patience) + nap;
		/* Who waits for the turn goes on: the GPU may wait for what that submits. */
		if (status == SW_BUSY)
			clock_sleep(nap);
		if (took >= patience && patience < PATIENCE_MOST)
			patience *= 2;
	}
	/* Threads that are left when the process ends end with it. */
	for (; process_stage() == STAGE_ENDING && pager_has(fault) && waited < WAIT_MOST(true); waited += 100 * MS)
		clock_sleep(100 * MS);
	if (status != SW_OK) {
		managed_turn_begin();
		/* It may have been settled by who had the turn, and be in order. */
		if (pager_has(fault))
			pager_refuse((void *)fault->at);
		managed_turn_end();
	}
	if (served)
		enter_leave(&scope, CUDA_SUCCESS);
}

static void *run(void *unused)
{
	struct pager_fault fault;
	unsigned n_refused = 0;

	prctl(PR_SET_TIMERSLACK, 1000); /* ns by which its sleeps may be late; usually 50,000 */
	for (;;) {
		pager_wait(&fault);
		serve(&fault);
		stats_add(STAT_managed_touches_refused, pager_n_refused() - n_refused);
		n_refused = pager_n_refused();
	}
	return unused;
}

/* ---- start ---- */

/* Each allocation that is watched needs two mappings, which the whole process has a limit of. */
static uint32_t mappings_most(void)
{
	int file = open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
	char text[32] = "";
	ssize_t n = file < 0 ? -1 : read(file, text, sizeof(text) - 1);

	if (file >= 0)
		close(file);
	return (n > 0 ? (uint32_t)strtoul(text, NULL, 10) : 65530) / 8;
}

static bool start(void)
{
	managed->n_mapped_most = mappings_most();
	managed->touch_stage = malloc(HEAP_UNIT);
	return managed->touch_stage && real_has(HOOK_cuCtxRecordEvent) && pager_start() &&
	       !thread_start(run, NULL, STACK_BYTES, false, NULL);
}

void touch_start(void)
{
	if (managed->touch_asked)
		return;
	managed->touch_asked = true;
	atomic_store(&managed->touches, start());
	if (!atomic_load(&managed->touches))
		log_once(
		    "use: heap for managed memory: the system does not tell of page faults (userfaultfd), so the CPU "
		    "has no access after the GPU's first use");
}
