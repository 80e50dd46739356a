/* Memory that peers lend to a heap: how much, and what they want back. */
#include "shim/heap/heap_internal.h"
#include "shim/heap/migration.h"

uint64_t heap_lent(const struct heap *heap, uint64_t *ret_in_use, uint64_t *ret_left)
{
	const struct chunk_store *store = &heap->store.chunks;
	uint64_t limit = 0, used = 0, left = 0;

	for (unsigned i = 0; i < store->n_lenders; i++) {
		limit += atomic_load_explicit(&store->lenders[i]->lent.limit, memory_order_relaxed);
		used += atomic_load_explicit(&store->lenders[i]->lent.used, memory_order_relaxed);
		left += lender_left(store->lenders[i]);
	}
	uint64_t idle = atomic_load_explicit(&heap->figures.idle[CHUNK_PEER], memory_order_relaxed);
	*ret_in_use = used > idle ? used - idle : 0;
	*ret_left = left + idle;
	return limit;
}

void heap_give_back_lent(struct heap *heap)
{
	if (!atomic_load_explicit(&heap->figures.idle[CHUNK_PEER], memory_order_relaxed))
		return;
	heap_enter(heap);
	block_trim(&heap->store, (const uint64_t[CHUNK_PLACES]){UINT64_MAX, UINT64_MAX, 0});
	heap_leave(heap);
}

uint64_t heap_wanted(const struct heap *heap)
{
	const struct chunk_store *store = &heap->store.chunks;
	uint64_t bytes = 0;

	for (unsigned i = 0; i < store->n_lenders; i++)
		bytes += lender_wanted(store->lenders[i]);
	return bytes;
}

static bool is_wanted(const struct heap *heap, uint32_t piece)
{
	const struct chunk *chunk = heap->store.arena.states[piece].chunk;

	return chunk && chunk->kind == CHUNK_MOVABLE && chunk_is_wanted(&heap->store.chunks, chunk);
}

struct filter {
	const struct heap *heap;
	void (*visit)(void *argument, uint32_t piece);
	void *argument;
};

static void visit_wanted(void *argument, uint32_t piece)
{
	const struct filter *filter = argument;

	if (is_wanted(filter->heap, piece))
		filter->visit(filter->argument, piece);
}

void heap_wanted_pieces(struct heap *heap, void (*visit)(void *argument, uint32_t piece), void *argument)
{
	struct filter filter = {heap, visit, argument};

	heap_pieces(heap, visit_wanted, &filter);
}
