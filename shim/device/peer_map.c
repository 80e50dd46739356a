/* Records which devices have a heap and which a context; sets peer_any when a heap and contexts on two GPUs exist. */
#include "shim/device/peer_map.h"
#include "shim/device/device_state.h"

/* Adds devices with a heap and devices with a context, as bits. */
static void peer_map_look(uint64_t heap, uint64_t context)
{
	atomic_fetch_or(&device_state.peer_map.heaps, heap);
	atomic_fetch_or(&device_state.peer_map.contexts, context);
	heap = atomic_load(&device_state.peer_map.heaps);
	context = heap | atomic_load(&device_state.peer_map.contexts);
	if (heap && (context & (context - 1)))
		atomic_store(&peer_any, true);
}

const _Atomic uint64_t *peer_heap(int owner)
{
	peer_map_look(UINT64_C(1) << owner, 0);
	return &device_state.peer_map.mapped_for[owner];
}

void peer_context_made(CUdevice device)
{
	if (device >= 0 && device < DEVICE_MOST)
		peer_map_look(0, UINT64_C(1) << device);
}
