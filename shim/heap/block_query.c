// SPDX-License-Identifier: Apache-2.0
/*
 * Queries and changes of one block by its address: where it is, move it to the host, grow it, export its chunks; and
 * the news of pieces for the mover. The block is looked up under HEAP in the same step, so a block that is freed at the
 * same time is not found, never used after its end.
 *
 * Growing builds a second block right behind the first, with all that may fail and be undone, and then joins it to the
 * first. No byte is copied, and the mover may be moving pieces of the first part meanwhile.
 */
#include "shim/driver/real.h"
#include "shim/heap/block.h"
#include "shim/heap/migration.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool heap_is_one_chunk(struct heap *heap, CUdeviceptr address)
{
	lock_take(&heap->lock);
	const struct block *block = arena_block_at(&heap->store.arena, address);
	bool one = block && !block->slab && !block->divider && block->chunks && !block->chunks->next;
	heap_leave(heap);
	return one;
}

/* Returns how many bytes two ranges have in common. */
static uint64_t bytes_between(CUdeviceptr at, uint64_t length, CUdeviceptr address, uint64_t bytes)
{
	CUdeviceptr first = at > address ? at : address,
		    last = at + length < address + bytes ? at + length : address + bytes;

	return first < last ? last - first : 0;
}

/* Adds up, by place, the bytes of the range that lie in the block, as its first byte must. Returns their number. */
static uint64_t spread_of(struct heap *heap, const struct block *block, CUdeviceptr address, size_t bytes,
			  uint64_t sum[CHUNK_PLACES])
{
	CUdeviceptr at = block_address(&heap->store, block);
	uint64_t found = 0;

	for (const struct chunk *chunk = block->chunks; chunk; chunk = chunk->next) {
		uint64_t here = bytes_between(at, chunk_bytes(chunk->units), address, bytes);

		sum[chunk->place] += here;
		found += here;
		at += chunk_bytes(chunk->units);
	}
	return found;
}

enum sw_status heap_where(struct heap *heap, CUdeviceptr base, size_t bytes, uint64_t ret_bytes[CHUNK_PLACES],
			  bool *ret_stays)
{
	uint64_t sum[CHUNK_PLACES] = {0};

	lock_take(&heap->lock);
	const struct block *block = arena_block_at(&heap->store.arena, base);
	if (block)
		spread_of(heap, block, base, bytes, sum);
	if (block)
		*ret_stays = block_is_pinned(block);
	heap_leave(heap);
	if (!block)
		return SW_INVALID;
	memcpy(ret_bytes, sum, sizeof(sum));
	return SW_OK;
}

unsigned heap_loans(struct heap *heap, CUdeviceptr base, size_t bytes, struct heap_loan ret_loans[HEAP_LENDERS])
{
	const struct chunk_store *store = &heap->store.chunks;
	uint64_t by_lender[HEAP_LENDERS] = {0};
	unsigned n = 0;

	lock_take(&heap->lock);
	const struct block *block = arena_block_at(&heap->store.arena, base);
	CUdeviceptr at = block ? block_address(&heap->store, block) : 0;
	for (const struct chunk *chunk = block ? block->chunks : NULL; chunk; chunk = chunk->next) {
		if (chunk->place == CHUNK_PEER)
			by_lender[chunk->lender] += bytes_between(at, chunk_bytes(chunk->units), base, bytes);
		at += chunk_bytes(chunk->units);
	}
	heap_leave(heap);
	for (unsigned i = 0; i < store->n_lenders; i++)
		if (by_lender[i])
			ret_loans[n++] = (struct heap_loan){store->lenders[i]->device, by_lender[i]};
	return n;
}

bool heap_spread(struct heap *heap, CUdeviceptr address, size_t bytes, uint64_t ret_bytes[CHUNK_PLACES])
{
	uint64_t sum[CHUNK_PLACES] = {0}, found = 0;

	lock_take(&heap->lock);
	const struct block *block = arena_block_at(&heap->store.arena, address);
	while (block) {
		bool loose = block->loose;
		const struct on_use *on_use = block->on_use;

		found += spread_of(heap, block, address + found, bytes - found, sum);
		block = (loose || on_use) && found < bytes ? arena_block_at(&heap->store.arena, address + found) : NULL;
		block = block && block->loose == loose && block->on_use == on_use ? block : NULL;
	}
	heap_leave(heap);
	if (!bytes || found != bytes)
		return false;
	memcpy(ret_bytes, sum, sizeof(sum));
	return true;
}

