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

enum sw_status compound_build(struct chunk_store *store, unsigned units, compound_get_function *get, void *from,
			      struct chunk **ret_chunk)
{
	struct chunk *compound = malloc(sizeof(*compound)), **tail;
	enum sw_status status = SW_OK;

	if (!compound)
		return SW_NO_HOST_MEMORY;
	*compound = (struct chunk){.units = (uint8_t)units, .place = CHUNK_HOST, .kind = CHUNK_MOVABLE};
	tail = &compound->parts;
	for (unsigned left = units; left; left -= (*tail)->units, tail = &(*tail)->next) {
		status = get(from, compound_part(left), tail);
		if (status != SW_OK)
			break;
	}
	if (status == SW_OK)
		*ret_chunk = compound;
	else if (compound->parts)
		chunk_put(store, compound);
	else
		free(compound);
	return status;
}

static enum sw_status get_with_alias(void *from, unsigned units, struct chunk **ret_chunk)
{
	struct chunk_store *store = from;
	struct chunk *chunk;
	enum sw_status status = chunk_get(store, CHUNK_MOVABLE, CHUNK_HOST, units, &chunk);

	if (status != SW_OK)
		return status;
	status = chunk_give_alias(store, chunk);
	if (status == SW_OK)
		*ret_chunk = chunk;
	else
		chunk_put(store, chunk);
	return status;
}

struct chunk *compound_take(struct chunk_store *store, unsigned units)
{
	struct chunk *chunk;

	if (compound_part(units) == units || compound_missing(store, units))
		return NULL;
	return compound_build(store, units, get_with_alias, store, &chunk) == SW_OK ? chunk : NULL;
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
