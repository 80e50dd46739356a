/*
 * Segments when spill.mode changes. In `exact`, small allocations share segments with larger ones. In `fast`, kernels may
 * find small memory by addresses that no launch names, so a segment that was made in `exact` and has small parts is
 * pinned, as long as it has any; new ones get segments, or blocks, of their own. While memory has been in `fast` from the
 * beginning there is no such segment.
 */
#include "shim/heap/heap.h"
#include "shim/mover/spill.h"
#include "shim/process/process.h"
#include "shim/serve/segments_internal.h"
#include "shim/serve/serve_state.h"

#define SMALL_SHARE 32 /* of a small budget */

uint64_t segments_small_most(const struct device *device)
{
	uint64_t budget = atomic_load(&device->budget.limit), share = budget / SMALL_SHARE;

	return budget >= SEGMENTS_SMALL_BUDGET || share > SPILL_SMALL_BLOCK ? SPILL_SMALL_BLOCK : share;
}

bool segments_are_beside(void)
{
	return atomic_load(&serve_state.segments.beside) || process_spill_mode() == POLICY_SPILL_FAST;
}

/* Returns whether the part at a unit of the segment is small; moves *unit behind it, or behind the hole there. */
static bool is_small_at(const struct segment *segment, uint32_t *hole, uint32_t *unit)
{
	if (*hole < segment->n_holes && segment->holes[*hole].unit == *unit) {
		*unit += segment->holes[(*hole)++].units;
		return false;
	}
	uint64_t bytes = heap_part_bytes(segment_heap(segment), segment->base + *unit * HEAP_UNIT);

	*unit += bytes ? (uint32_t)(bytes / HEAP_UNIT) : 1;
	return bytes <= segments_small_most(segment->device);
}

static bool has_small(const struct segment *segment)
{
	bool any = false;

	for (uint32_t unit = 0, hole = 0; unit < segment->units && !any;)
		any = is_small_at(segment, &hole, &unit);
	return any;
}

void segment_pin(struct segment *segment)
{
	bool pins = atomic_load(&serve_state.segments.beside) && !segment->small && has_small(segment);

	lock_assert_held(LOCK_DEFERRED_FREE);
	if (pins == segment->pinned)
		return;
	segment->pinned = pins;
	heap_hold(segment_heap(segment), segment->block, pins);
}

void segments_set_beside(bool beside)
{
	lock_take(&serve_state.deferred_free.lock);
	atomic_store(&serve_state.segments.beside, beside);
	for (struct segment *segment = serve_state.segments.list; segment; segment = segment->next)
		segment_pin(segment);
	lock_drop(&serve_state.deferred_free.lock);
}
