/*
 * Green contexts, and the primary context that each belongs to. The table has no lock: a row is claimed by its `green`
 * and found by its `context`, which is set last and cleared first.
 */
#include "shim/context/context_internal.h"
#include "shim/context/context_state.h"
#include "shim/driver/real.h"

#include <stdatomic.h>

CUcontext context_whole(CUcontext context)
{
	if (!context || !atomic_load_explicit(&context_state.green.n, memory_order_relaxed))
		return context;
	for (unsigned i = 0; i < GREEN_MOST; i++)
		if (atomic_load(&context_state.green.row[i].context) == context)
			return context_state.green.row[i].primary;
	return context;
}

/* The driver reuses handles: removes old rows that have one of these handles. */
static void forget_greens(CUgreenCtx green, CUcontext context)
{
	for (unsigned i = 0; i < GREEN_MOST; i++) {
		CUgreenCtx old = atomic_load(&context_state.green.row[i].green);

		if (!old || (old != green && atomic_load(&context_state.green.row[i].context) != context))
			continue;
		atomic_store(&context_state.green.row[i].context, NULL);
		if (atomic_compare_exchange_strong(&context_state.green.row[i].green, &old, NULL))
			atomic_fetch_sub(&context_state.green.n, 1);
	}
}

void context_green_add(CUgreenCtx green, CUcontext context, CUcontext primary, CUdevice device)
{
	forget_greens(green, context);
	for (unsigned i = 0; i < GREEN_MOST; i++) {
		CUgreenCtx none = NULL;

		if (!atomic_compare_exchange_strong(&context_state.green.row[i].green, &none, green))
			continue;
		context_state.green.row[i].primary = primary;
		context_state.green.row[i].device = device;
		atomic_fetch_add(&context_state.green.n, 1);
		atomic_store(&context_state.green.row[i].context, context);
		return;
	}
}

CUcontext context_green_ending(CUgreenCtx green, CUdevice *ret_device)
{
	for (unsigned i = 0; i < GREEN_MOST; i++) {
		CUcontext context = atomic_load(&context_state.green.row[i].context);

		if (!context || atomic_load(&context_state.green.row[i].green) != green)
			continue;
		*ret_device = context_state.green.row[i].device;
		forget_greens(green, context);
		return context;
	}
	return NULL;
}

CUgreenCtx context_green_of(CUcontext primary)
{
	for (unsigned i = 0; i < GREEN_MOST; i++)
		if (atomic_load(&context_state.green.row[i].context) && context_state.green.row[i].primary == primary)
			return atomic_load(&context_state.green.row[i].green);
	return NULL;
}

CUcontext context_of_memory(void)
{
	return context_whole(context_current());
}
