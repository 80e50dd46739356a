// SPDX-License-Identifier: Apache-2.0
/*
 * fake_torch_block.c: the blocks of a segment of fake_torch.h, in a list by address.
 */
#include "test/preload/fake_torch_internal.h"

#include <stdio.h>
#include <stdlib.h>

void must(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "fake_torch: %s: CUDA error %d\n", what, result);
	exit(1);
}

struct block *block_new(struct segment *segment, struct block *before, CUdeviceptr at, size_t bytes)
{
	struct block *block = calloc(1, sizeof(*block));

	block->segment = segment;
	block->at = at;
	block->bytes = bytes;
	block->before = before;
	block->after = before ? before->after : NULL;
	if (block->after)
		block->after->before = block;
	*(before ? &before->after : &segment->first) = block;
	return block;
}

void block_join(struct block *block)
{
	struct block *after = block->after;

	block->bytes += after->bytes;
	block->filled &= after->filled;
	block->after = after->after;
	if (block->after)
		block->after->before = block;
	free(after);
}

void block_free(struct block *block)
{
	block->state = BLOCK_FREE;
	if (block->after && block->after->state == BLOCK_FREE)
		block_join(block);
	if (block->before && block->before->state == BLOCK_FREE)
		block_join(block->before);
}

struct block *block_at(const struct fake_torch *torch, CUdeviceptr at)
{
	for (struct segment *segment = torch->segments; segment; segment = segment->next)
		for (struct block *block = segment->first; block; block = block->after)
			if (block->at == at)
				return block;
	return NULL;
}

void block_cut(struct block *block, size_t bytes)
{
	if (block->bytes == bytes)
		return;
	struct block *rest = block_new(block->segment, block, block->at + bytes, block->bytes - bytes);
	rest->state = block->state;
	rest->filled = block->filled;
	block->bytes = bytes;
}

void process_events(struct fake_torch *torch, bool wait)
{
	if (torch->n_captures)
		return;
	for (struct segment *segment = torch->segments; segment; segment = segment->next)
		for (struct block *block = segment->first; block; block = block->after) {
			if (block->state != BLOCK_PENDING)
				continue;
			while (block->n_recorded) {
				CUevent event = block->event[block->n_recorded - 1];

				if (wait)
					must(cuEventSynchronize(event), "cuEventSynchronize");
				if (cuEventQuery(event) != CUDA_SUCCESS)
					break;
				must(cuEventDestroy_v2(event), "cuEventDestroy");
				block->n_recorded--;
			}
			if (block->n_recorded)
				continue;
			bool joined = block->before && block->before->state == BLOCK_FREE;
			struct block *before = block->before;
			block_free(block);
			block = joined ? before : block;
		}
}
