/*
 * graph_mend.c: changes refused copies of graph instances by way of scratch memory. The kinds that the driver has
 * recorded for a copy cannot be read, and depend on when it was made, so they are tried: at most nine pairs of kinds
 * of the two sides, the pair that fitted last first. A refusal changes nothing. Once a copy has scratch operands,
 * only mapping what was mapped before can fail, and is tried again; if it fails for good, nothing is mapped at that
 * address any more, so that a launch of the instance fails visibly, and the program gets the driver's refusal.
 *
 * An update is made from a clone of the program's graph, whose copies can be set; the driver names the node that was
 * refused. The clone's copies are first set to what they are: for the program's graph the driver has recorded what
 * was mapped when it was captured.
 *
 * Meanwhile the blocks of the new operands are pinned. The blocks of the old operands do not matter: only what was
 * recorded counts.
 */
#include "shim/serve/graph_mend.h"
#include "shim/serve/serve_state.h"
#include "shim/context/context.h"
#include "shim/process/enter.h"
#include "shim/serve/on_use.h"
#include "shim/serve/graph_scratch.h"
#include "shim/submit/graph.h"
#include "shim/accounting/ledger.h"
#include "shim/base/log.h"
#include "shim/driver/real.h"

#include <stdlib.h>
#include <string.h>

#define SIDES   2
#define TRIALS  (SCRATCH_KINDS * SCRATCH_KINDS)
#define REACH   HEAP_UNIT /* bytes of a copy with scratch operands */
#define TRIES   3         /* of what has worked a moment ago */
#define UPDATES 256       /* of one instance; beyond it, making the instance again is cheaper */
#define DEPTH   16        /* of child graphs */

struct side {
	bool is_heap;
	CUdeviceptr start;
	enum scratch_kind kind;
};

/* A copy as the program wants it. */
struct wanted {
	CUgraphNode node;
	CUDA_MEMCPY3D copy;
	struct device *device;
	struct side side[SIDES]; /* by enum scratch_side */
	unsigned n_trials, first;
	unsigned trial; /* pair of kinds that it has now, after the first trial */
};

/* ---- the wanted copy ---- */

static bool is_linear(const CUDA_MEMCPY3D *copy)
{
	return copy->WidthInBytes && copy->Height == 1 && copy->Depth == 1 && !copy->srcY && !copy->srcZ &&
	       !copy->dstY && !copy->dstZ;
}

static CUdeviceptr start_of(CUmemorytype type, CUdeviceptr device, size_t x)
{
	return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED ? device + x : 0;
}

/*
 * If driver memory ends before the copy does, the final change would be refused, when it is too late to go back.
 * Memory that the program has mapped continues in its next mapping; all other memory ends with the allocation,
 * whatever lies behind it.
 */
static bool is_whole(CUmemorytype type, CUdeviceptr start, size_t bytes)
{
	struct ledger_row mapping;
	CUdeviceptr base;
	size_t all;

	if (type == CU_MEMORYTYPE_HOST)
		return true;
	while (start && REAL(cuMemGetAddressRange_v2)(&base, &all, start) == CUDA_SUCCESS) {
		size_t here = all - (start - base);

		if (bytes <= here)
			return true;
		if (!ledger_get(LEDGER_MAPPING, base, &mapping))
			return false;
		start += here;
		bytes -= here;
	}
	return false;
}

/*
 * Fills in *wanted. Returns false if the copy cannot be changed by way of scratch memory. Sides may be in the heap of
 * one device; sides outside a heap stay as they are.
 */
static bool wanted_init(struct wanted *wanted, CUgraphNode node, const CUDA_MEMCPY3D *copy)
{
	CUmemorytype type[SIDES] = {copy->dstMemoryType, copy->srcMemoryType};

	*wanted = (struct wanted){.node = node, .copy = *copy};
	if (!is_linear(copy))
		return false;
	wanted->side[SCRATCH_DST].start = start_of(type[SCRATCH_DST], copy->dstDevice, copy->dstXInBytes);
	wanted->side[SCRATCH_SRC].start = start_of(type[SCRATCH_SRC], copy->srcDevice, copy->srcXInBytes);
	for (int i = 0; i < SIDES; i++) {
		struct side *side = &wanted->side[i];
		struct device *device = side->start ? device_of(side->start) : NULL;

		if (device && wanted->device && device != wanted->device)
			return false;
		side->is_heap = device;
		if (device)
			wanted->device = device;
		else if (!is_whole(type[i], side->start, copy->WidthInBytes))
			return false;
	}
	return wanted->device;
}

