/*
 * The hash table. Removing moves what is behind a slot nearer to its home, so that there are no marks of removed ones.
 */
#include "shim/plan/tensor_table.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_SLOTS 1024u
#define MOST_SLOTS  (1u << 20)

void tensor_table_fini(struct tensor_table *table)
{
	free(table->slot);
	*table = (struct tensor_table){0};
}

void tensor_table_clear(struct tensor_table *table)
{
	if (table->n)
		memset(table->slot, 0, table->n_slots * sizeof(*table->slot));
	table->n = 0;
}

static uint32_t home_of(const struct tensor_table *table, uint64_t begin)
{
	return (uint32_t)(begin / TENSOR_GRAIN * UINT64_C(0x9e3779b97f4a7c15) >> 40) & (table->n_slots - 1);
}

/* Returns the tensor, or the free slot where it would be. */
static struct tensor *slot_for(const struct tensor_table *table, uint64_t begin)
{
	uint32_t at = home_of(table, begin);

	while (table->slot[at].bytes && table->slot[at].begin != begin)
		at = (at + 1) & (table->n_slots - 1);
	return &table->slot[at];
}

static bool table_grow(struct tensor_table *table)
{
	struct tensor_table more = {.n = table->n, .n_slots = table->n_slots ? 2 * table->n_slots : FIRST_SLOTS};

	more.slot = more.n_slots <= MOST_SLOTS ? calloc(more.n_slots, sizeof(*more.slot)) : NULL;
	if (!more.slot)
		return false;
	for (uint32_t i = 0; i < table->n_slots; i++)
		if (table->slot[i].bytes)
			*slot_for(&more, table->slot[i].begin) = table->slot[i];
	free(table->slot);
	*table = more;
	return true;
}

bool tensor_table_put(struct tensor_table *table, struct tensor tensor)
{
	if (2 * (table->n + 1) > table->n_slots && !table_grow(table))
		return false;
	struct tensor *slot = slot_for(table, tensor.begin);

	table->n += !slot->bytes;
	*slot = tensor;
	return true;
}

struct tensor *tensor_table_find(const struct tensor_table *table, uint64_t begin)
{
	struct tensor *slot = table->n ? slot_for(table, begin) : NULL;

	return slot && slot->bytes ? slot : NULL;
}

void tensor_table_remove(struct tensor_table *table, struct tensor *tensor)
{
	uint32_t last = table->n_slots - 1, free = (uint32_t)(tensor - table->slot);

	table->n--;
	for (uint32_t at = (free + 1) & last; table->slot[at].bytes; at = (at + 1) & last) {
		uint32_t home = home_of(table, table->slot[at].begin);

		if (((at - home) & last) < ((at - free) & last))
			continue;
		table->slot[free] = table->slot[at];
		free = at;
	}
	table->slot[free].bytes = 0;
}
