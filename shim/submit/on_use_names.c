/*
 * on_use_names.c: what a submission names of allocations that are backed on use. It is only listed while names are
 * read, for locks may be held then; submission_back() has memory taken for it before the submission is admitted, and
 * then names it anew, because blocks are there now.
 */
#include "shim/context/capture.h"
#include "shim/base/array.h"
#include "shim/heap/migration.h"
#include "shim/heap/on_use.h"
#include "shim/process/process.h"
#include "shim/device/peer.h"
#include "shim/submit/completion.h"
#include "shim/submit/submission_internal.h"

#include <errno.h>

/* Limit of the list; beyond it, the submission counts as one that may touch anything. */
#define WANTED_MOST (1u << 16)

/* Stores where it is. Returns false if the address is in no such allocation. */
static bool find(CUdeviceptr address, struct heap **ret_heap, uint32_t *ret_first)
{
	const struct device *device = device_of(address);

	if (!device)
		return false;
	*ret_heap = atomic_load_explicit(&device->heap, memory_order_acquire);
	return arena_is_on_use(heap_arena(*ret_heap), address, ret_first);
}

bool on_use_names_is(CUdeviceptr address)
{
	struct heap *heap;
	uint32_t first;

	return atomic_load_explicit(&submission_state, memory_order_relaxed) & SUBMISSION_ON_USE &&
	       find(address, &heap, &first);
}

/*
 * Returns whether some of what a name means may have no memory. If all has, which stays so while the allocation lives,
 * its blocks are named now, and it need not be listed: what is listed counts for the mover as named twice.
 */
static bool may_be_missing(const struct submission *use, struct heap *heap, uint32_t first, CUdeviceptr address,
			   uint64_t bytes)
{
	const struct arena *arena = heap_arena(heap);
	CUdeviceptr low = arena_address(arena, first), begin = address;

	if (!atomic_load_explicit(&arena->states[first].on_use_left, memory_order_relaxed))
		return false;
	if (submission_is_graph(use) || capture_is_open())
		return true;
	if (!bytes) {
		if (!arena_on_use_extent(arena, first, address, &begin, &bytes))
			return true;
		uint64_t before = begin - low < ON_USE_NEAR ? begin - low : ON_USE_NEAR;
		begin -= before;
		bytes += before + ON_USE_NEAR;
	}
	return heap_on_use_missing(heap, false, &begin, &bytes);
}

static bool make_room(struct submission *use)
{
	int saved = errno;
	bool room = ARRAY_ROOM(use->wanted, use->n_wanted, use->room_wanted, WANTED_MOST);

	errno = saved;
	return room;
}

/* Also finds a pointer just beside an allocation: *address becomes the allocation's byte next to it, undefined if false. */
static bool find_near(CUdeviceptr *address, size_t bytes, struct heap **ret_heap, uint32_t *ret_first)
{
	if (find(*address, ret_heap, ret_first))
		return true;
	CUdeviceptr behind = *address + ON_USE_NEAR - 1, border = behind / HEAP_UNIT * HEAP_UNIT;
	*address = border > *address ? border : border - 1;
	return !bytes && behind % HEAP_UNIT < 2 * ON_USE_NEAR - 1 && find(*address, ret_heap, ret_first);
}

void on_use_names_add(struct submission *use, CUdeviceptr address, size_t bytes)
{
	const struct named *last = use->n_wanted ? &use->wanted[use->n_wanted - 1] : NULL;
	struct heap *heap;
	uint32_t first;

	if (!find_near(&address, bytes, &heap, &first) || (last && last->address == address && last->bytes == bytes) ||
	    !may_be_missing(use, heap, first, address, bytes))
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

/* Returns the devices whose heaps kernels on a stream may use: its own, and those of peers. */
static uint64_t devices_from(CUstream stream, bool per_thread)
{
	CUdevice device = completion_device(stream, per_thread);
	uint64_t owners = 0;

	if (device < 0)
		return UINT64_MAX;
	for (CUdevice owner = 0; owner < DEVICE_MOST; owner++)
		if (peer_may_reach(owner) >> device & 1)
			owners |= UINT64_C(1) << owner;
	return owners;
}

/*
 * When the process ends, nothing is taken any more, and the driver is not asked for the device of a stream. Before that,
 * kernels alone are bound to what their devices may access. A graph may have nodes on any device, copies name memory
 * that the stream's device has no access to, and stored pointers may be read anywhere.
 */
uint64_t on_use_names_devices(const struct submission *use)
{
	if (use->wants_all || submission_is_graph(use) || submission_is_no_kernel(use->function) ||
	    process_stage() != STAGE_RUNNING)
		return UINT64_MAX;
	uint64_t devices = devices_from(use->stream, use->per_thread);
	for (unsigned i = 1; i < use->n_launches; i++)
		devices |= devices_from(use->launches[i].hStream, use->per_thread);
	return devices;
}
