// SPDX-License-Identifier: Apache-2.0
/*
 * peer_block.c: the blocks of peer_random (peers.h): of cuMemAlloc, in sizes for which peer_random.yaml has rules, of
 * pools in stream order, and pinned memory that kernels of all devices touch.
 */
#include "test/preload/peers.h"

static size_t words_of_size(struct worker *worker)
{
	switch (peers_below(worker, 16)) {
	case 0: /* for the driver */
		return (500 * KIB + peers_below(worker, 8 * KIB)) / 4;
	case 1: /* stays where it is placed */
		return (600 * KIB + peers_below(worker, 8 * KIB)) / 4;
	case 2: /* on the host at first */
		return (700 * KIB + peers_below(worker, 8 * KIB)) / 4;
	case 3: /* striped */
	case 4:
		return (4 * MIB + peers_below(worker, 1 * MIB)) / 4;
	case 5:
	case 6:
	case 7:
	case 8:
	case 9:
		return 16 + peers_below(worker, 3000);
	default:
		return 300000 + peers_below(worker, 600000);
	}
}

static size_t *live(struct worker *worker, int device)
{
	return &worker->words[device == NO_DEVICE ? DEVICES : device];
}

/* Does it fit what the worker may have there? */
static bool fits(struct worker *worker, int device, size_t words)
{
	return (*live(worker, device) + words) * 4 <= made_up.bytes / made_up.threads;
}

