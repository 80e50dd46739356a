// SPDX-License-Identifier: Apache-2.0
/*
 * sides.c: who has what of managed memory on the heap (managed.h): the CPU's mapping of it, what the CPU has touched
 * since the GPU's last work (touch.c), and whose turn it is to change that.
 */
#include "shim/base/log.h"
#include "shim/base/pager.h"
#include "shim/context/context.h"
#include "shim/driver/real.h"
#include "shim/heap/migration.h"
#include "shim/process/process.h"
#include "shim/serve/types.h"
#include "shim/stats/stats.h"
#include "shim/submit/submission.h"

#include <sys/mman.h>

static struct managed_state *const managed = &serve_state.managed;

const struct arena *managed_arena(struct managed it)
{
	return heap_arena(atomic_load(&it.device->heap));
}

struct unit_state *managed_state_of(struct managed it)
{
	return &managed_arena(it)->states[it.first];
}

char *managed_unit(struct managed it, uint32_t unit)
{
	return (char *)(uintptr_t)arena_address(managed_arena(it), it.first + unit);
}

uint64_t managed_bytes(struct managed it)
{
	return atomic_load(&managed_state_of(it)->on_use_units) * HEAP_UNIT;
}

bool managed_find(CUdeviceptr address, struct managed *ret)
{
	ret->device = device_of(address);
	return ret->device && arena_is_on_use(managed_arena(*ret), address, &ret->first) &&
	       atomic_load(&managed_state_of(*ret)->side) != ON_USE_PLAIN;
}

bool managed_is_cpus(const struct device *device, CUdeviceptr address)
{
	struct managed it;

	return managed_find(address, &it) && it.device == device &&
	       atomic_load(&managed_state_of(it)->side) != ON_USE_GPU;
}

/* ---- the memory of the CPU ---- */

bool managed_map_for_cpu(void *at, uint64_t bytes)
{
	if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
	    MAP_FAILED)
		return false;
	madvise(at, bytes, MADV_DONTFORK);
	return true;
}

void managed_unmap_for_cpu(void *at, uint64_t bytes)
{
	/* If the kernel has no room for one more mapping, the access and then the memory go all the same. */
	if (mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED)
		return;
	mprotect(at, bytes, PROT_NONE);
	madvise(at, bytes, MADV_DONTNEED);
}

/* ---- what the CPU has touched ---- */

bool managed_touched(struct managed it)
{
	uint32_t n = managed->n_touched;

	if (!ARRAY_ROOM(managed->touched, n, managed->room_touched, ARRAY_MOST))
		return false;
	managed->touched[n] = it;
	atomic_store(&managed->n_touched, n + 1);
	atomic_store(&managed_state_of(it)->side, ON_USE_READ);
	submission_set_touched(true);
	return true;
}

void managed_touched_end_all(void)
{
	if (!managed->n_touched)
		return;
	atomic_store(&managed->n_touched, 0);
	submission_set_touched(false);
}

void managed_touched_end(struct managed it)
{
	uint32_t n = managed->n_touched;

	for (uint32_t i = 0; i < n; i++)
		if (managed->touched[i].device == it.device && managed->touched[i].first == it.first) {
			managed->touched[i] = managed->touched[n - 1];
			atomic_store(&managed->n_touched, n - 1);
			if (n == 1)
				submission_set_touched(false);
			return;
		}
}

bool managed_watch(struct managed it)
{
	if (!atomic_load(&managed->touches))
		return false;
	if (managed->n_made > managed->n_mapped_most) {
		log_once(
		    "use: heap for managed memory: with more than %u allocations the CPU has no access to further ones "
		    "after the GPU's first use (vm.max_map_count)",
		    managed->n_mapped_most);
		return false;
	}
	return pager_watch(managed_unit(it, 0), managed_bytes(it));
}

bool managed_withdraw(struct managed it)
{
	/* Pages that were refused have no access: they get it back with the others. */
	if (pager_n_refused())
		mprotect(managed_unit(it, 0), managed_bytes(it), PROT_READ | PROT_WRITE);
	return pager_drop(managed_unit(it, 0), managed_bytes(it));
}

/* ---- one thread at a time brings, or ends, managed memory ---- */

/* Locking: the caller must have disabled cancellation: whoever waits or copies here holds what others wait for. */
void managed_turn_begin(void)
{
	lock_take(&managed->lock);
	while (managed->busy) {
		struct timespec until = clock_in(1000000000);

		lock_wait(&managed->lock, &managed->done, &until);
	}
	managed->busy = true;
	lock_drop(&managed->lock);
}