/* Fails for memory that other devices lend: its kind for the driver is unknown. */
static bool graph_mend_look(struct side *side, struct heap *heap, size_t bytes)
{
	uint64_t at[CHUNK_PLACES];

	if (!heap_spread(heap, side->start, bytes, at) || at[CHUNK_PEER])
		return false;
	side->kind = !at[CHUNK_HOST] ? SCRATCH_DEVICE : at[CHUNK_DEVICE] ? SCRATCH_MIXED : SCRATCH_HOST;
	return true;
}

static void graph_mend_unpin(struct wanted *wanted, int n)
{
	struct heap *heap = atomic_load(&wanted->device->heap);

	for (int i = 0; i < n; i++)
		if (wanted->side[i].is_heap)
			heap_pin_end(heap, wanted->side[i].start, wanted->copy.WidthInBytes, PIN_OFF);
}

/* Pins the blocks of both sides until graph_mend_unpin() of all sides. */
static bool graph_mend_pin(struct wanted *wanted)
{
	struct heap *heap = atomic_load(&wanted->device->heap);
	size_t bytes = wanted->copy.WidthInBytes;

	for (int i = 0; i < SIDES; i++) {
		struct side *side = &wanted->side[i];

		if (!side->is_heap)
			continue;
		if (on_use_take_whole(side->start) != CUDA_SUCCESS || !heap_pin(heap, side->start, bytes)) {
			graph_mend_unpin(wanted, i);
			return false;
		}
		if (!graph_mend_look(side, heap, bytes)) {
			graph_mend_unpin(wanted, i + 1);
			return false;
		}
	}
	return true;
}

/* ---- trials ---- */

static enum scratch_kind kind_tried(const struct wanted *wanted, int side)
{
	return (enum scratch_kind)(side == SCRATCH_DST ? wanted->trial / SCRATCH_KINDS : wanted->trial % SCRATCH_KINDS);
}

/* Goes to the next trial. Returns false if none is left. A side that is not in a heap has nothing to try. */
static bool next_trial(struct wanted *wanted)
{
	if (!wanted->n_trials)
		wanted->first = serve_state.graph_mend.last_trial;
	while (wanted->n_trials < TRIALS) {
		wanted->trial = (wanted->first + wanted->n_trials++) % TRIALS;
		bool skipped = false;
		for (int i = 0; i < SIDES; i++)
			skipped |= !wanted->side[i].is_heap && kind_tried(wanted, i) != 0;
		if (!skipped)
			return true;
	}
	return false;
}

/*
 * Maps at the copy's scratch operands, for either side, the kind that was tried, or with as_it_will_be the wanted
 * kind.
 */
static bool graph_mend_show(const struct wanted *wanted, bool as_it_will_be)
{
	bool good = true;

	for (int i = 0; i < SIDES; i++) {
		const struct side *side = &wanted->side[i];
		enum scratch_kind was = kind_tried(wanted, i);

		if (side->is_heap)
			good &= scratch_show(wanted->device, (enum scratch_side)i, was, side->kind,
					     as_it_will_be ? side->kind : was);
	}
	return good;
}

static CUDA_MEMCPY3D copy_tried(const struct wanted *wanted)
{
	CUDA_MEMCPY3D copy = wanted->copy;
	const struct side *dst = &wanted->side[SCRATCH_DST], *src = &wanted->side[SCRATCH_SRC];

	if ((dst->is_heap && src->is_heap) || copy.WidthInBytes > REACH)
		copy.WidthInBytes = REACH;
	copy.dstPitch = copy.srcPitch = 0;
	copy.dstHeight = copy.srcHeight = 0;
	if (dst->is_heap) {
		copy.dstXInBytes = 0;
		copy.dstDevice = scratch_at(wanted->device, SCRATCH_DST, kind_tried(wanted, SCRATCH_DST), dst->kind,
					    copy.WidthInBytes);
	}
	if (src->is_heap) {
		copy.srcXInBytes = 0;
		copy.srcDevice = scratch_at(wanted->device, SCRATCH_SRC, kind_tried(wanted, SCRATCH_SRC), src->kind,
					    copy.WidthInBytes);
	}
	return copy;
}

static void graph_mend_lost(struct device *device)
{
	scratch_abandon(device);
	log_once("a copy of a graph could not be changed, nor put back: launches of that instance will fail; make it "
		 "anew (cuGraphInstantiate)");
}

/* ---- one copy ---- */

