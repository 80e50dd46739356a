#include "shim/accounting/space.h"
#include "shim/base/lock.h"

#include <stdlib.h>

_Atomic bool space_any;

static struct lock space_lock = LOCK_INIT(LOCK_VA_RANGES);
static struct space *spaces; /* under SPACE */

static struct space **find(CUdeviceptr address)
{
	struct space **at = &spaces;

	while (*at && !space_has(*at, address, 1))
		at = &(*at)->next;
	return at;
}

bool space_add(CUdeviceptr start, uint64_t bytes, CUdevice device)
{
	struct space *space = malloc(sizeof(*space));

	if (!space)
		return false;
	*space = (struct space){.start = start, .bytes = bytes, .device = device};
	lock_take(&space_lock);
	space->next = spaces;
	spaces = space;
	lock_drop(&space_lock);
	atomic_store(&space_any, true);
	return true;
}

bool space_find(CUdeviceptr address, struct space *ret)
{
	if (!atomic_load(&space_any))
		return false;
	lock_take(&space_lock);
	const struct space *space = *find(address);
	if (space)
		*ret = *space;
	lock_drop(&space_lock);
	return space != NULL;
}

bool space_take(CUdeviceptr start, uint64_t bytes, struct space *ret)
{
	lock_take(&space_lock);
	struct space **at = find(start), *space = *at;
	bool fits = space && space->start == start && space->bytes == bytes && !space->n_others;
	if (fits) {
		*at = space->next;
		*ret = *space;
	}
	lock_drop(&space_lock);
	if (fits)
		free(space);
	return fits;
}

void space_count(CUdeviceptr address, int more)
{
	lock_take(&space_lock);
	struct space *space = *find(address);
	if (space)
		space->n_others += (unsigned)more;
	lock_drop(&space_lock);
}
