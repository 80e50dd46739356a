// SPDX-License-Identifier: Apache-2.0
/*
 * regraph_help.h: what the tests of instances whose copies are given other memory share: blocks of which in `static` it
 * is known where they are, graphs of copies between them, and the ways to change one. Called in child processes
 * (child.h), of which each has one scene; a CHECK that fails ends them.
 */
#ifndef PRELOAD_REGRAPH_HELP_H
#define PRELOAD_REGRAPH_HELP_H

#include "test/preload/scene.h"

#define BUDGET (16 * MIB)
#define BYTES  (4 * MIB)
#define WORDS  (BYTES / 4)

/* Where they are in static. */
enum { DEVICE, DEVICE_TOO, DEVICE_MORE, MIXED, HOST, HOST_TOO, N_BLOCKS };

extern struct scene scene;
extern CUdeviceptr block[N_BLOCKS];
extern CUstream stream;

bool is_static(void);
/* The scene, the blocks and the stream; in static it is checked that they are where they should be. */
void open_blocks(void);
/* This part of a test, in a process of its own, under the mode. */
void graph_part(void (*program)(void));

/* By number of block. */
struct copy {
	int to, from;
};
/* Some copies in a row, and a set behind them that tells one graph from another: its value in the last word. */
CUgraph capture_copies(const struct copy *copy, unsigned n, CUdeviceptr word, unsigned value);
/* The graph as a child of another one, which is returned; the caller's, and the first one is gone. */
CUgraph in_another(CUgraph graph);
CUgraphNode first_node(CUgraph graph);
CUgraphExec instantiate(CUgraph graph);
/* When all else is done; returns when it is. */
void run_graph(CUgraphExec exec);
CUDA_MEMCPY3D copy_of(struct copy copy);

enum way { SET, SET_ANY, UPDATE, UPDATE_V1, WAYS };
/* What the driver says must agree with what it says of the nodes. */
CUresult update_graph(CUgraphExec exec, CUgraph graph, enum way way);
/* The instance's first node, which is a copy, becomes this one. word: of the set behind it. */
CUresult change_copy(CUgraphExec exec, CUgraphNode node, struct copy copy, enum way way, CUdeviceptr word);
void fill_block(int which, unsigned value);

#endif