/* A copy in an instance, named by its node. */
struct of_instance {
	CUgraphExec exec;
	CUcontext context;
};

static bool graph_mend_set(const struct of_instance *of, const struct wanted *wanted, const CUDA_MEMCPY3D *copy)
{
	return REAL(cuGraphExecMemcpyNodeSetParams)(of->exec, wanted->node, copy, of->context) == CUDA_SUCCESS;
}

static bool lead_over(const struct of_instance *of, struct wanted *wanted)
{
	CUDA_MEMCPY3D scratch;

	do {
		if (!next_trial(wanted) || !graph_mend_show(wanted, false))
			return false;
		scratch = copy_tried(wanted);
	} while (!graph_mend_set(of, wanted, &scratch));
	serve_state.graph_mend.last_trial = wanted->trial;
	for (int i = 0; i < TRIES; i++)
		if (graph_mend_show(wanted, true) && graph_mend_set(of, wanted, &scratch) &&
		    graph_mend_set(of, wanted, &wanted->copy))
			return true;
	graph_mend_lost(wanted->device);
	return false;
}

static bool mend_held(const struct of_instance *of, struct wanted *wanted)
{
	lock_take(&serve_state.graph_mend.lock);
	bool good = scratch_begin(wanted->device) && lead_over(of, wanted);
	scratch_end(wanted->device);
	lock_drop(&serve_state.graph_mend.lock);
	return good;
}

static void graph_mend_count(bool good)
{
	stats_add(good ? STAT_graph_mends : STAT_graph_refusals, 1);
	if (!good)
		log_once("the driver refuses to give a copy of an instantiated graph other memory, because that is not "
			 "where the former was (on the device, on the host); a program that makes the graph anew then "
			 "goes on");
}

CUresult mend_set(CUresult refused, CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext context)
{
	const struct of_instance of = {.exec = exec, .context = context ? context : context_current()};
	struct enter_scope scope;
	struct wanted wanted;

	if (refused != CUDA_ERROR_INVALID_VALUE || !copy || !enter_serve(&scope))
		return refused;
	/* If the program could not have it natively either, that is its own mistake. */
	if (!wanted_init(&wanted, node, copy) || !graph_mend_pin(&wanted))
		return enter_leave(&scope, refused);
	bool good = mend_held(&of, &wanted);
	graph_mend_unpin(&wanted, SIDES);
	graph_mend_count(good);
	return enter_leave(&scope, good ? CUDA_SUCCESS : refused);
}

/* ---- all copies of an instance ---- */

struct update {
	CUgraphExec exec;
	CUgraph clone;
	struct wanted *wanted;
	size_t n, room;
	unsigned n_updates;
	bool lost; /* the instance has scratch operands, and the other nodes of the new graph */
	struct device *device;
};

static bool graph_mend_add(struct update *update, CUgraphNode node)
{
	CUDA_MEMCPY3D copy;
	struct wanted wanted;

	if (REAL(cuGraphMemcpyNodeGetParams)(node, &copy) != CUDA_SUCCESS)
		return false;
	if (!wanted_init(&wanted, node, &copy))
		return true; /* not ours; the driver may accept it */
	if (update->device && wanted.device != update->device)
		return false;
	if (update->n == update->room) {
		size_t room = update->room ? 2 * update->room : 16;
		struct wanted *more = realloc(update->wanted, room * sizeof(*more));

		if (!more)
			return false;
		update->wanted = more;
		update->room = room;
	}
	if (!graph_mend_pin(&wanted))
		return false;
	update->device = wanted.device;
	update->wanted[update->n++] = wanted;
	return true;
}

static bool graph_mend_collect(struct update *update, CUgraph graph, unsigned depth);

