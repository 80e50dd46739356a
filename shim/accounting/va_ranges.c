/*
 * va_ranges.c: the list of address ranges that the program has reserved in arenas. See va_ranges.h.
 */
#include "shim/accounting/va_ranges.h"
#include "shim/accounting/accounting_state.h"
#include "shim/base/lock.h"

#include <stdlib.h>

static struct va_range **va_ranges_find_link(CUdeviceptr address)
{
	struct va_range **at = &accounting_state.va_ranges.spaces;

	while (*at && !va_ranges_has(*at, address, 1))
		at = &(*at)->next;
	return at;
}

bool va_ranges_add(CUdeviceptr start, uint64_t bytes, CUdevice device)
{
	struct va_range *space = malloc(sizeof(*space));

	if (!space)
		return false;
	*space = (struct va_range){.start = start, .bytes = bytes, .device = device};
	lock_take(&accounting_state.va_ranges.lock);
	space->next = accounting_state.va_ranges.spaces;
	accounting_state.va_ranges.spaces = space;
	lock_drop(&accounting_state.va_ranges.lock);
	atomic_store(&va_ranges_any, true);
	return true;
}

bool va_ranges_find(CUdeviceptr address, struct va_range *ret)
{
	if (!atomic_load(&va_ranges_any))
		return false;
	lock_take(&accounting_state.va_ranges.lock);
	const struct va_range *space = *va_ranges_find_link(address);
	if (space)
		*ret = *space;
	lock_drop(&accounting_state.va_ranges.lock);
	return space != NULL;
}

bool va_ranges_take(CUdeviceptr start, uint64_t bytes, struct va_range *ret)
{
	lock_take(&accounting_state.va_ranges.lock);
	struct va_range **at = va_ranges_find_link(start), *space = *at;
	bool fits = space && space->start == start && space->bytes == bytes && !space->n_others;
	if (fits) {
		*at = space->next;
		*ret = *space;
	}
	lock_drop(&accounting_state.va_ranges.lock);
	if (fits)
		free(space);
	return fits;
}

void va_ranges_count(CUdeviceptr address, int more)
{
	lock_take(&accounting_state.va_ranges.lock);
	struct va_range *space = *va_ranges_find_link(address);
	if (space)
		space->n_others += (unsigned)more;
	lock_drop(&accounting_state.va_ranges.lock);
}