enum sw_status heap_to_host(struct heap *heap, CUdeviceptr base)
{
	struct block_store *store = &heap->store;
	enum sw_status status = SW_INVALID;

	lock_take(&heap->lock);
	struct block *block = arena_block_at(&store->arena, base);
	if (block && (block->slab || block->divider || block->stays || !store->chunks.usable[CHUNK_HOST])) {
		status = SW_NOT_SUPPORTED;
	} else if (block) {
		block->to_host = true;
		atomic_store(&store->arena.states[block->unit].to_host, true);
		block_show_pin(store, block);
		block_tell_all(store, block);
		status = SW_OK;
	}
	heap_leave(heap);
	return status;
}

/* Makes the block `tail`, which was built right behind a block in use, its end. */
static void block_query_join(struct block_store *store, struct block *block, struct block *tail)
{
	struct block_state *states = store->arena.block_states;
	struct chunk **end = &block->chunks;

	lock_assert_held(LOCK_HEAP);
	while (*end)
		end = &(*end)->next;
	*end = tail->chunks;
	for (struct chunk *chunk = tail->chunks; chunk; chunk = chunk->next)
		chunk->block = block;
	block->units += tail->units;
	block->units_mapped += tail->units_mapped;
	for (int place = 0; place < CHUNK_PLACES; place++)
		block->bytes[place] += tail->bytes[place];
	/* Block state is at the start of the block. */
	atomic_fetch_add(&states[block->unit].away, atomic_exchange(&states[tail->unit].away, 0));
	range_join(&store->arena.free_units);
	free(tail);
}

static enum sw_status block_query_extend(struct heap *heap, struct block *block, uint32_t more, enum heap_from from,
					 uint64_t *ret_away)
{
	struct block_store *store = &heap->store;
	uint32_t unit = block->unit + block->units;
	struct block *tail;

	block_vacate(store, unit, more + 1); /* with the unit before what lies behind */
	if (!arena_take_at(&store->arena, unit, more))
		return SW_NO_MEMORY;
	enum sw_status status = block_build(store, unit, more, block->kind, NULL, from, &tail);
	if (status != SW_OK)
		return status;
	*ret_away = block_away(tail);
	block_query_join(store, block, tail);
	/* Not arena_mark(), which would reset what was discarded of the first part. */
	atomic_store_explicit(&store->arena.states[block->unit].units, block->units, memory_order_relaxed);
	for (uint32_t i = 0; i < more; i++)
		atomic_store_explicit(&store->arena.table[unit + i], block->unit + 1, memory_order_release);
	block_show_pin(store, block);
	block_tell_all(store, block);
	return SW_OK;
}

enum sw_status heap_grow(struct heap *heap, CUdeviceptr base, size_t bytes, enum heap_from from, uint64_t *ret_away)
{
	size_t units = bytes / HEAP_UNIT + (bytes % HEAP_UNIT != 0); /* bytes may be SIZE_MAX */
	const struct arena *arena = &heap->store.arena;
	enum sw_status status = SW_INVALID;

	lock_take(&heap->lock);
	struct block *block = arena_block_at(arena, base);
	if (block && block->slab) {
		/* A slot has the length of its class. */
		uint32_t word = arena_look(arena, base);

		status = bytes <= small_class_bytes(word & ~ARENA_SLAB) ? SW_OK : SW_NO_MEMORY;
	} else if (block && block->divider) {
		status = units <= arena_part_units(arena, arena_unit(arena, base)) ? SW_OK : SW_NO_MEMORY;
	} else if (block && units > arena->n_units - block->unit) {
		status = SW_NO_MEMORY;
	} else if (block) {
		status = SW_OK;
		if (units > block->units)
			status = block_query_extend(heap, block, (uint32_t)units - block->units, from, ret_away);
	}
	if (status != SW_OK)
		heap_trim_to_keep(heap);
	heap_leave(heap);
	return status;
}

/* ---- handing out chunks to other processes ---- */

