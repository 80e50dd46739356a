// SPDX-License-Identifier: Apache-2.0
/*
 * random_block.c: the blocks of spill_random, and the order of what touches them (random.h).
 *
 * Operations of a slot are numbered from 1. A block knows which operation wrote it last and which of each slot read it
 * last; before another slot touches it, that slot is made to wait: by an event recorded after that operation, by a
 * value written behind it, or, between the legacy stream and blocking ones, by nothing at all.
 */
#include "test/preload/random.h"

/* ---- order ---- */

static bool is_blocking(unsigned slot)
{
	return slot == SLOT_OWN || (slot >= SLOT_BLOCKING && slot < SLOT_FREE);
}

static bool implied(unsigned slot, unsigned other)
{
	return (slot == SLOT_LEGACY && is_blocking(other)) || (other == SLOT_LEGACY && is_blocking(slot));
}

/* One stream writes, the other waits: in pinned memory or in a block, which may itself be spilled. */
static void order_by_value(struct worker *worker, unsigned slot, unsigned other)
{
	struct slot *one = &worker->slot[slot], *two = &worker->slot[other];
	struct block *words = worker->block[0];
	CUdeviceptr at = (random_one_in(worker, 2) ? words->at : (CUdeviceptr)worker->host_words) + 4 * other;

	two->value++;
	if (at == words->at + 4 * other)
		((uint32_t *)words->shadow)[other] = two->value;
	GO(cuStreamWriteValue32_v2(two->handle, at, two->value, 0));
	GO(cuStreamWaitValue32_v2(one->handle, at, two->value, CU_STREAM_WAIT_VALUE_GEQ));
	op_submitted(worker);
	op_submitted(worker);
	one->seen[other] = two->n;
}

void slot_order(struct worker *worker, unsigned slot, unsigned other, unsigned long n)
{
	struct slot *one = &worker->slot[slot], *two = &worker->slot[other];

	if (slot == other || one->seen[other] >= n)
		return;
	if (implied(slot, other)) {
		one->seen[other] = two->n;
		return;
	}
	if (random_one_in(worker, 12) && random_has_values) {
		order_by_value(worker, slot, other);
		return;
	}
	if (two->recorded < n) {
		GO(cuEventRecord(two->event, two->handle));
		two->recorded = two->n;
	}
	GO(cuStreamWaitEvent(one->handle, two->event, 0));
	one->seen[other] = two->recorded;
}

void block_use(struct worker *worker, unsigned slot, struct block *block, bool write, const char *what)
{
	if (block->owner == THREADS_MAX)
		return; /* shared, and nobody writes it */
	slot_order(worker, slot, block->wrote_slot, block->wrote);
	for (unsigned other = 0; write && other < SLOTS; other++)
		slot_order(worker, slot, other, block->read[other]);
	block->read[slot] = worker->slot[slot].n + 1;
	if (!write)
		return;
	block->wrote_slot = slot;
	block->wrote = worker->slot[slot].n + 1;
	block->last = what;
	block->last_submission = worker->submitted;
}

/* ---- streams ---- */

