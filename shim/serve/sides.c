// SPDX-License-Identifier: Apache-2.0
/*
 * sides.c: who has what of managed memory on the heap (managed.h): the CPU's mapping of it, and whose turn it is to
 * change that.
 */
#include "shim/base/log.h"
#include "shim/context/context.h"
#include "shim/device/device.h"
#include "shim/driver/real.h"
#include "shim/heap/heap.h"
#include "shim/process/process.h"
#include "shim/serve/managed.h"
#include "shim/serve/types.h"
#include "shim/stats/stats.h"

#include <sys/mman.h>

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

	return managed_find(address, &it) && it.device == device && arena_on_use_is_cpus(managed_arena(it), it.first);
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

/* ---- one thread at a time brings, or ends, managed memory ---- */

/* Whoever waits or copies here holds what others wait for. */
void managed_turn_begin(void)
{
	struct managed_state *const managed = &serve_state.managed;

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
	struct managed_state *const managed = &serve_state.managed;

	lock_take(&managed->lock);
	managed->busy = false;
	clock_wake_all(&managed->done);
	lock_drop(&managed->lock);
}

/* The current context is alive, or the call that brings it would not be made there; another one may have died. */
CUcontext managed_context(CUdevice device)
{
	CUcontext current;
	CUdevice of;

	return REAL(cuCtxGetCurrent)(&current) == CUDA_SUCCESS && current && context_device(current, &of) &&
		       of == device
		   ? current
		   : context_any(device);
}

/* ---- the line of the handler ---- */

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
	    atomic_fetch_add(&serve_state.managed.n_lines, 1) >= MOST_LINES)
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
		      "; with use: heap the CPU has no access after the GPU's first use; a rule with use: driver for "
		      "it gives both sides access");
	log_text(line, (size_t)(at - line));
}
