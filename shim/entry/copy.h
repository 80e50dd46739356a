/*
 * copy.h: copies that may be between GPUs: one function for each row COPY and COPY_SYNC, defined in copy.c. Each
 * returns true if it has made the copy in another way than the driver would, with the answer in *ret_result, and false
 * if the caller must submit the call like any other.
 */
#ifndef SPILLWAY_COPY_H
#define SPILLWAY_COPY_H

#include "shim/entry/entry.h"

/* clang-format off */
#define HOOK_COPY(name, params, args) bool copy_##name(CUresult *ret_result, ENTRY_UNPACK params);
#define HOOK_COPY_SYNC(name, params, args) bool copy_##name(CUresult *ret_result, ENTRY_UNPACK params);
#include "shim/driver/hooks.def"
/* clang-format on */

/* One copy of any kind, in the most general form. */
struct list;
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

static inline CUDA_MEMCPY3D copy_without_contexts(const CUDA_MEMCPY3D_PEER *box)
{
#define SIDE(w)                                                                                                        \
	.w##XInBytes = box->w##XInBytes, .w##Y = box->w##Y, .w##Z = box->w##Z, .w##LOD = box->w##LOD,                  \
	.w##MemoryType = box->w##MemoryType, .w##Host = box->w##Host, .w##Device = box->w##Device,                     \
	.w##Array = box->w##Array, .w##Pitch = box->w##Pitch, .w##Height = box->w##Height
	return (CUDA_MEMCPY3D){SIDE(src), SIDE(dst), .WidthInBytes = box->WidthInBytes, .Height = box->Height,
			       .Depth = box->Depth};
#undef SIDE
}

#endif
