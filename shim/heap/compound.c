/* Makes compound chunks of warm ones, and finds their parts. */
#include "shim/heap/compound.h"

#include <stdlib.h>

/* Returns whether the store has this many warm chunks of that length. */
static bool has_warm(const struct chunk_store *store, unsigned units, unsigned n)
{
	const struct chunk *chunk = store->warm[CHUNK_MOVABLE][CHUNK_HOST][units];

	while (chunk && n) {
		chunk = chunk->next;
		n--;
	}
	return n == 0;
}

unsigned compound_missing(const struct chunk_store *store, unsigned units)
{
	lock_assert_held(LOCK_HEAP);
	if (units >= COMPOUND_PART_MOST && !has_warm(store, COMPOUND_PART_MOST, units / COMPOUND_PART_MOST))
		return COMPOUND_PART_MOST;
	for (unsigned part = COMPOUND_PART_MOST / 2; part; part /= 2)
		if (units & part && !has_warm(store, part, 1))
			return part;
	return 0;
}

struct chunk *compound_new(unsigned units)
{
	struct chunk *compound = malloc(sizeof(*compound));

	if (compound)
		*compound = (struct chunk){.units = (uint8_t)units, .place = CHUNK_HOST, .kind = CHUNK_MOVABLE};
	return compound;
}

void compound_end(struct chunk_store *store, struct chunk *compound)
{
	if (compound->parts)
		chunk_put(store, compound);
	else
		free(compound);
}

struct chunk *compound_take(struct chunk_store *store, unsigned units)
{
	struct chunk *compound, **tail;
	unsigned left = units;

	if (compound_part(units) == units || compound_missing(store, units))
		return NULL;
	compound = compound_new(units);
	if (!compound)
		return NULL;
	tail = &compound->parts;
	while (left && chunk_get(store, CHUNK_MOVABLE, CHUNK_HOST, compound_part(left), tail) == SW_OK &&
	       chunk_give_alias(store, *tail) == SW_OK) {
		left -= (*tail)->units;
		tail = &(*tail)->next;
	}
	if (!left)
		return compound;
	compound_end(store, compound);
	return NULL;
}

bool compound_has(const struct chunk *chunk, unsigned units)
{
	bool found = !chunk->parts && chunk->units == units;

	for (const struct chunk *part = chunk->parts; part && !found; part = part->next)
		found = part->units == units;
	return found;
}

CUdeviceptr compound_at(const struct chunk *chunk, uint64_t at, uint64_t *ret_bytes)
{
	const struct chunk *part = chunk->parts;

	while (part->next && at >= chunk_bytes(part->units)) {
		at -= chunk_bytes(part->units);
		part = part->next;
	}
	*ret_bytes = chunk_bytes(part->units) - at;
	return part->alias + at;
}
