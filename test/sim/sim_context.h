// SPDX-License-Identifier: Apache-2.0
/*
 * sim_context.h: contexts, and whose memory they may touch. Under sim.lock, as everything of sim_internal.h.
 */
#ifndef SIM_CONTEXT_H
#define SIM_CONTEXT_H

#include "sim_internal.h"

/* ---- sim_context.c: contexts ---- */

struct CUctx_st {
	CUcontext next;
	int device;
	bool alive, primary;
	unsigned attached; /* by cuCtxAttach, beside who made it */
	unsigned ends;     /* a primary one lives again under its handle; what was of an earlier life stays dead */
	CUresult dead;     /* sticky error of a context that died, or 0 */
	unsigned flags;
	unsigned long long id;
	struct CUstream_st *legacy, *streams;
	struct CUstream_st *observer; /* of ours: where cuCtxRecordEvent waits for all others */
	struct CUmod_st *modules;
	CUcontext memory; /* whose the memory is that is allocated in it; NULL: its own */
	CUcontext *peers; /* whose memory it may touch: cuCtxEnablePeerAccess */
	size_t n_peers;
};
CUresult sim_current(CUcontext *ret_context);
CUcontext sim_context(void); /* current context, NULL when there is none */
CUcontext sim_memory_context(void);
/* Waiting for a primary context, or an event of it, covers its green ones (cuda.h). */
bool sim_is_part(CUcontext part, CUcontext whole);
CUcontext sim_context_new(int device);
void sim_context_end(CUcontext context); /* waits for its work; the handle stays known */
CUresult sim_primary_retain(CUcontext *ret_context, CUdevice device);
CUresult sim_primary_release(CUdevice device);
bool sim_is_context(CUcontext context); /* alive or not */

/* ---- sim_peer.c: who may touch the memory of another device ---- */

void sim_peers_read(void); /* the settings */
bool sim_can_reach(int device, int owner);
/* Bits: the devices of which some context has been given access to what this one allocates. */
unsigned sim_peers_of(CUcontext owner);
bool sim_is_peer(CUcontext context, CUcontext owner); /* the same device, or access was enabled */
void sim_peers_forget_context(CUcontext context);

#endif