static CUstream new_stream(unsigned slot)
{
	CUstream stream;

	if (slot == SLOT_LEGACY)
		return NULL;
	if (slot == SLOT_OWN)
		return CU_STREAM_PER_THREAD;
	GO(cuStreamCreate(&stream, slot < SLOT_FREE ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
	return stream;
}

void slot_open(struct worker *worker, unsigned slot)
{
	struct slot *at = &worker->slot[slot];

	at->handle = new_stream(slot);
	GO(cuEventCreate(&at->event, CU_EVENT_DISABLE_TIMING));
}

void slot_renew(struct worker *worker, unsigned slot)
{
	struct slot *at = &worker->slot[slot];
	CUstream old = at->handle;

	GO(cuEventRecord(at->event, old));
	at->recorded = at->n;
	/* Both orders, so that a handle comes back and does not. */
	if (random_one_in(worker, 2)) {
		GO(cuStreamDestroy_v2(old));
		at->handle = new_stream(slot);
	} else {
		at->handle = new_stream(slot);
		GO(cuStreamDestroy_v2(old));
	}
	GO(cuStreamWaitEvent(at->handle, at->event, 0));
}

void slot_wait(struct worker *worker, unsigned slot)
{
	struct slot *at = &worker->slot[slot];

	if (random_one_in(worker, 2)) {
		GO(cuStreamSynchronize(at->handle));
		return;
	}
	GO(cuEventRecord(at->event, at->handle));
	at->recorded = at->n;
	GO(cuEventSynchronize(at->event));
}

/* ---- blocks ---- */

struct block *block_add(struct worker *worker, CUdeviceptr at, size_t bytes, unsigned char byte, bool pooled)
{
	struct block *block = calloc(1, sizeof(*block));

	*block = (struct block){.at = at,
				.bytes = bytes,
				.shadow = malloc(bytes),
				.owner = worker->id,
				.number = worker->n_made++,
				.pooled = pooled};
	memset(block->shadow, byte, bytes);
	worker->block[worker->n_blocks++] = block;
	worker->bytes += bytes;
	worker->pooled += pooled ? bytes : 0;
	return block;
}

struct block *block_make(struct worker *worker, size_t bytes)
{
	unsigned slot = random_below(worker, SLOTS);
	unsigned char byte = (unsigned char)random_next(worker);
	CUdeviceptr at;
	bool pooled;

	if (worker->n_blocks == BLOCKS_MAX)
		return NULL;
	if (worker->options->in_order)
		pooled = !random_one_in(worker, 4);
	else
		pooled = bytes <= MIB && worker->pooled < 2 * MIB && random_one_in(worker, 8);
	if (pooled)
		GO(cuMemAllocAsync(&at, bytes, worker->slot[slot].handle));
	else
		GO(cuMemAlloc_v2(&at, bytes));
	struct block *block = block_add(worker, at, bytes, byte, pooled);
	block_use(worker, slot, block, true, "the first set");
	/* A large one part by part, the last first: each may get memory of its own (place: on-use). */
	for (size_t part = bytes < 4 * MIB ? 1 : 3, n = part, end = bytes; part-- > 0; end = bytes / n * part)
		GO(cuMemsetD8Async(block->at + bytes / n * part, byte, end - bytes / n * part,
				   worker->slot[slot].handle));
	worker->slot[slot].n++;
	op_submitted(worker);
	return block;
}

void block_take_off(struct worker *worker, unsigned index)
{
	struct block *block = worker->block[index];

	worker->bytes -= block->bytes;
	worker->pooled -= block->pooled ? block->bytes : 0;
	worker->block[index] = worker->block[--worker->n_blocks];
}

void block_free(struct worker *worker, unsigned index)
{
	struct block *block = worker->block[index];
	unsigned slot = random_below(worker, SLOTS);

	if (random_one_in(worker, 4) != worker->options->in_order || block->elsewhere) {
		block_use(worker, slot, block, true, "the free");
		GO(cuMemFreeAsync(block->at, worker->slot[slot].handle));
		worker->slot[slot].n++;
		op_submitted(worker);
	} else {
		GO(cuMemFree_v2(block->at));
	}
	block_take_off(worker, index);
	free(block->shadow);
	free(block);
}

/* ---- comparing ---- */

void digest_add(uint64_t *digest, const void *bytes, size_t n)
{
	const unsigned char *at = bytes;
	uint64_t lanes[4] = {*digest, 1, 2, 3}, words[4];

	/* Four that do not wait for each other: the processor computes them at the same time. */
	for (; n >= sizeof(words); n -= sizeof(words), at += sizeof(words)) {
		memcpy(words, at, sizeof(words));
		for (unsigned i = 0; i < 4; i++) {
			lanes[i] = (lanes[i] ^ words[i]) * 0x9e3779b97f4a7c15u;
			lanes[i] ^= lanes[i] >> 29;
		}
	}
	*digest = lanes[0];
	for (unsigned i = 1; i < 4; i++)
		*digest = (*digest ^ lanes[i]) * 0x9e3779b97f4a7c15u;
	for (; n; n--)
		*digest = (*digest ^ *at++) * 0x100000001b3u;
}

static size_t first_difference(const unsigned char *a, const unsigned char *b, size_t n)
{
	size_t i = 0;

	while (i < n && a[i] == b[i])
		i++;
	return i;
}

void block_check(struct worker *worker, struct block *block)
{
	for (size_t at = 0; at < block->bytes; at += MIB) {
		size_t n = block->bytes - at < MIB ? block->bytes - at : MIB, i;

		GO(cuMemcpyDtoH_v2(worker->scratch, block->at + at, n));
		if (!block->addresses)
			digest_add(&worker->digest, worker->scratch, n);
		if (!memcmp(worker->scratch, block->shadow + at, n))
			continue;
		i = first_difference(worker->scratch, block->shadow + at, n);
		made_up_fail(
		    "thread %u: byte %zu of block %u.%u (%zu bytes at %#llx, %c) is %#x, not %#x; last written "
		    "by %s, submission %lu of the thread; now %lu",
		    worker->id, at + i, block->owner, block->number, block->bytes, block->at,
		    sim_where(block->at + at + i), worker->scratch[i], block->shadow[at + i],
		    block->last ? block->last : "nobody", block->last_submission, worker->submitted);
	}
}
