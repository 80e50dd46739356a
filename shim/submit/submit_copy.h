/*
 * submit_copy.h: copies and hints to the driver: submit_NAME() counts the call, tracks it and makes it. For the
 * exported entry points, and for code that makes copies and hints in their place.
 */
#ifndef SPILLWAY_SUBMIT_COPY_H
#define SPILLWAY_SUBMIT_COPY_H

#include <cuda.h>
#include <stdbool.h>
#include <string.h>

#define SUBMIT_COPY_UNPACK(...) __VA_ARGS__

/* clang-format off */
#define HOOK_HINT(name, params, args) CUresult submit_##name(SUBMIT_COPY_UNPACK params);
#define HOOK_COPY(name, params, args) CUresult submit_##name(SUBMIT_COPY_UNPACK params);
#define HOOK_COPY_SYNC(name, params, args) CUresult submit_##name(SUBMIT_COPY_UNPACK params);
#include "shim/driver/hooks.def"
/* clang-format on */

/*
 * The first keeps peer access as it is from when this thread has looked at it (peer_hold), until the thread has
 * submitted its next copy or calls the second. Both may be called repeatedly.
 */
void submit_hold_access(void);
void submit_let_go_access(void);

/*
 * Waits for a synchronous copy or set, as CU_POINTER_ATTRIBUTE_SYNC_MEMOPS promises. result: what the copy returned; an
 * error is returned unchanged. Returns the result of the wait otherwise.
 */
CUresult submit_finish_memop(CUresult result, bool per_thread);

/*
 * Returns whether the spelling uses the per-thread default stream: its name ends in _ptds or _ptsz. Folded at compile
 * time.
 */
static inline bool submit_is_per_thread(const char *name)
{
	size_t n = strlen(name);

	return n > 5 && !strncmp(name + n - 5, "_pt", 3);
}

#endif