void managed_turn_end(void)
{
	lock_take(&managed->lock);
	managed->busy = false;
	clock_wake_all(&managed->done);
	lock_drop(&managed->lock);
}

void managed_end(void)
{
	bool busy = true;

	for (unsigned ms = 0; ms < 1000 && busy; ms++) {
		lock_take(&managed->lock);
		busy = managed->busy;
		lock_drop(&managed->lock);
		if (busy)
			clock_sleep(1000000);
	}
}

/* The current context is alive, or the call that brings it would not be made there; another one may have died. */
static CUcontext context_on(CUdevice device)
{
	CUcontext current;
	CUdevice of;

	return REAL(cuCtxGetCurrent)(&current) == CUDA_SUCCESS && current && context_device(current, &of) &&
		       of == device
		   ? current
		   : context_living(device);
}

CUresult managed_on_stream(struct managed it, CUdeviceptr at, uint64_t bytes, bool is_idle, managed_work *work,
			   void *argument)
{
	struct heap *heap = atomic_load(&it.device->heap);
	CUcontext context = context_on(it.device->ordinal);
	CUstream stream = CU_STREAM_PER_THREAD;
	bool pushed;

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!heap_pin(heap, at, bytes))
		return CUDA_ERROR_NOT_READY;
	CUresult result = context_enter(context, &pushed);
	if (result == CUDA_SUCCESS) {
		CUstreamCaptureMode mode = capture_relax();

		result = is_idle ? CUDA_SUCCESS : REAL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING);
		if (result == CUDA_SUCCESS)
			result = work(argument, it, stream);
		if (stream != CU_STREAM_PER_THREAD)
			REAL(cuStreamDestroy_v2)(stream);
		capture_restore(mode);
		context_leave(pushed);
	}
	heap_pin_end(heap, at, bytes, PIN_OFF);
	return result;
}

/* ---- what the handler of SIGSEGV says ---- */

/* Async-signal-safe. */
static char *put_text(char *at, const char *end, const char *text)
{
	while (*text && at < end)
		*at++ = *text++;
	return at;
}

static char *put_number(char *at, const char *end, uint64_t number, unsigned base)
{
	char digits[20];
	unsigned n = 0;

	do
		digits[n++] = "0123456789abcdef"[number % base];
	while (number /= base);
	while (n && at < end)
		*at++ = digits[--n];
	return at;
}

#define MOST_LINES 10 /* a program may handle its faults and go on */

void managed_say(uintptr_t address)
{
	char line[640], *at = line, *end = line + sizeof(line);
	struct managed it;

	if (process_stage() == STAGE_FORKED || !*process_fork_page || !managed_find(address, &it) ||
	    atomic_load(&managed_state_of(it)->side) == ON_USE_CPU ||
	    atomic_fetch_add(&managed->n_lines, 1) >= MOST_LINES)
		return;
	const struct stats_site *site = &stats.site[stats_site_place(
	    atomic_load_explicit(&managed_state_of(it)->on_use_site, memory_order_acquire))];
	at = put_text(at, end, "THE CPU USED MANAGED MEMORY THAT THE GPU HAS: address 0x");
	at = put_number(at, end, address, 16);
	at = put_text(at, end, ", in the allocation at 0x");
	at = put_number(at, end, (uintptr_t)managed_unit(it, 0), 16);
	at = put_text(at, end, " of up to ");
	at = put_number(at, end, managed_bytes(it) >> 20, 10);
	at = put_text(at, end, " MiB, by rule ");
	at = put_text(
	    at, end, policy_rule_name(process_policy(), (int)(int16_t)atomic_load(&managed_state_of(it)->on_use_rule)));
	if (atomic_load(&site->known) == 2 && *site->text) {
		at = put_text(at, end, ", made at ");
		at = put_text(at, end, site->text);
	}
	at = put_text(at, end,
		      atomic_load(&managed->touches)
			  ? "; with use: heap the CPU waits for up to a minute until the GPU has nothing to do, which "
			    "is never in a function of the host or beside an open capture"
			  : "; with use: heap the CPU has no access after the GPU's first use");
	at = put_text(at, end, "; a rule with use: driver for it gives both sides access");
	log_text(line, (size_t)(at - line));
}
