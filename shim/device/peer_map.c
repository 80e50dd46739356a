/* Keeps the words of peer_map.h, and sets peer_any when a heap and contexts on two GPUs exist. */
#include "shim/device/peer_map.h"

_Atomic bool peer_any;
_Atomic uint64_t peer_mapped_for[DEVICE_MOST];

/* Adds devices with a heap and devices with a context, as bits. */
static void peer_map_look(uint64_t heap, uint64_t context)
{
	static _Atomic uint64_t heaps, contexts;

	atomic_fetch_or(&heaps, heap);
	atomic_fetch_or(&contexts, context);
	heap = atomic_load(&heaps);
	context = heap | atomic_load(&contexts);
	if (heap && (context & (context - 1)))
		atomic_store(&peer_any, true);
}

const _Atomic uint64_t *peer_heap(int owner)
{
	peer_map_look(UINT64_C(1) << owner, 0);
	return &peer_mapped_for[owner];
}

void peer_context_made(CUdevice device)
{
	if (device >= 0 && device < DEVICE_MOST)
		peer_map_look(0, UINT64_C(1) << device);
}
