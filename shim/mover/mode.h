/*
 * mode.h: changes between `exact` and `fast` while the process runs, and fetching by order. Only the mover's thread may
 * call these functions, outside a gap and with nothing in flight (mover_drain).
 */
#ifndef SPILLWAY_MODE_H
#define SPILLWAY_MODE_H

#include "shim/base/status.h"
#include "shim/plan/plan.h"

#include <stdbool.h>

struct engine;
struct heap;

/* Returns how memory of the heap moves. */
enum plan_way mode_way(const struct heap *heap, bool exact);

/*
 * Memory moves in gaps alone from now on, or beside what runs. Both stop the whole process for it, unless it is
 * suspended, and do nothing if it is so already. The caller must have called heap_set_beside() before the latter, and
 * must not undo that as long as any engine is in `fast`. Return
 *
 *   SW_OK              done
 *   SW_BUSY            a capture is open, or no safe point came in time
 *   SW_NO_MEMORY       mode_to_fast(): the device has no room for what must stay there (piece.c)
 *   SW_NO_HOST_MEMORY  mode_to_fast(): the system has no memory for what the library must remember
 *   SW_DRIVER          the driver failed; if it refuses to map memory, the engine has died
 *
 * If the result is not SW_OK the mode is as before. Locking: take QUIESCE and HEAP.
 */
enum sw_status mode_to_exact(struct engine *engine);
enum sw_status mode_to_fast(struct engine *engine);

/*
 * Fetches the pieces of these units in a gap of the whole process, whether or not that pays. Returns SW_OK if all are
 * on the device, or must stay where they are; SW_BUSY as above, or if the process is suspended; SW_NO_MEMORY if
 * something else must stay on the device. Locking: as above.
 */
enum sw_status mode_bring(struct engine *engine, uint32_t unit, uint32_t n);

#endif
