/*
 * submit_copy.h: copies and hints as the driver gets them: submit_NAME() counts the call, tracks it and makes it. For the
 * exported bodies, and for what makes copies and hints in their place.
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

/* Keeps the access between devices that this thread has just looked at until its next copy is submitted, or until let go. */
void submit_hold_access(void);
void submit_let_go_access(void);

/* What a synchronous copy or set returned: waits for it, as CU_POINTER_ATTRIBUTE_SYNC_MEMOPS promises. Returns the result. */
CUresult submit_finish_memop(CUresult result, bool per_thread);

/* Does the spelling have a per-thread default stream? The names of those end in _ptds. Known when the body is compiled. */
static inline bool submit_is_per_thread(const char *name)
{
	size_t n = strlen(name);

	return n > 5 && !strcmp(name + n - 5, "_ptds");
}

#endif
