/*
 * submission_internal.h: struct submission, shared by submission.c, which collects what it names, and admit.c, which
 * admits it.
 */
#ifndef SPILLWAY_SUBMISSION_INTERNAL_H
#define SPILLWAY_SUBMISSION_INTERNAL_H

#include "shim/device/device.h"
#include "shim/driver/real.h"
#include "shim/heap/arena.h"
#include "shim/submit/channel.h"
#include "shim/submit/submission.h"

/* Pointers to managed memory that one launch prefetches; the rest is left to the driver. */
/* Repeated blocks are found by a linear search among up to this many; beyond, the list is sorted. */
#define SUBMISSION_FEW 24

struct held {
	struct channel *channel;
	struct block_state *mark;
};

/*
 * Per-thread and statically allocated, so it needs no memory to exist. If the list of names cannot grow, `unknown` is
 * set. Only its thread uses it.
 */
struct submission {
	/* busy: between open and close; unknown: it may touch anything; has_key: the thread's end frees the lists */
	bool busy, unknown, per_thread, has_key;
	bool named_only; /* it clears memory (submission_named_only), unless it is unknown */
	bool tracked;    /* tracking was on before anything was named */
	bool traced;  /* until it is admitted, its names go into a record of the trace */
	bool holding; /* it will pin its blocks, so each is listed once, as far as that is cheap */
	bool holds;   /* it pins its blocks */
	bool has_ticket;
	bool only_traced; /* it is not counted, as nothing moves (completion.h) */
	bool refused;     /* the latest one ended in submission_back() */
	int device;       /* device of the first heap address that it named, for the trace; -1: none */
	CUstream stream;
	uint64_t id, function;
	const CUDA_LAUNCH_PARAMS *launches; /* n_launches of them if it consists of several; else unused */
	unsigned n_launches;
	struct graph_names
	    *graph; /* names of the graph that it launches; NULL: it launches none, or one that is unknown */
	struct inflight_ticket_place *place; /* the thread's place for tickets; NULL: none */
	unsigned n_named, n_held, n_aside, room; /* room: of each list */
	/* names in allocations that are backed on use, where some of what they may mean has no memory */
	struct named *wanted;
	unsigned n_wanted, room_wanted;
	bool wants_all; /* it stores pointers that are not listed */
	unsigned n_all;    /* the `everything` of the first n_all arenas is pinned, too */
	unsigned n_arenas; /* number of arenas before anything was named */
	unsigned n_besides; /* n_besides (submit_state.h) before anything was named */
	struct named *named;
	struct held *held;  /* blocks of the names; pinned if `holds` */
	struct held *aside; /* the same, of blocks that are not waited for while they are mapped (NAMED_ASIDE) */
};

/* Drops the names of the graph. To be called when the submission ends. */
void submission_drop_graph(struct submission *use);

/* The part of submission_name() that is about memory in heaps. */
void submission_name_in_heaps(struct submission *use, CUdeviceptr address, size_t bytes);

/* ---- on_use_names.c ---- */

/* Lists a name, and returns whether an address is in an allocation that is backed on use. */
void on_use_names_add(struct submission *use, CUdeviceptr address, size_t bytes);
bool on_use_names_is(CUdeviceptr address);
/*
 * Returns the devices (bits) of whose allocations a submission that may touch anything may touch some. Locking: as
 * completion_device().
 */
uint64_t on_use_names_devices(const struct submission *use);

static inline bool submission_is_graph(const struct submission *use)
{
	return use->id == HOOK_cuGraphLaunch || use->id == HOOK_cuGraphLaunch_ptsz;
}

/* The arenas of the heaps and their channels. Entries are only added. device: a bit. */
struct submission_arena {
	const struct arena *arena;
	struct channel *channel;
	uint64_t device;
};

#endif
