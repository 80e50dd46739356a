// SPDX-License-Identifier: Apache-2.0
/*
 * entry.h: the exported entry points, and what their files share.
 */
#ifndef SPILLWAY_ENTRY_H
#define SPILLWAY_ENTRY_H

#include "shim/driver/real.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/serve/managed.h"
#include "shim/serve/serve.h"
#include "shim/stats/stats.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#define ENTRY_UNPACK(...) __VA_ARGS__

/* For HOOK_WRAP: the file has a macro for each of its rows of that kind. */
#define HOOK_AROUND(name, params, args) WRAP_##name(name, params, args)

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

/* Bytes of what a call stores where its first argument points, if programs may keep that in structures; else 0. */
#define RESULT_BYTES(first)                                                                                            \
	_Generic((first),                                                                                              \
	    void **: sizeof(void *),                                                                                   \
	    CUdeviceptr *: sizeof(CUdeviceptr),                                                                        \
	    CUstream *: sizeof(CUstream),                                                                              \
	    CUevent *: sizeof(CUevent),                                                                                \
	    CUarray *: sizeof(CUarray),                                                                                \
	    CUmipmappedArray *: sizeof(CUmipmappedArray),                                                              \
	    CUmemoryPool *: sizeof(CUmemoryPool),                                                                      \
	    float *: sizeof(float),                                                                                    \
	    default: 0)
/*
 * Makes a call whose result the program may want in managed memory, and copies the result there if the call succeeds.
 * first: the variable that is its first argument; result: the variable that gets its return value.
 */
#define RESULT_CALL(first, result, call)                                                                               \
	do {                                                                                                           \
		struct managed_result result_;                                                                         \
                                                                                                                       \
		if (RESULT_BYTES(first))                                                                               \
			(first) = (__typeof__(first))(uintptr_t)managed_result_begin(                                  \
			    &result_, (void *)(uintptr_t)(first), RESULT_BYTES(first));                                \
		call;                                                                                                  \
		if (RESULT_BYTES(first) && (result) == CUDA_SUCCESS)                                                   \
			managed_result_end(&result_);                                                                  \
	} while (0)

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
#define SHELL(name, params, args, enter, elsewhere, make)                                                              \
	static CUresult serve_##name params;                                                                           \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		struct enter_scope scope;                                                                              \
		CUresult result;                                                                                       \
                                                                                                                       \
		stats_call(HOOK_##name);                                                                               \
		if (!enter(&scope))                                                                                    \
			return elsewhere;                                                                              \
		make(FIRST args, result, result = enter_leave(&scope, serve_##name args));                             \
		return result;                                                                                         \
	}
#define FIRST(first, ...) first
#define PLAIN_CALL(first, result, call) call
#define SHELL_SERVE(name, params, args) SHELL(name, params, args, enter_serve, REAL(name) args, PLAIN_CALL)
#define SHELL_START(name, params, args) SHELL(name, params, args, lifecycle_enter, REAL(name) args, RESULT_CALL)
#define SHELL_ALLOC(name, params, args)                                                                                \
	SHELL(name, params, args, lifecycle_enter, serve_refusal() ? serve_refusal() : REAL(name) args, RESULT_CALL)
#define SHELL_FREE(name, params, args)                                                                                 \
	SHELL(name, params, args, enter_serve, serve_is_late_free(FIRST args) ? CUDA_SUCCESS : REAL(name) args,        \
	      PLAIN_CALL)
#define SHELL_OWN(name, params, args)                                                                                  \
	static CUresult serve_##name params;                                                                           \
	HOOK_EXPORT CUresult CUDAAPI name params                                                                       \
	{                                                                                                              \
		stats_call(HOOK_##name);                                                                               \
		return serve_##name args;                                                                              \
	}
#define HOOK_SHELL(kind, name, params, args) SHELL_##kind(name, params, args)
/* clang-format on */

/*
 * copy.c: copies that may be between GPUs: one function for each row COPY and COPY_SYNC. Each returns true if it has
 * made the copy in another way than the driver would, with the answer in *ret_result, and false if the caller must
 * submit the call like any other.
 */

/* clang-format off */
#define HOOK_COPY(name, params, args) bool copy_##name(CUresult *ret_result, ENTRY_UNPACK params);
#define HOOK_COPY_SYNC(name, params, args) bool copy_##name(CUresult *ret_result, ENTRY_UNPACK params);
#include "shim/driver/hooks.def"
/* clang-format on */

/* One copy of any kind, in the most general form. */
struct job {
	CUDA_MEMCPY3D_PEER box;
	CUstream stream;               /* NULL for a synchronous copy, or the default stream */
	bool linear, sync, per_thread; /* linear: WidthInBytes bytes from one address to another */
	bool is_peer;                  /* the program has named the contexts of both sides */
	/*
	 * For a copy of a list: the list, the index in it, and the function that submits it as a list of one, with
	 * its attributes, on the given stream.
	 */
	const struct list *list;
	size_t index;
	CUresult (*as_list)(const struct job *job, CUstream stream);
	bool during_call; /* the source must have been read when the call returns */
};

/*
 * How a copy is made: unchanged; as cuMemcpyPeer or cuMemcpy3DPeer; through memory on both GPUs that is not the
 * heap's; in the context of the other GPU; unchanged, because no other way exists.
 */
enum way { WAY_AS_IT_IS, WAY_PEER, WAY_STAGED, WAY_AWAY, WAY_NONE };

/*
 * Returns how the copy is to be made. Fills in the contexts of job->box for WAY_PEER and WAY_STAGED, and *ret_away for
 * WAY_AWAY. If one side is in another device's heap, holds peer access as it is (submit_hold_access): after another
 * answer than WAY_AS_IT_IS the caller must let it go (submit_let_go_access). The caller must be inside enter_serve().
 */
enum way copy_find_way(struct job *job, CUcontext *ret_away);

/* ---- copy_staged.c ---- */

/*
 * Makes the program's stream wait for `after`. Enters the home context, because a default stream is that of the
 * current context.
 */
CUresult copy_go_on_behind(const struct job *job, CUcontext home, CUevent after);
/* Makes a copy between the contexts of job->box through memory on both GPUs that is not the heap's. */
CUresult copy_staged(const struct job *job);

/* One side of a box in three dimensions, but for its context. */
#define COPY_SIDE(w)                                                                                                   \
	.w##XInBytes = box->w##XInBytes, .w##Y = box->w##Y, .w##Z = box->w##Z, .w##LOD = box->w##LOD,                  \
	.w##MemoryType = box->w##MemoryType, .w##Host = box->w##Host, .w##Device = box->w##Device,                     \
	.w##Array = box->w##Array, .w##Pitch = box->w##Pitch, .w##Height = box->w##Height

static inline CUDA_MEMCPY3D copy_without_contexts(const CUDA_MEMCPY3D_PEER *box)
{
	return (CUDA_MEMCPY3D){COPY_SIDE(src), COPY_SIDE(dst), .WidthInBytes = box->WidthInBytes, .Height = box->Height,
			       .Depth = box->Depth};
}

#endif
