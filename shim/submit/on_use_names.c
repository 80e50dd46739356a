/*
 * on_use_names.c: what a submission names of allocations that are backed on use. It is only listed while names are read,
 * for locks may be held then; submission_back() has memory taken for it before the submission is admitted, and then
 * names it anew, because blocks are there now.
 */
#include "shim/heap/migration.h"
#include "shim/submit/submission_internal.h"

#include <errno.h>
#include <stdlib.h>

/* Limit of the list; beyond it, the submission counts as one that may touch anything. */
#define WANTED_MOST (1u << 16)

/* Stores where it is. Returns false if the address is in no such allocation. */
static bool find(CUdeviceptr address, const struct arena **ret_arena, uint32_t *ret_first)
{
	const struct device *device = device_of(address);

	if (!device)
		return false;
	*ret_arena = heap_arena(atomic_load_explicit(&device->heap, memory_order_acquire));
	return arena_is_on_use(*ret_arena, address, ret_first);
}

bool on_use_names_is(CUdeviceptr address)
{
	const struct arena *arena;
	uint32_t first;

	return atomic_load_explicit(&submission_state, memory_order_relaxed) & SUBMISSION_ON_USE &&
	       find(address, &arena, &first);
}

static bool make_room(struct submission *use)
{
	unsigned room = use->room_wanted ? 2 * use->room_wanted : 32;
	int saved = errno;
	struct named *more = use->room_wanted < WANTED_MOST ? realloc(use->wanted, room * sizeof(*more)) : NULL;

	if (more) {
		use->wanted = more;
		use->room_wanted = room;
		/* Where nothing moves, no other list is made. */
		submission_free_at_end(use);
	}
	errno = saved;
	return more != NULL;
}

void on_use_names_add(struct submission *use, CUdeviceptr address, size_t bytes)
{
	const struct named *last = use->n_wanted ? &use->wanted[use->n_wanted - 1] : NULL;
	const struct arena *arena;
	uint32_t first;

	if (!find(address, &arena, &first) ||
	    !atomic_load_explicit(&arena->states[first].on_use_left, memory_order_relaxed) ||
	    (last && last->address == address && last->bytes == bytes))
		return;
	/* What has no memory yet has no block that could be named, so the submission may touch anything. */
	if (use->n_wanted == use->room_wanted && !make_room(use))
		use->unknown = true;
	else
		use->wanted[use->n_wanted++] = (struct named){address, bytes};
}

void submission_stores(struct submission *use, CUdeviceptr address)
{
	if (!(atomic_load_explicit(&submission_state, memory_order_relaxed) & SUBMISSION_ON_USE))
		return;
	if (address)
		on_use_names_add(use, address, 0);
	else
		use->wants_all = true;
}
