/*
 * Green contexts, and the primary context that each belongs to. The table has no lock: a row is claimed by its `green`
 * and found by its `context`, which is set last and cleared first.
 */
#include "shim/context/context_internal.h"
#include "shim/driver/real.h"

#include <stdatomic.h>

/* Green contexts are few; one that finds no row is treated as a separate context. */
#define GREEN_MOST 64

static struct {
	_Atomic(CUgreenCtx) green;
	_Atomic(CUcontext) context;
	CUcontext primary; /* primary and device are set before context */
	CUdevice device;
} greens[GREEN_MOST];
static atomic_uint n_greens;

CUcontext context_whole(CUcontext context)
{
	if (!context || !atomic_load_explicit(&n_greens, memory_order_relaxed))
		return context;
	for (unsigned i = 0; i < GREEN_MOST; i++)
		if (atomic_load(&greens[i].context) == context)
			return greens[i].primary;
	return context;
}

/* The driver reuses handles: removes old rows that have one of these handles. */
static void forget_greens(CUgreenCtx green, CUcontext context)
{
	for (unsigned i = 0; i < GREEN_MOST; i++) {
		CUgreenCtx old = atomic_load(&greens[i].green);

		if (!old || (old != green && atomic_load(&greens[i].context) != context))
			continue;
		atomic_store(&greens[i].context, NULL);
		if (atomic_compare_exchange_strong(&greens[i].green, &old, NULL))
			atomic_fetch_sub(&n_greens, 1);
	}
}

void context_green_add(CUgreenCtx green, CUcontext context, CUcontext primary, CUdevice device)
{
	forget_greens(green, context);
	for (unsigned i = 0; i < GREEN_MOST; i++) {
		CUgreenCtx none = NULL;

		if (!atomic_compare_exchange_strong(&greens[i].green, &none, green))
			continue;
		greens[i].primary = primary;
		greens[i].device = device;
		atomic_fetch_add(&n_greens, 1);
		atomic_store(&greens[i].context, context);
		return;
	}
}

CUcontext context_green_ending(CUgreenCtx green, CUdevice *ret_device)
{
	for (unsigned i = 0; i < GREEN_MOST; i++) {
		CUcontext context = atomic_load(&greens[i].context);

		if (!context || atomic_load(&greens[i].green) != green)
			continue;
		*ret_device = greens[i].device;
		forget_greens(green, context);
		return context;
	}
	return NULL;
}

CUcontext context_of_memory(void)
{
	return context_whole(context_current());
}