/* Of a primary context: it goes with its own. */
static void make_host(struct worker *worker, struct block *block)
{
	void *pages;

	lane_be(worker, lane_of(worker, (int)peers_below(worker, (size_t)world.devices)));
	block->registered = peers_one_in(worker, 2);
	if (block->registered) {
		pages = aligned_alloc(4096, (block->words * 4 + 4095) & ~(size_t)4095);
		GO(cuMemHostRegister_v2(pages, block->words * 4,
					CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	} else {
		GO(cuMemHostAlloc(&pages, block->words * 4, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
	}
	GO(cuMemHostGetDevicePointer_v2(&block->at, pages, 0));
	memcpy(pages, block->shadow, block->words * 4);
}

/* Filled in the order of a lane that may touch it. */
static void fill(struct worker *worker, struct block *block, unsigned lane)
{
	lane_order(worker, lane, block, true, "the first copy");
	GO(cuMemcpyHtoDAsync_v2(block->at, block->shadow, block->words * 4, worker->lane[lane].stream));
	lane_submitted(worker, lane);
}

/* By any lane of any device, from any pool of any device: from the lane's next operation on it may be used there. */
static void make_pooled(struct worker *worker, struct block *block)
{
	unsigned lane =
	    lane_of(worker, peers_one_in(worker, 3) ? (int)peers_below(worker, (size_t)world.devices) : block->device);
	CUstream stream = worker->lane[lane].stream;

	lane_be(worker, lane);
	block->pool = (int)peers_below(worker, POOLS);
	if (worker->lane[lane].device == block->device && !block->pool)
		GO(lane % PER_DEVICE == LANE_OWN && peers_one_in(worker, 2)
		       ? cuMemAllocAsync_ptsz(&block->at, block->words * 4, NULL)
		       : cuMemAllocAsync(&block->at, block->words * 4, stream));
	else
		GO(cuMemAllocFromPoolAsync(&block->at, block->words * 4, world.pool[block->device][block->pool],
					   stream));
	lane_submitted(worker, lane);
	block->writer = (uint64_t)1 << lane;
	fill(worker, block, reach_may(worker, lane, block, true) ? lane : lane_of(worker, block->device));
}

static void make_plain(struct worker *worker, struct block *block)
{
	unsigned lane = block->guest ? LANE_GUEST : lane_of(worker, block->device);

	lane_be(worker, lane);
	GO(cuMemAlloc_v2(&block->at, block->words * 4));
	fill(worker, block, lane);
}

void block_make(struct worker *worker)
{
	uint32_t value = peers_next(worker);
	struct block *block;
	enum block_kind kind = BLOCK_PLAIN;
	int device = (int)peers_below(worker, (size_t)world.devices);
	size_t words = words_of_size(worker);
	bool guest = worker->guest.context && peers_one_in(worker, 3);

	if (guest)
		device = worker->guest.device;
	else if (peers_one_in(worker, 3))
		kind = BLOCK_POOLED;
	else if (peers_one_in(worker, 12))
		kind = BLOCK_HOST;
	if (kind == BLOCK_HOST) {
		device = NO_DEVICE;
		words = words > 60000 ? words % 60000 + 1 : words;
	}
	if (worker->n_blocks == BLOCKS || !fits(worker, device, words))
		return;
	block = calloc(1, sizeof(*block));
	*block = (struct block){.kind = kind, .device = device, .words = words, .guest = guest};
	block->shadow = malloc(words * 4);
	for (size_t i = 0; i < words; i++)
		block->shadow[i] = value += 0x9e3779b9;
	if (kind == BLOCK_HOST)
		make_host(worker, block);
	else if (kind == BLOCK_POOLED)
		make_pooled(worker, block);
	else
		make_plain(worker, block);
	*live(worker, device) += words;
	worker->block[worker->n_blocks++] = block;
}

void block_open_tables(struct worker *worker)
{
	for (int i = 0; i < world.devices; i++) {
		worker->table[i] = (struct block){.device = i, .words = 2};
		GO(cuCtxSetCurrent(world.context[i]));
		GO(cuMemAlloc_v2(&worker->table[i].at, 8));
	}
}

/* ---- comparing ---- */

static void compare(struct worker *worker, struct block *block, const uint32_t *got)
{
	static const char *const kinds[] = {"plain", "pooled", "host"};

	for (size_t i = 0; i < block->words; i++)
		if (got[i] != block->shadow[i])
			made_up_fail(
			    "thread %u, after %lu operations: word %zu of %zu at %#llx (%s%s, device %d, %c) is "
			    "%08x, not %08x; last written by %s, operation %lu",
			    worker->id, worker->done, i, block->words, block->at, kinds[block->kind],
			    block->guest ? ", another context's" : "", block->device,
			    sim_where(block->at + 4 * i) ? sim_where(block->at + 4 * i) : '-', got[i], block->shadow[i],
			    block->last ? block->last : "nobody", block->last_number);
}

/* From any device that may copy it: a stream that is not its own is another way. */
static void be_any_for(struct worker *worker, const struct block *block)
{
	unsigned lane = lane_any(worker);

	if (block->kind == BLOCK_POOLED && !reach_may(worker, lane, block, false))
		lane = lane_of(worker, block->device);
	lane_be(worker, lane);
}

void block_check(struct worker *worker, struct block *block)
{
	lane_settle(worker, block);
	if (block->kind == BLOCK_HOST) {
		compare(worker, block, (const uint32_t *)block->at);
		return;
	}
	uint32_t *got = malloc(block->words * 4);
	be_any_for(worker, block);
	GO(cuMemcpyDtoH_v2(got, block->at, block->words * 4));
	compare(worker, block, got);
	free(got);
}

/* ---- freeing ---- */

void block_forget(struct worker *worker, unsigned index)
{
	struct block *block = worker->block[index];

	*live(worker, block->device) -= block->words;
	worker->block[index] = worker->block[--worker->n_blocks];
	free(block->shadow);
	free(block);
}

/* In stream order, behind all that uses it. */
static void free_async(struct worker *worker, struct block *block)
{
	bool away = block->kind == BLOCK_POOLED && peers_one_in(worker, 3);
	unsigned lane = lane_of(worker, away ? (int)peers_below(worker, (size_t)world.devices) : block->device);

	lane_order(worker, lane, block, true, "the free");
	GO(cuMemFreeAsync(block->at, worker->lane[lane].stream));
	lane_submitted(worker, lane);
}

static void free_host(struct block *block)
{
	void *pages = (void *)block->at;

	if (!block->registered) {
		GO(cuMemFreeHost(pages));
		return;
	}
	GO(cuMemHostUnregister(pages));
	free(pages);
}

void block_free(struct worker *worker, unsigned index)
{
	struct block *block = worker->block[index];
	bool in_order =
	    block->kind == BLOCK_POOLED ? !peers_one_in(worker, 4) : !block->guest && peers_one_in(worker, 4);

	if (peers_one_in(worker, 2))
		block_check(worker, block);
	if (block->kind == BLOCK_HOST) {
		lane_settle(worker, block);
		free_host(block);
	} else if (in_order) {
		free_async(worker, block);
	} else {
		lane_settle(worker, block);
		lane_be(worker, block->guest ? (unsigned)LANE_GUEST : lane_of(worker, block->device));
		GO(cuMemFree_v2(block->at));
	}
	block_forget(worker, index);
}
