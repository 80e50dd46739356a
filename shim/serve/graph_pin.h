/*
 * graph_pin.h: memory that nodes of graphs name is mapped while the driver looks at it.
 *
 * A copy or a set that is given memory is refused (INVALID_VALUE) where that is not mapped, when a node is added or changed,
 * and sets again when an instance is made (driver 580): so is memory of the heap that is on its way, for a moment, or that
 * has come out and rests. Then what the nodes name is held where it is, mapped, and the call is made again.
 *
 *	GRAPH_PINNED(result, params, nodeParams, REAL(...));
 *
 * Under no lock. May wait for what is on its way, a second at most.
 */
#ifndef SPILLWAY_GRAPH_PIN_H
#define SPILLWAY_GRAPH_PIN_H

#include "shim/process/enter.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct graph_pinned {
	CUdeviceptr start;
	size_t bytes;
};

struct graph_pin {
	struct enter_scope scope;
	struct graph_pinned *at; /* bytes whose blocks are held */
	size_t n, room;
	bool late; /* something did not arrive: nothing more is waited for */
};

/* True: the call was refused, something is held; to be ended. Else there is nothing to end. */
bool graph_pin_copy(struct graph_pin *hold, CUresult result, const CUDA_MEMCPY3D *copy);
bool graph_pin_set(struct graph_pin *hold, CUresult result, const CUDA_MEMSET_NODE_PARAMS *set);
bool graph_pin_params(struct graph_pin *hold, CUresult result, const CUgraphNodeParams *params);
/* What the sets of a graph name, and of its child graphs; bodies of conditional nodes cannot be read. */
bool graph_pin_sets(struct graph_pin *hold, CUresult result, CUgraph graph);
void graph_pin_end(struct graph_pin *hold);

/* The call has been made: once more, with what is named held, where it was refused. kind: of the functions above. */
#define GRAPH_PINNED_AGAIN(result, kind, named, call)                                                                  \
	do {                                                                                                           \
		struct graph_pin hold_;                                                                                \
                                                                                                                       \
		if (graph_pin_##kind(&hold_, result, named)) {                                                         \
			(result) = (call);                                                                             \
			graph_pin_end(&hold_);                                                                         \
		}                                                                                                      \
	} while (0)

/* The same with the first call. */
#define GRAPH_PINNED(result, kind, named, call)                                                                        \
	do {                                                                                                           \
		(result) = (call);                                                                                     \
		GRAPH_PINNED_AGAIN(result, kind, named, call);                                                         \
	} while (0)

#endif
