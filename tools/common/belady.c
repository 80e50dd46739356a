// SPDX-License-Identifier: Apache-2.0
/*
 * Belady's rule in two passes. A backward pass finds for each use the next one of the same item. A forward pass keeps
 * resident items in a heap ordered by next use; stale entries of the heap are dropped when they reach the top. The
 * first use of an item fetches nothing, because nothing was written yet.
 */
#include "tools/common/belady.h"
#include "tools/common/grow.h"

#include <stdlib.h>
#include <string.h>

struct belady_entry {
	uint32_t next, item;
};

static uint32_t belady_name(struct belady_names names, uint32_t i)
{
	return names.first[(size_t)i * names.step];
}

bool belady_start(struct belady *b, size_t n_items, size_t n_uses)
{
	*b = (struct belady){
	    .n_items = n_items,
	    .n_uses = n_uses,
	    .at = n_uses,
	    .bytes = calloc(n_items + 1, sizeof(*b->bytes)),
	    .next = calloc(n_uses + 1, sizeof(*b->next)),
	    .use = calloc(n_items + 1, sizeof(*b->use)),
	    .stamp = calloc(n_items + 1, sizeof(*b->stamp)),
	    .here = calloc(n_items + 1, 1),
	    .written = calloc(n_items + 1, 1),
	    .kept = calloc(n_items + 1, sizeof(*b->kept)),
	    .heap = calloc(n_uses + 1, sizeof(*b->heap)), /* each name is pushed once */
	};
	if (!b->bytes || !b->next || !b->use || !b->stamp || !b->here || !b->written || !b->kept || !b->heap)
		return false;
	memset(b->use, 0xff, (n_items + 1) * sizeof(*b->use));
	return true;
}

void belady_end(struct belady *b)
{
	FREE_ALL(b->bytes, b->next, b->use, b->stamp, b->here, b->written, b->kept, b->heap);
	*b = (struct belady){0};
}

void belady_look_ahead(struct belady *b, struct belady_names names, uint32_t number)
{
	b->at -= names.n;
	for (uint32_t i = 0; i < names.n; i++) {
		b->next[b->at + i] = b->use[belady_name(names, i)];
		b->use[belady_name(names, i)] = number;
	}
}

void belady_forget_ahead(struct belady *b, uint32_t item)
{
	b->use[item] = UINT32_MAX;
}

void belady_rewind(struct belady *b, uint64_t budget)
{
	memset(b->stamp, 0, b->n_items * sizeof(*b->stamp));
	memset(b->here, 0, b->n_items);
	memset(b->written, 0, b->n_items);
	memset(b->kept, 0, b->n_items * sizeof(*b->kept));
	b->n_heap = b->at = 0;
	b->used = b->outside = b->in = b->out = b->missed = b->over = 0;
	b->budget = budget;
}

/* ---- the heap ---- */

static void belady_push(struct belady *b, struct belady_entry entry)
{
	size_t i = b->n_heap++;

	for (; i && b->heap[(i - 1) / 2].next < entry.next; i = (i - 1) / 2)
		b->heap[i] = b->heap[(i - 1) / 2];
	b->heap[i] = entry;
}

static struct belady_entry belady_pop(struct belady *b)
{
	struct belady_entry top = b->heap[0], last = b->heap[--b->n_heap];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < b->n_heap) {
		if (child + 1 < b->n_heap && b->heap[child + 1].next > b->heap[child].next)
			child++;
		if (b->heap[child].next <= last.next)
			break;
		b->heap[i] = b->heap[child];
		i = child;
	}
	b->heap[i] = last;
	return top;
}

/* ---- submissions ---- */

/* Evicts until there is room, but no item that this submission names. Returns whether there is room. */
static bool make_room(struct belady *b, uint64_t bytes, uint32_t number)
{
	if (b->spares && bytes > b->budget)
		return false;
	while (b->used + b->outside + bytes > b->budget && b->n_heap) {
		struct belady_entry entry = belady_pop(b);

		if (!b->here[entry.item] || b->use[entry.item] != entry.next || b->stamp[entry.item] == number + 1)
			continue;
		b->here[entry.item] = false;
		b->used -= b->bytes[entry.item];
		if (b->counts && b->written[entry.item])
			b->out += b->bytes[entry.item];
	}
	return b->used + b->outside + bytes <= b->budget;
}

void belady_submit(struct belady *b, struct belady_names names, uint32_t number)
{
	bool fits = true;

	for (uint32_t i = 0; i < names.n; i++)
		b->stamp[belady_name(names, i)] = number + 1;
	for (uint32_t i = 0; i < names.n; i++) {
		uint32_t item = belady_name(names, i);

		if (b->here[item])
			continue;
		b->here[item] = make_room(b, b->bytes[item], number);
		fits &= b->here[item];
		b->used += b->here[item] ? b->bytes[item] : 0;
		if (b->counts && b->written[item])
			*(b->here[item] ? &b->in : &b->missed) += b->bytes[item];
	}
	b->over += b->counts && !fits;
	for (uint32_t i = 0; i < names.n; i++) {
		uint32_t item = belady_name(names, i);

		b->written[item] = true;
		b->use[item] = b->next[b->at++];
		if (b->here[item])
			belady_push(b, (struct belady_entry){b->use[item], item});
	}
}

/* Lets go of what exceeds the budget. */
static void let_go(struct belady *b)
{
	while (b->used > b->budget) {
		struct belady_entry top = b->heap[0];
		uint64_t excess = b->used - b->budget, kept = b->use[top.item] == top.next ? b->kept[top.item] : 0;
		uint64_t less = excess < kept ? excess : kept;

		b->kept[top.item] -= less;
		b->used -= less;
		if (less == kept)
			belady_pop(b);
	}
}

void belady_carry(struct belady *b, struct belady_names names)
{
	for (uint32_t i = 0; i < names.n; i++) {
		uint32_t item = belady_name(names, i);

		if (b->counts && b->written[item])
			b->in += b->bytes[item] - b->kept[item];
		b->written[item] = true;
		b->use[item] = b->next[b->at++];
		b->used -= b->kept[item];
		b->kept[item] = b->use[item] == UINT32_MAX ? 0 : b->bytes[item];
		b->used += b->kept[item];
		belady_push(b, (struct belady_entry){b->use[item], item});
	}
	let_go(b);
}

void belady_forget(struct belady *b, uint32_t item)
{
	b->used -= b->here[item] ? b->bytes[item] : 0;
	b->here[item] = b->written[item] = false;
}
