/*
 * va_ranges.c: the list of address ranges that the program has reserved in arenas. See va_ranges.h.
 */
#include "shim/accounting/va_ranges.h"
#include "shim/base/lock.h"

#include <stdlib.h>

_Atomic bool va_ranges_any;

static struct lock va_ranges_lock = LOCK_INIT(LOCK_VA_RANGES);
static struct va_range *spaces; /* under VA_RANGES */

static struct va_range **va_ranges_find_link(CUdeviceptr address)
{
	struct va_range **at = &spaces;

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
	lock_take(&va_ranges_lock);
	space->next = spaces;
	spaces = space;
	lock_drop(&va_ranges_lock);
	atomic_store(&va_ranges_any, true);
	return true;
}

bool va_ranges_find(CUdeviceptr address, struct va_range *ret)
{
	if (!atomic_load(&va_ranges_any))
		return false;
	lock_take(&va_ranges_lock);
	const struct va_range *space = *va_ranges_find_link(address);
	if (space)
		*ret = *space;
	lock_drop(&va_ranges_lock);
	return space != NULL;
}

bool va_ranges_take(CUdeviceptr start, uint64_t bytes, struct va_range *ret)
{
	lock_take(&va_ranges_lock);
	struct va_range **at = va_ranges_find_link(start), *space = *at;
	bool fits = space && space->start == start && space->bytes == bytes && !space->n_others;
	if (fits) {
		*at = space->next;
		*ret = *space;
	}
	lock_drop(&va_ranges_lock);
	if (fits)
		free(space);
	return fits;
}

void va_ranges_count(CUdeviceptr address, int more)
{
	lock_take(&va_ranges_lock);
	struct va_range *space = *va_ranges_find_link(address);
	if (space)
		space->n_others += (unsigned)more;
	lock_drop(&va_ranges_lock);
}
