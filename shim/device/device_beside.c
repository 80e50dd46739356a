/* Whether memory of the heaps moves beside what runs, and how large the pieces are then. */
#include "shim/device/device_beside.h"
#include "shim/device/device.h"
#include "shim/device/device_state.h"
#include "shim/plan/sizes.h"
#include "shim/process/process.h"

bool device_beside(void)
{
	lock_assert_held(LOCK_START);
	return device_state.devices.is_beside_changed ? device_state.devices.beside
						      : process_spill_mode() == POLICY_SPILL_FAST;
}

uint64_t device_piece_most(void)
{
	return device_beside() ? FAST_PIECE : 0;
}

static void tell(const struct device *device)
{
	struct heap *heap = device ? atomic_load(&device->heap) : NULL;

	if (heap)
		heap_set_beside(heap, device_beside(), device_piece_most());
}

void device_set_beside(bool beside)
{
	lock_take(&start_lock);
	device_state.devices.beside = beside;
	device_state.devices.is_beside_changed = true;
	for (unsigned i = 0; i < DEVICE_MOST; i++)
		tell(atomic_load(&device_state.devices.row[i]));
	lock_drop(&start_lock);
}