/*
 * A block that is to be shared has been pinned, so its chunks stay the same;
 * heap_share_begin() tries once to export each before the block counts as shared. The block is never reused afterwards
 * (PIN_LEFT), so no other process sees the memory of a later allocation.
 */

static bool export_chunk(const struct chunk *chunk, int *ret_file)
{
	if (REAL(cuMemExportToShareableHandle)(ret_file, chunk->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) !=
	    CUDA_SUCCESS)
		return false;
	fcntl(*ret_file, F_SETFD, FD_CLOEXEC);
	return true;
}

enum sw_status heap_share_begin(struct heap *heap, CUdeviceptr base, uint64_t *ret_offset)
{
	enum sw_status status = SW_INVALID;

	lock_take(&heap->lock);
	struct block *block = arena_block_at(&heap->store.arena, base);
	if (block) {
		status = SW_OK;
		for (const struct chunk *chunk = block->shared ? NULL : block->chunks; chunk; chunk = chunk->next) {
			int file;

			if (!chunk->exportable || !export_chunk(chunk, &file)) {
				status = SW_NOT_SUPPORTED;
				break;
			}
			close(file);
		}
		block->shared = status == SW_OK;
		*ret_offset = base - heap->store.arena.base - block->unit * (uint64_t)HEAP_UNIT;
	}
	heap_leave(heap);
	return status;
}

enum sw_status heap_share(struct heap *heap, CUdeviceptr base, unsigned first, struct heap_share *ret_share)
{
	struct heap_share share = {0};
	enum sw_status status = SW_OK;

	lock_take(&heap->lock);
	struct block *block = arena_block_at(&heap->store.arena, base);
	if (!block || !block->shared)
		status = SW_INVALID;
	for (const struct chunk *chunk = status == SW_OK ? block->chunks : NULL; chunk; chunk = chunk->next) {
		if (share.n_all++ >= first && share.n < HEAP_SHARE_MOST && status == SW_OK) {
			share.bytes[share.n] = chunk_bytes(chunk->units);
			if (export_chunk(chunk, &share.file[share.n]))
				share.n++;
			else
				status = SW_DRIVER;
		}
		share.bytes_all += chunk_bytes(chunk->units);
	}
	heap_leave(heap);
	if (status == SW_OK)
		*ret_share = share;
	else
		heap_share_end(&share);
	return status;
}

void heap_share_end(struct heap_share *share)
{
	while (share->n)
		close(share->file[--share->n]);
}

/* ---- pieces and news ---- */

bool heap_piece(struct heap *heap, uint32_t piece, uint32_t *ret_units, enum chunk_place *ret_place,
		uint32_t *ret_block_unit)
{
	const struct arena *arena = &heap->store.arena;

	lock_take(&heap->lock);
	bool there = block_has_piece(arena, piece);
	if (there) {
		*ret_units = arena->states[piece].units_of_piece;
		*ret_place = arena->states[piece].chunk->place;
		*ret_block_unit = arena->states[piece].chunk->block->unit;
	}
	heap_leave(heap);
	return there;
}

size_t heap_news(struct heap *heap, uint32_t *ret, size_t n, bool *ret_all)
{
	struct block_store *store = &heap->store;
	size_t taken = 0;

	lock_take(&heap->lock);
	*ret_all = store->news.all || !store->news.wanted;
	store->news.wanted = true;
	if (*ret_all) {
		store->news.n = 0;
	} else if (store->news.n) { /* if none was ever stored, `pieces` is NULL, which memcpy() must not be given */
		taken = store->news.n < n ? store->news.n : n;
		memcpy(ret, store->news.pieces, taken * sizeof(*ret));
		store->news.n -= taken;
		memmove(store->news.pieces, store->news.pieces + taken, store->news.n * sizeof(*ret));
	}
	store->news.all = false;
	heap_leave(heap);
	return taken;
}

void heap_pieces(struct heap *heap, void (*visit)(void *argument, uint32_t piece), void *argument)
{
	const struct arena *arena = &heap->store.arena;

	lock_take(&heap->lock);
	for (uint32_t unit = 0; unit < arena->n_units_seen; unit++)
		if (block_has_piece(arena, unit))
			visit(argument, unit);
	heap_leave(heap);
}