static bool collect_node(struct update *update, CUgraphNode node, unsigned depth)
{
	CUgraphNodeType type;
	CUgraph child;

	if (REAL(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS)
		return false;
	if (type == CU_GRAPH_NODE_TYPE_MEMCPY)
		return graph_mend_add(update, node);
	if (type != CU_GRAPH_NODE_TYPE_GRAPH)
		return true;
	return REAL(cuGraphChildGraphNodeGetGraph)(node, &child) == CUDA_SUCCESS &&
	       graph_mend_collect(update, child, depth + 1);
}

static bool graph_mend_collect(struct update *update, CUgraph graph, unsigned depth)
{
	CUgraphNode *nodes;
	size_t n = 0;
	bool good = depth < DEPTH && REAL(cuGraphGetNodes)(graph, NULL, &n) == CUDA_SUCCESS;

	if (!good || !n)
		return good;
	nodes = calloc(n, sizeof(*nodes));
	good = nodes && REAL(cuGraphGetNodes)(graph, nodes, &n) == CUDA_SUCCESS;
	for (size_t i = 0; good && i < n; i++)
		good = collect_node(update, nodes[i], depth);
	free(nodes);
	return good;
}

/*
 * Makes the update. Returns whether it was refused; *ret_wanted is the copy that it was refused for, NULL if another
 * node was.
 */
static bool update_refused(struct update *update, struct wanted **ret_wanted)
{
	CUgraphExecUpdateResultInfo info = {0};
	CUresult result = REAL(cuGraphExecUpdate_v2)(update->exec, update->clone, &info);

	update->n_updates++;
	*ret_wanted = NULL;
	if (result == CUDA_SUCCESS)
		return false;
	if (info.result != CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED)
		return true;
	for (size_t i = 0; i < update->n && !*ret_wanted; i++)
		if (update->wanted[i].node == info.errorNode)
			*ret_wanted = &update->wanted[i];
	return true;
}

static bool set_clone(const struct wanted *wanted, bool scratch)
{
	CUDA_MEMCPY3D copy = scratch ? copy_tried(wanted) : wanted->copy;

	return REAL(cuGraphMemcpyNodeSetParams)(wanted->node, &copy) == CUDA_SUCCESS;
}

/* Gives scratch operands to every copy that is refused with its wanted ones, until the update is accepted. */
static bool reach_scratch(struct update *update)
{
	struct wanted *wanted, *before = NULL;

	for (size_t i = 0; i < update->n; i++)
		if (!set_clone(&update->wanted[i], false))
			return false;
	while (update_refused(update, &wanted)) {
		if (before && before != wanted)
			serve_state.graph_mend.last_trial = before->trial;
		before = wanted;
		if (!wanted || update->n_updates >= UPDATES || !next_trial(wanted) || !graph_mend_show(wanted, false) ||
		    !set_clone(wanted, true))
			return false;
	}
	if (before)
		serve_state.graph_mend.last_trial = before->trial;
	return true;
}

/* From the scratch operands, changes all copies to the wanted ones. */
static bool leave_scratch(struct update *update)
{
	struct wanted *by;

	for (size_t i = 0; i < update->n; i++) {
		const struct wanted *wanted = &update->wanted[i];

		if (wanted->n_trials && (!graph_mend_show(wanted, true) || !set_clone(wanted, true)))
			return false;
	}
	if (update_refused(update, &by))
		return false;
	for (size_t i = 0; i < update->n; i++)
		if (update->wanted[i].n_trials && !set_clone(&update->wanted[i], false))
			return false;
	return !update_refused(update, &by);
}

static bool lead_all_over(struct update *update)
{
	bool any = false;

	if (!reach_scratch(update))
		return false;
	for (size_t i = 0; i < update->n; i++)
		any |= update->wanted[i].n_trials != 0;
	for (int i = 0; i < TRIES && any; i++)
		if (leave_scratch(update))
			return true;
	if (any)
		graph_mend_lost(update->device);
	update->lost = any;
	return !any;
}

/* A graph that cannot be cloned is only searched for copies of ours, so that the refusal is counted. */
static bool mend_all(struct update *update, CUgraph graph)
{
	bool good = graph_mend_collect(update, update->clone ? update->clone : graph, 0) && update->n && update->clone;

	if (good) {
		lock_take(&serve_state.graph_mend.lock);
		good = scratch_begin(update->device) && lead_all_over(update);
		scratch_end(update->device);
		lock_drop(&serve_state.graph_mend.lock);
	}
	for (size_t i = 0; i < update->n; i++)
		graph_mend_unpin(&update->wanted[i], SIDES);
	return good;
}

CUresult mend_update(CUresult refused, CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResult reason)
{
	struct update update = {.exec = exec};
	struct enter_scope scope;

	if (refused != CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE ||
	    reason != CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED || !enter_serve(&scope))
		return refused;
	if (REAL(cuGraphClone)(&update.clone, graph) != CUDA_SUCCESS)
		update.clone = NULL;
	bool good = mend_all(&update, graph);
	if (update.lost)
		graph_lost(exec);
	if (update.clone)
		REAL(cuGraphDestroy)(update.clone);
	if (good || update.n)
		graph_mend_count(good);
	free(update.wanted);
	return enter_leave(&scope, good ? CUDA_SUCCESS : refused);
}
