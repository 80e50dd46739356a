// SPDX-License-Identifier: Apache-2.0
/*
 * random_hidden.c: pointers in device memory (random.h). A table is a block of addresses; a list is nodes in several
 * blocks, each with the address of the next. Both name places in blocks that other operations leave alone, or, for
 * tables, in any of the thread's blocks: which these are, no parameter says.
 */
#include "test/preload/random.h"

void hidden_apply(const struct hidden *hidden, uint32_t salt)
{
	for (unsigned i = 0; i < hidden->used; i++) {
		const struct target *target = &hidden->target[(hidden->first + i) % hidden->n];
		unsigned char *at = target->block->shadow + target->at;
		struct kernel_node *node = (struct kernel_node *)at;

		kernel_mix(hidden->list ? node->data : (uint32_t *)at, NULL, hidden->words, 1, salt + i);
	}
}

static void pin(const struct hidden *hidden, int by)
{
	hidden->table->pins += (unsigned)by;
	for (unsigned i = 0; i < hidden->n; i++)
		hidden->target[i].block->pins += (unsigned)by;
}

/* From the shadow to the device, what was just written there; perhaps word by word. */
static void upload(struct worker *worker, unsigned slot, struct block *block)
{
	CUstream stream = worker->slot[slot].handle;
	bool by_words = block->bytes < 2 * KIB && random_one_in(worker, 6) && random_has_values;

	block_use(worker, slot, block, true, "an upload of addresses");
	for (size_t at = 0; by_words && at < block->bytes; at += sizeof(cuuint64_t))
		GO(cuStreamWriteValue64_v2(stream, block->at + at, *(cuuint64_t *)(block->shadow + at), 0));
	if (!by_words)
		GO(cuMemcpyHtoDAsync_v2(block->at, block->shadow, block->bytes, stream));
	worker->slot[slot].n++;
	op_submitted(worker);
}

static void fill_table(struct worker *worker, struct hidden *hidden)
{
	CUdeviceptr *table = (CUdeviceptr *)hidden->table->shadow;

	hidden->first = random_below(worker, hidden->n);
	for (unsigned i = 0; i < hidden->used; i++) {
		const struct target *target = &hidden->target[(hidden->first + i) % hidden->n];
		int32_t by = 0;

		table[i] = random_one_in(worker, 3) ? kernel_odd(target->block, target->at, random_next(worker), &by)
						    : target->block->at + target->at;
		table[TARGETS_MAX + i] = (CUdeviceptr)by;
	}
}

void hidden_renew(struct worker *worker, struct hidden *hidden, unsigned slot)
{
	if (hidden->list || (worker->options->hidden && !random_one_in(worker, 3)))
		return;
	fill_table(worker, hidden);
	upload(worker, slot, hidden->table);
}

static void make_table(struct worker *worker, struct hidden *hidden)
{
	hidden->words = 1 + random_below(worker, 400);
	hidden->n = 0;
	for (unsigned tries = 8 + random_below(worker, TARGETS_MAX - 8); tries; tries--) {
		struct block *block = worker->block[1 + random_below(worker, worker->n_blocks - 1)];
		size_t words = block->bytes / 4;

		if (block->addresses || words < hidden->words)
			continue;
		hidden->target[hidden->n++] =
		    (struct target){block, 4 * (size_t)random_below(worker, (uint32_t)(words - hidden->words + 1))};
	}
	hidden->table = hidden->n ? block_make(worker, 2 * TARGETS_MAX * sizeof(CUdeviceptr)) : NULL;
	if (!hidden->table)
		return;
	hidden->used = 1 + random_below(worker, hidden->n);
	hidden->table->addresses = true;
	fill_table(worker, hidden);
	upload(worker, random_below(worker, SLOTS), hidden->table);
}

/* Nodes in blocks of their own, of all sizes, one after the other in a random order of blocks. */
static void make_list(struct worker *worker, struct hidden *hidden)
{
	struct block *home[4];

	hidden->words = 1 + random_below(worker, 100);
	size_t node_bytes = (sizeof(struct kernel_node) + 4 * hidden->words + 7) & ~(size_t)7;
	hidden->n = 0;
	hidden->table = NULL;
	for (unsigned i = 0; i < 4; i++) {
		size_t bytes = (TARGETS_MAX * node_bytes) << (2 * i);

		home[i] = block_make(worker, bytes < 3 * MIB ? bytes : 3 * MIB);
		if (!home[i])
			return;
		home[i]->addresses = true;
	}
	for (unsigned i = 0; i < TARGETS_MAX; i++) {
		struct block *block = home[random_below(worker, 4)];
		/* Each node has a stretch of its own in each block. */
		size_t stretch = (block->bytes / TARGETS_MAX) & ~(size_t)7;

		hidden->target[hidden->n++] = (struct target){block, i * stretch};
	}
	for (unsigned i = 0; i < hidden->n; i++) {
		struct target *next = i + 1 < hidden->n ? &hidden->target[i + 1] : NULL;
		CUdeviceptr at = next ? next->block->at + next->at : 0;

		memcpy(hidden->target[i].block->shadow + hidden->target[i].at, &at, sizeof(at));
	}
	for (unsigned i = 0; i < 4; i++)
		upload(worker, random_below(worker, SLOTS), home[i]);
	hidden->table = hidden->target[0].block;
	hidden->used = hidden->n;
	hidden->first = 0;
}

void hidden_make(struct worker *worker)
{
	struct hidden *hidden = &worker->hidden[worker->n_hidden];

	if (worker->n_hidden == HIDDEN_MAX || worker->n_blocks + 6 > BLOCKS_MAX)
		return;
	hidden->list = worker->options->hidden && random_one_in(worker, 2);
	if (hidden->list)
		make_list(worker, hidden);
	else
		make_table(worker, hidden);
	if (!hidden->table)
		return;
	pin(hidden, 1);
	worker->n_hidden++;
}

void hidden_drop(struct worker *worker, unsigned index)
{
	pin(&worker->hidden[index], -1);
	worker->hidden[index] = worker->hidden[--worker->n_hidden];
}
