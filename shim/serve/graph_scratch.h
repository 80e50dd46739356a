/*
 * graph_scratch.h: address ranges of our own at which any kind of memory can be shown, for copies of graphs that are on
 * their way from one kind to another (graph_mend.h). Nothing is ever read or written there.
 *
 * A range, 4 MiB, belongs to one side of a copy, to what that side's memory was and to what it is to be. What is mapped
 * there is 2 MiB of the device and 2 MiB of the host, over and over: they are made with the first use on a device,
 * charged to the budgets by force, and kept.
 *
 * Lock: whoever calls holds MEND.
 */
#ifndef SPILLWAY_GRAPH_SCRATCH_H
#define SPILLWAY_GRAPH_SCRATCH_H

#include "shim/device/device.h"

/* What the driver tells apart. */
enum scratch_kind {
	SCRATCH_DEVICE,
	SCRATCH_HOST,
	SCRATCH_MIXED,
	SCRATCH_KINDS, /* must be last */
};

enum scratch_side { SCRATCH_DST, SCRATCH_SRC };

/* From one use to the next; false: this device has none, for want of memory or because one was abandoned. */
bool scratch_begin(struct device *device);
/* Nothing is mapped any more, as far as the driver allows. */
void scratch_end(struct device *device);
/*
 * Something of the program's may still name a range, and nothing may be found there any more: it is used no more, nor is
 * any other of the device's.
 */
void scratch_abandon(struct device *device);

/* Have that kind mapped in the range. */
bool scratch_show(struct device *device, enum scratch_side side, enum scratch_kind was, enum scratch_kind will,
		  enum scratch_kind kind);
/* Where so many bytes of it begin, at most 2 MiB: of MIXED both kinds are among them, if they are more than one. */
CUdeviceptr scratch_at(const struct device *device, enum scratch_side side, enum scratch_kind was,
		       enum scratch_kind will, size_t bytes);

#endif
