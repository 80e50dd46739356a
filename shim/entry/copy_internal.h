/*
 * copy_internal.h: a copy that may be between GPUs, as entry_copy.c, which has it from the program, gives it to copy.c,
 * which knows the ways that it can go.
 */
#ifndef SPILLWAY_COPY_INTERNAL_H
#define SPILLWAY_COPY_INTERNAL_H

#include "shim/entry/copy.h"

/* Any copy, as the form that can say most. linear: WidthInBytes from one address to another. */
struct list;
struct job {
	CUDA_MEMCPY3D_PEER box;
	CUstream stream; /* NULL: a synchronous one */
	bool linear, sync, per_thread;
	bool is_peer; /* the program has said in whose names */
	/* One of a list: the list, which one, and how it is made as a list of one, with its attributes, on that stream. */
	const struct list *list;
	size_t index;
	CUresult (*as_list)(const struct job *job, CUstream stream);
	bool during_call; /* its source must have been read when the call returns */
};

/* As the driver has it; as cuMemcpyPeer; in the context of the other GPU; none is known, and it is left as it is. */
enum way { WAY_AS_IT_IS, WAY_PEER, WAY_AWAY, WAY_NONE };

/* Fills in the contexts of the way that it goes. Holds what access it leans on. Within enter_serve(), as copy_count(). */
enum way copy_find_way(struct job *job, CUcontext *ret_away);
void copy_count(enum way way);
/* Make it, if it goes another way; false: it is the driver's as it is. */
bool copy_make(struct job *job, CUresult *ret_result);
#endif
