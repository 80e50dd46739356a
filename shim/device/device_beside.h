/*
 * device_beside.h: whether memory of the heaps moves beside what runs (`fast`), of all devices at once.
 */
#ifndef SPILLWAY_DEVICE_BESIDE_H
#define SPILLWAY_DEVICE_BESIDE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Says it of every heap, also of those that are made later (heap_set_beside). Until this is called the policy's
 * spill.mode says it. Locking: takes START and HEAP.
 */
void device_set_beside(bool beside);
/*
 * For a heap that is being made: whether its memory moves so, and the limit of its pieces in bytes (0: none). Locking:
 * the caller must hold START.
 */
bool device_beside(void);
uint64_t device_piece_most(void);

#endif
