// SPDX-License-Identifier: Apache-2.0
/*
 * peer_lane.c: the lanes of peer_random, and the order of what they do (peers.h).
 *
 * A block knows the lane that wrote it last and those that have read it since. Before another lane touches it, that
 * lane is made to wait for an event that was recorded after all those have been given; but not between the legacy
 * stream and the thread's default stream of one context, where the driver keeps the order.
 */
#include "test/preload/peers.h"

static int device_of(unsigned lane)
{
	return (int)lane / PER_DEVICE;
}

void lane_be(const struct worker *worker, unsigned lane)
{
	GO(cuCtxSetCurrent(worker->lane[lane].context));
}

void lane_make(struct worker *worker, unsigned lane, CUcontext context, int device, CUstream stream)
{
	struct lane *at = &worker->lane[lane];

	*at = (struct lane){.context = context, .device = device, .stream = stream, .exists = true};
	lane_be(worker, lane);
	if (!stream)
		GO(cuStreamCreate(&at->stream, CU_STREAM_NON_BLOCKING));
	GO(cuEventCreate(&at->event, CU_EVENT_DISABLE_TIMING));
	GO(cuEventCreate(&at->fork, CU_EVENT_DISABLE_TIMING));
}

void lanes_open(struct worker *worker)
{
	static const CUstream streams[PER_DEVICE] = {
	    [LANE_LEGACY] = CU_STREAM_LEGACY, [LANE_OWN] = CU_STREAM_PER_THREAD};

	for (unsigned lane = 0; lane < (unsigned)world.devices * PER_DEVICE; lane++)
		lane_make(worker, lane, world.context[device_of(lane)], device_of(lane), streams[lane % PER_DEVICE]);
}

unsigned lane_of(struct worker *worker, int device)
{
	/* Mostly streams: the legacy one is everybody's, and much of it would leave little at once. */
	unsigned kind = peers_one_in(worker, 4) ? LANE_LEGACY + peers_below(worker, 2) : peers_below(worker, 2);

	return (unsigned)device * PER_DEVICE + kind;
}

unsigned lane_any(struct worker *worker)
{
	if (worker->guest.context && peers_one_in(worker, 6))
		return LANE_GUEST;
	return lane_of(worker, (int)peers_below(worker, (size_t)world.devices));
}

/* Does the driver itself keep the order of the two? */
static bool implied(unsigned a, unsigned b)
{
	unsigned one = a % PER_DEVICE, two = b % PER_DEVICE;

	return a != LANE_GUEST && b != LANE_GUEST && device_of(a) == device_of(b) &&
	       ((one == LANE_LEGACY && two == LANE_OWN) || (one == LANE_OWN && two == LANE_LEGACY));
}

static void wait_for(struct worker *worker, unsigned lane, unsigned other)
{
	struct lane *before = &worker->lane[other];

	if (before->dirty) {
		lane_be(worker, other);
		GO(cuEventRecord(before->event, before->stream));
		before->dirty = false;
	}
	lane_be(worker, lane);
	GO(cuStreamWaitEvent(worker->lane[lane].stream, before->event, 0));
}

void lane_order(struct worker *worker, unsigned lane, struct block *block, bool write, const char *what)
{
	uint64_t after = write ? block->writer | block->readers : block->writer;

	for (unsigned other = 0; other < LANES; other++)
		if (other != lane && (after >> other & 1) && !implied(lane, other))
			wait_for(worker, lane, other);
	lane_be(worker, lane);
	if (!write) {
		block->readers |= (uint64_t)1 << lane;
		return;
	}
	block->writer = (uint64_t)1 << lane;
	block->readers = 0;
	block->last = what;
	block->last_number = worker->done;
}

void lane_submitted(struct worker *worker, unsigned lane)
{
	worker->lane[lane].dirty = true;
	worker->done++;
}

void lane_settle(struct worker *worker, struct block *block)
{
	for (unsigned lane = 0; lane < LANES; lane++) {
		if (!((block->writer | block->readers) >> lane & 1))
			continue;
		lane_be(worker, lane);
		GO(cuStreamSynchronize(worker->lane[lane].stream));
	}
	block->writer = block->readers = 0;
}

void lane_renew(struct worker *worker, unsigned lane)
{
	struct lane *at = &worker->lane[lane];
	CUstream old = at->stream;

	if (lane == LANE_GUEST || lane % PER_DEVICE >= LANE_LEGACY)
		return;
	lane_be(worker, lane);
	GO(cuEventRecord(at->event, old));
	at->dirty = false;
	/* Both orders, so that a handle comes back and does not. */
	if (peers_one_in(worker, 2)) {
		GO(cuStreamDestroy_v2(old));
		GO(cuStreamCreate(&at->stream, CU_STREAM_NON_BLOCKING));
	} else {
		GO(cuStreamCreate(&at->stream, CU_STREAM_NON_BLOCKING));
		GO(cuStreamDestroy_v2(old));
	}
	GO(cuStreamWaitEvent(at->stream, at->event, 0));
}
