/*
 * submission_internal.h: a submission, for submission.c, which hears what it names, and admit.c, which lets it into the driver.
 */
#ifndef SPILLWAY_SUBMISSION_INTERNAL_H
#define SPILLWAY_SUBMISSION_INTERNAL_H

#include "shim/device/device.h"
#include "shim/heap/arena.h"
#include "shim/submit/channel.h"
#include "shim/submit/submission.h"

/* Managed memory that one launch brings: so many pointers are looked at, the rest is left to the driver. */
#define SUBMISSION_AHEAD_MOST 32
/* Among so many blocks a repeated one is looked for in a row, beyond they are sorted. */
#define SUBMISSION_FEW 24

struct held {
	struct channel *channel;
	struct block_state *mark;
};

/* One a thread, so that it is there without memory. What has no room left for its names may touch anything. */
struct submission {
	bool busy, unknown, per_thread, has_key;
	bool tracked; /* tracking was on before anything was named */
	bool traced;  /* its names go into a record of the trace, up to its admission */
	bool holding; /* it is going to hold what it names, so each block is listed once, as far as that is cheap */
	bool holds;   /* it does */
	bool has_ticket;
	bool only_traced;
	int device; /* of the first heap address it named, for the trace; -1: none */
	CUstream stream;
	uint64_t id, function;
	const CUDA_LAUNCH_PARAMS *launches; /* n_launches of them where there are several */
	unsigned n_launches;
	struct inflight_ticket_place *place; /* of the thread; NULL: it has none */
	unsigned n_named, n_held, room;
	unsigned n_ahead;
	CUdeviceptr ahead[SUBMISSION_AHEAD_MOST];
	unsigned n_all;    /* channels of which everything is held: the first so many arenas */
	unsigned n_arenas; /* that were there before anything was named */
	struct named *named;
	struct held *held; /* as much room as named */
};

/* The heaps whose addresses count, and who is told; they only become more. device: a bit. */
struct submission_arena {
	const struct arena *arena;
	struct channel *channel;
	uint64_t device;
};
extern struct submission_arena submission_arenas[DEVICE_MOST];
extern atomic_uint submission_n_arenas;

#endif
