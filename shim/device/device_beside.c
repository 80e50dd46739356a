/* Whether memory of the heaps moves beside what runs, and how large the pieces are then. */
#include "shim/device/device_beside.h"
#include "shim/device/device.h"
#include "shim/device/device_state.h"
#include "shim/process/process.h"

/*
 * Largest piece in `fast` mode. Pieces follow each other on the link, each way: the next one is fetched as soon as one
 * is evicted, so short pieces wait less for each other, and less memory is moving. In a gap of `exact` mode nothing
 * else runs, and the number of mapping changes counts. Measured: a step of GPT at 1.25 / 1.5 / 2.0 times the budget
 * takes 142 / 258 / 433 ms, with pieces up to 128 MiB 152 / 269 / 449 (1.25 on another machine); one with sequences of
 * varying length at 1.5: 223 and 275 ms; ResNet in `exact` at 1.5: 187 ms with 128 MiB, 201 with 64. With 48 instead of
 * 32 MiB, since pieces that are dead in part are preferred as victims (plan_victim.c): the GPT 127 to 130 / 211 to 213
 * / 351 to 357 for 130 / 215 / 353, ResNet-50 at 1.5 102 for 107. 48 MiB fit the sizes of that GPT; in the replay
 * model, at 1.25, 44 and 40 MiB take 4 and 5 % longer, 52 to 64 MiB 2 %. A GPT without births takes 1 % longer at 1.25
 * and 4 % less at 1.5, one of varying lengths 2 % longer at 1.5 and 5 % less at 2.0, ResNet-50 as long.
 */
#define FAST_PIECE ((uint64_t)48 << 20)

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
