/*
 * graph_names.c: the reference-counted sets of names (graph_names.h). Each set is one allocation: an array of names,
 * and behind it an open-addressing hash table of indexes.
 */
#include "shim/submit/graph_names.h"

#include <stdlib.h>

struct graph_names *graph_names_new(size_t room)
{
	struct graph_names *names;
	size_t n_slots = 16;

	if (room > GRAPH_NAMES_MOST)
		return NULL;
	while (n_slots < 2 * room)
		n_slots *= 2;
	/* One allocation: the slots lie behind the names. */
	names = calloc(1, sizeof(*names) + room * sizeof(names->at[0]) + n_slots * sizeof(names->slots[0]));
	if (!names)
		return NULL;
	atomic_init(&names->references, 1);
	names->room = room;
	names->slots = (uint32_t *)&names->at[room];
	names->n_slots = n_slots;
	return names;
}

void graph_names_hold(struct graph_names *names)
{
	atomic_fetch_add_explicit(&names->references, 1, memory_order_relaxed);
}

void graph_names_drop(struct graph_names *names)
{
	if (names && atomic_fetch_sub_explicit(&names->references, 1, memory_order_acq_rel) == 1)
		free(names);
}

/* Returns the slot of this name, or the free slot where it would go. The table always has a free slot. */
static uint32_t *slot_of(const struct graph_names *names, CUdeviceptr address, CUdeviceptr from, bool reach_known)
{
	size_t at = (size_t)(((address ^ from) * 2 + reach_known) * UINT64_C(0x9e3779b97f4a7c15) >> 32);

	for (;; at++) {
		uint32_t *slot = &names->slots[at & (names->n_slots - 1)];
		const struct graph_name *name = *slot ? &names->at[*slot - 1] : NULL;

		if (!name ||
		    (name->address == address && name->from == from && (atomic_load(&name->bytes) != 0) == reach_known))
			return slot;
	}
}

/* Returns the name, which is added without uses if the set has none; NULL if the set is full. */
static struct graph_name *find_or_add(struct graph_names *names, CUdeviceptr address, size_t bytes, CUdeviceptr from)
{
	size_t n = atomic_load_explicit(&names->n, memory_order_relaxed);
	uint32_t *slot = slot_of(names, address, from, bytes != 0);

	if (*slot) {
		struct graph_name *name = &names->at[*slot - 1];

		if (bytes > atomic_load_explicit(&name->bytes, memory_order_relaxed))
			atomic_store_explicit(&name->bytes, bytes, memory_order_relaxed);
		return name;
	}
	if (n == names->room)
		return NULL;
	names->at[n].address = address;
	names->at[n].from = from;
	atomic_store_explicit(&names->at[n].bytes, bytes, memory_order_relaxed);
	*slot = (uint32_t)n + 1;
	/* From here on readers see the new name. */
	atomic_store_explicit(&names->n, n + 1, memory_order_release);
	return &names->at[n];
}

bool graph_names_add(struct graph_names *names, CUdeviceptr address, size_t bytes, CUdeviceptr from)
{
	struct graph_name *name = find_or_add(names, address, bytes, from);

	if (!name)
		return false;
	if (!atomic_load_explicit(&name->uses, memory_order_relaxed) || name->node != names->node)
		atomic_fetch_add_explicit(&name->uses, 1, memory_order_relaxed);
	name->node = names->node;
	return true;
}

bool graph_names_merge(struct graph_names *names, const struct graph_names *more)
{
	size_t n = atomic_load_explicit(&more->n, memory_order_acquire);
	bool fitted = true;

	for (size_t i = 0; i < n; i++) {
		uint32_t uses = atomic_load_explicit(&more->at[i].uses, memory_order_relaxed);
		struct graph_name *name =
		    find_or_add(names, more->at[i].address, atomic_load(&more->at[i].bytes), more->at[i].from);

		if (name && uses > atomic_load_explicit(&name->uses, memory_order_relaxed))
			atomic_store_explicit(&name->uses, uses, memory_order_relaxed);
		fitted &= name != NULL;
	}
	return fitted;
}

static struct graph_names *graph_names_larger(const struct graph_names *names)
{
	size_t room = 2 * names->room;
	struct graph_names *copy;

	if (room > GRAPH_NAMES_MOST && names->room < GRAPH_NAMES_MOST)
		room = GRAPH_NAMES_MOST;
	copy = graph_names_new(room);
	if (!copy)
		return NULL;
	graph_names_merge(copy, names);
	copy->node = names->node;
	for (size_t i = 0; i < names->n; i++)
		copy->at[i].node = names->at[i].node;
	return copy;
}

bool graph_names_grow(struct graph_names **names, CUdeviceptr address, size_t bytes, CUdeviceptr from)
{
	struct graph_names *more;

	if (graph_names_add(*names, address, bytes, from))
		return true;
	more = graph_names_larger(*names);
	if (!more)
		return false;
	graph_names_drop(*names);
	*names = more;
	return graph_names_add(more, address, bytes, from);
}
