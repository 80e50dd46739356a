// SPDX-License-Identifier: Apache-2.0
/*
 * named.h: what the driver needs of heap memory that a call names: that there is memory (place: on-use), that it is
 * mapped while nodes of graphs are made or changed, and that what copies of graphs name lies on the device.
 *
 * ---- graphs ----
 *
 * The driver refuses (INVALID_VALUE) a copy or a set whose memory is not mapped, when a node is added or changed, and
 * sets again when an instance is made. Heap memory is not mapped for a moment while it migrates, or after it was
 * evicted, while its map is deferred. Then the blocks that the nodes name are pinned, mapped, and the call is made
 * again. Measured (driver 580).
 *
 *	GRAPH_PINNED(result, params, nodeParams, REAL(...));
 *
 * Of a copy in an instance the driver moreover refuses other operands if those are not where the former were when they
 * were given: of memory mapped by cuMemMap it notes whether that is on the device, on the host, or partly on both. So
 * that all are noted as on the device, what copies name is fetched and pinned while they are given: when a graph is
 * instantiated, which is given its own copies again for that, when an instance is updated, and when a copy of an
 * instance is changed. What cannot come, for lack of room, in `static`, or while a capture is open, is noted where it
 * is. Only copies of one row matter; the driver changes no others.
 *
 * May wait for memory that migrates, a second at most; and for memory that is fetched, until one attempt has failed.
 * Locking: the caller must hold no lock.
 */
#ifndef SPILLWAY_NAMED_H
#define SPILLWAY_NAMED_H

#include "shim/process/process.h"
#include "shim/serve/backend.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct graph_pinned {
	CUdeviceptr start;
	size_t bytes;
};

struct graph_pin {
	struct enter_scope scope;
	struct graph_pinned *at; /* bytes whose blocks are pinned */
	uint32_t n, room;
	bool late;          /* something did not arrive: there are no more waits */
	bool stays;         /* nothing can come to the device now: nothing else is fetched */
	unsigned n_refused; /* sides of copies that found no room */
	bool names_heap;
};

/* Return true if the call was refused and something is pinned; then the caller must call graph_pin_end(), else not. */
bool graph_pin_copy(struct graph_pin *hold, CUresult result, const CUDA_MEMCPY3D *copy);
bool graph_pin_set(struct graph_pin *hold, CUresult result, const CUDA_MEMSET_NODE_PARAMS *set);
bool graph_pin_params(struct graph_pin *hold, CUresult result, const CUgraphNodeParams *params);
/* As above, for the sets of a graph and of its child graphs; bodies of conditional nodes cannot be read. */
bool graph_pin_sets(struct graph_pin *hold, CUresult result, CUgraph graph);
/* Before a copy of an instance is changed: pins what it names, on the device if possible. Returns as above. */
bool graph_pin_here(struct graph_pin *hold, const CUDA_MEMCPY3D *copy);
void graph_pin_end(struct graph_pin *hold);
/*
 * Before a graph is instantiated, or an instance updated from it. Returns whether a copy of it names heap memory, some
 * of which may be noted as on the host.
 */
bool graph_give_again(CUgraph graph);
/* The driver has refused to change copies that name heap memory. */
void graph_refused(void);

/*
 * After the call: if it was refused, makes it once more with the named memory pinned. kind: suffix of a function
 * above.
 */
#define GRAPH_PINNED_AGAIN(result, kind, named, call)                                                                  \
	do {                                                                                                           \
		struct graph_pin hold_;                                                                                \
                                                                                                                       \
		if (graph_pin_##kind(&hold_, result, named)) {                                                         \
			(result) = (call);                                                                             \
			graph_pin_end(&hold_);                                                                         \
		}                                                                                                      \
	} while (0)

/* Makes the first call as well. */
#define GRAPH_PINNED(result, kind, named, call)                                                                        \
	do {                                                                                                           \
		(result) = (call);                                                                                     \
		GRAPH_PINNED_AGAIN(result, kind, named, call);                                                         \
	} while (0)

/* ---- place: on-use ---- */

/*
 * Allocations with place: on-use. They get address space at once, and memory when a submission names a part
 * of them (submission_back). How far a name reaches is known of copies and sets; a pointer that a kernel gets may mean
 * all of the allocation. What a graph or a stream capture names is taken as a whole.
 */

/* Smaller allocations are served as with place: auto: each part takes a unit of the heap at least. */
#define ON_USE_LEAST (2 * HEAP_UNIT)

/* For submission_on_take(). Locking of its functions: as an allocation; the caller must hold nothing. */
extern const struct submission_takes on_use_takes;
/* Takes memory for what a name means (struct submission_takes). Locking: the same. */
CUresult on_use_take(CUdeviceptr address, uint64_t bytes, bool whole);
/*
 * The same for a range that begins in an allocation, from within a call that is served; for what keeps the address
 * without a submission that names it.
 */
CUresult on_use_take_range(CUdeviceptr address, uint64_t bytes);
#endif
