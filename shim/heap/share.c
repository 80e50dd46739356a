/*
 * Exports chunks to other processes. A block that is to be shared has been pinned, so its chunks stay the same;
 * heap_share_begin() tries once to export each before the block counts as shared. The block is never reused afterwards
 * (PIN_LEFT), so no other process sees the memory of a later allocation.
 */
#include "shim/heap/heap_internal.h"
#include "shim/driver/real.h"

#include <fcntl.h>
#include <unistd.h>

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

	heap_enter(heap);
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

	heap_enter(heap);
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
