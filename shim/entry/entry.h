/*
 * entry.h: the exported entry points, and what their files share.
 */
#ifndef SPILLWAY_ENTRY_H
#define SPILLWAY_ENTRY_H

#include "shim/driver/real.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/serve/serve.h"
#include "shim/stats/stats.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#define ENTRY_UNPACK(...) __VA_ARGS__

/* Marks a body that programs can link to. Every other symbol of the library is hidden. */
#define HOOK_EXPORT __attribute__((visibility("default")))
/* For a body (HOOK_SHELL) that asks for its caller: __builtin_return_address(0) is that of the exported function. */
#define HOOK_INLINE static inline __attribute__((always_inline))

/*
 * resolve.c: dlsym and cuGetProcAddress, the second and third way that calls reach the library: if the real resolver
 * returns the address of a hooked row, the program gets our body instead.
 */

/*
 * Looks up a driver name for dlsym.c, by the C library's dlsym. The name must begin with "cu" and a capital letter.
 * dlsym.c must pass every other name on itself, because for RTLD_NEXT the C library looks at the caller's return
 * address. caller: where dlsym returns to, for the log of lookups.
 */
void *resolve_dlsym(real_dlsym_function *c_dlsym, void *handle, const char *name, const void *caller);

/*
 * unknown.c: functions of the driver that no row knows: a newer driver has them, and their parameters are not known.
 * The program gets a body of ours in place of each that it asks for. A call of it counts as a submission that may
 * touch anything, on a stream and a context that are not known; arguments and result are the driver's.
 *
 * A function that does not submit works as well, but costs what a submission does: where memory moves, its calls wait
 * for what is in transit, and nothing moves while one is inside the driver; and what is backed on use has all its
 * memory from then on. If there is none for it, the function is not called: the program gets the error.
 */

/* The most functions that get a body; about twice as many as all that CUDA 13.1 to 13.5 have added. */
#define UNKNOWN_MOST 128

/*
 * Returns the body for a function, always the same one; or NULL if all are taken. Any thread may call it. Locking:
 * none.
 */
void *unknown_body(void *function);

/*
 * entry_submit.c: prefetches and discards of memory that the driver does not take for managed: one function for each
 * row HINT. Each returns true if *ret_result is the answer to the program, and false if the caller must submit the call
 * like any other.
 */

/*
 * Returns false if a hint about these bytes is for the driver. Otherwise sets *ret_result: an error if the bytes are
 * not within one live block, or if memory cannot be at the location (NULL: none is given). The caller must be inside
 * enter_serve().
 */
bool hint_is_ours(CUdeviceptr address, size_t bytes, const CUmemLocation *location, CUresult *ret_result);

/* clang-format off */
#define HOOK_HINT(name, params, args) bool hint_##name(CUresult *ret_result, ENTRY_UNPACK params);
#include "shim/driver/hooks.def"
/* clang-format on */

/* Returns the heap that the address is in, or NULL. */
static inline struct heap *entry_heap_of(CUdeviceptr address)
{
	struct device *device = device_of(address);

	return device ? atomic_load_explicit(&device->heap, memory_order_acquire) : NULL;
}

/*
 * The exported functions, around the bodies of one file: static functions serve_NAME() with the parameters of the row
 * in hooks.def, whose kind says what stands around them. At its end the file says which subject of hooks.def its bodies
 * are of:
 *
 *	#define HOOK_BODY HOOK_SHELL
 *	#define HOOKS_OF HOOKS_MEMORY
 *	#include "shim/driver/hooks.def"
 *
 * A row without a body does not link, and a body whose types differ from its row's does not compile.
 */

/* clang-format off */
#define SHELL(name, params, args, enter, elsewhere)                                                                    \
	static CUresult serve_##name params;                                                                           \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		struct enter_scope scope;                                                                              \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		if (!enter(&scope))                                                                                    \
			return elsewhere;                                                                              \
		return enter_leave(&scope, serve_##name args);                                                         \
	}
#define FIRST(first, ...) first
#define SHELL_SERVE(name, params, args) SHELL(name, params, args, enter_serve, REAL(name) args)
#define SHELL_START(name, params, args) SHELL(name, params, args, lifecycle_enter, REAL(name) args)
#define SHELL_ALLOC(name, params, args)                                                                                 \
	SHELL(name, params, args, lifecycle_enter, serve_refusal() ? serve_refusal() : REAL(name) args)
#define SHELL_FREE(name, params, args)                                                                                  \
	SHELL(name, params, args, enter_serve, serve_is_late_free(FIRST args) ? CUDA_SUCCESS : REAL(name) args)
#define SHELL_OWN(name, params, args)                                                                                   \
	static CUresult serve_##name params;                                                                           \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		stats_call(HOOK_##name);                                                                               \
		return serve_##name args;                                                                              \
	}
#define HOOK_SHELL(kind, name, params, args) SHELL_##kind(name, params, args)
/* clang-format on */

#endif
