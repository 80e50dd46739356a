// SPDX-License-Identifier: Apache-2.0
/*
 * sim_graph.h: captures, graphs and their nodes, and the memory that nodes allocate. Under sim.lock, as everything of
 * sim_internal.h.
 */
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "sim_internal.h"

struct sim_work;
struct sim_block;

/* ---- sim_capture.c, sim_graph.c, sim_graph_exec.c, sim_graph_ask.c ---- */

struct sim_capture {
	struct sim_capture *next;
	CUgraph graph;
	CUstreamCaptureMode mode;
	CUstream origin;
	CUcontext context;
	unsigned thread;
	unsigned long id;
	bool invalid, to_graph;
};
struct CUgraphNode_st {
	CUgraphNode next;
	CUgraph graph;
	struct sim_work *work;
	CUgraphNode *after;
	size_t n_after;
	bool alive;
	bool overlaps;  /* the edge from the one kernel before it is programmatic */
	bool updatable; /* from the device, as is said: no kernel of ours does it */
	unsigned long mark;
	CUgraphNode twin; /* while its graph is being copied */
	void **params;    /* handed out by cuGraphKernelNodeGetParams */
	CUgraph *inside;  /* owned: a child graph, or the bodies of a condition */
	unsigned n_inside;
	CUgraphConditionalHandle condition;
};
struct CUgraph_st {
	CUgraph next_dead;
	bool alive;
	CUgraphNode first, last;
	size_t n_nodes;
};

extern struct sim_capture *sim_captures;
/* A call that is unsafe during capture (docs/facts.md, Stream capture): invalidates the captures it may not meet. */
CUresult sim_unsafe(void);
CUresult sim_capture_stream_touched(CUstream stream); /* query or synchronise of a capturing stream */
CUresult sim_capture_event_touched(CUevent event);    /* the same of an event that was recorded in a capture */
CUresult sim_capture_context_touched(CUcontext context);
CUresult sim_capture_work(CUstream stream, struct sim_work *work);
CUresult sim_capture_record(CUstream stream, CUevent event);
CUresult sim_capture_wait(CUstream stream, CUevent event);
void sim_capture_forget_stream(CUstream stream);
CUresult sim_capture_legacy(CUcontext context); /* work for the legacy stream while a blocking stream captures */
void sim_capture_invalidate(struct sim_capture *capture, const char *because);
CUgraph sim_graph_new(void);
void sim_graph_free(CUgraph graph);
CUgraphNode sim_graph_add(CUgraph graph, struct sim_work *work, const CUgraphNode *after, size_t n_after);
CUgraph sim_graph_clone(CUgraph graph);
bool sim_is_node(CUgraphNode node);
/*
 * sim_graph_memory.c: what allocation nodes have. References: nodes and instances, by their work; false: it has none.
 */
struct sim_graph_memory {
	struct sim_graph_memory *next; /* of all */
	struct sim_block *block;       /* NULL: its context has ended */
	size_t bytes;
	int device;
	unsigned references;
	bool live; /* allocated by a node that ran, and not freed */
};
CUresult sim_graph_alloc_work(struct sim_work **ret_work, size_t bytes);
CUresult sim_graph_free_work(struct sim_work **ret_work, CUdeviceptr address);
bool sim_graph_memory_ref(const struct sim_work *work);
void sim_graph_memory_unref(const struct sim_work *work);
void sim_graph_memory_free(struct sim_graph_memory *memory);
/* Parameters of whatever entry point in the one form for all; good: there were any. */
struct sim_node_form {
	bool good;
	CUgraphNodeParams params;
};
struct sim_node_form sim_node_form(CUgraphNodeType type, const void *params, size_t bytes);
CUresult sim_node_work(struct sim_work **ret_work, const CUgraphNodeParams *params);
CUresult sim_node_set(CUgraphNode node, const CUgraphNodeParams *params);

#endif
