/*
 * graph_scratch.h: scratch address ranges at which any kind of memory can be mapped, for copies of graphs that change
 * from one kind to another (graph_mend.h). Nothing is ever read or written there.
 *
 * A range, 4 MiB, belongs to one side of a copy, the kind that side's memory was and the kind it is to be. The memory
 * mapped there is always the same 2 MiB of the device and 2 MiB of the host: they are made at the first use on a
 * device, charged to the budgets by force, and kept.
 *
 * Locking: the caller must hold MEND.
 */
#ifndef SPILLWAY_GRAPH_SCRATCH_H
#define SPILLWAY_GRAPH_SCRATCH_H

#include "shim/device/device.h"

/* Kinds that the driver distinguishes. */
enum scratch_kind {
	SCRATCH_DEVICE,
	SCRATCH_HOST,
	SCRATCH_MIXED,
	SCRATCH_KINDS, /* must be last */
};

enum scratch_side { SCRATCH_DST, SCRATCH_SRC };

/* Begins a use. Returns false if this device has none: out of memory, or a range was abandoned. */
bool scratch_begin(struct device *device);
/* Ends the use: unmaps everything, as far as the driver allows. */
void scratch_end(struct device *device);
/*
 * Abandons all ranges of the device for good: a copy of the program's may still name one, and nothing may be found
 * there.
 */
void scratch_abandon(struct device *device);

/* Maps memory of that kind in the range. Returns false on failure. */
bool scratch_show(struct device *device, enum scratch_side side, enum scratch_kind was, enum scratch_kind will,
		  enum scratch_kind kind);
/*
 * Returns where that many bytes begin in the range, at most 2 MiB: with MIXED both kinds are among them, if they are
 * more than one byte.
 */
CUdeviceptr scratch_at(const struct device *device, enum scratch_side side, enum scratch_kind was,
		       enum scratch_kind will, size_t bytes);

#endif
