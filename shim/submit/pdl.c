/* pdl.c: removes programmatic stream serialization from launches, and finds programmatic edges in graphs (pdl.h). */
#include "shim/submit/pdl.h"
#include "shim/base/log.h"
#include "shim/driver/real.h"
#include "shim/stats/stats.h"
#include "shim/submit/types.h"

#include <stdlib.h>
#include <string.h>

/*
 * The most attributes of a launch that are copied, on the stack, 72 bytes each. CUDA 13.0 has 15 attributes for
 * launches, so a launch with more than this limit repeats some; it is passed on unchanged.
 */
#define ATTRIBUTES_MOST 32

void pdl_start(enum policy_pdl setting)
{
	atomic_store(&submit_state.pdl_setting, setting);
	if (setting == POLICY_PDL_OFF)
		atomic_store(&pdl_cleared, true);
}

void pdl_spilled(void)
{
	if (!pdl_is_cleared() && atomic_load(&submit_state.pdl_setting) == POLICY_PDL_AUTO)
		atomic_store(&pdl_cleared, true);
}

static bool is_event(CUlaunchAttributeID id)
{
	return id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT || id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
}

static bool is_overlap(const CUlaunchAttribute *attribute)
{
	return attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
	       attribute->value.programmaticStreamSerializationAllowed;
}

/* Returns true if the launch asks for overlap. Counts launches with programmatic or launch-completion events. */
static bool pdl_look(const CUlaunchConfig *config)
{
	bool overlaps = false, has_event = false;

	for (unsigned i = 0; i < config->numAttrs; i++) {
		overlaps |= is_overlap(&config->attrs[i]);
		has_event |= is_event(config->attrs[i].id);
	}
	if (has_event)
		stats_add(STAT_pdl_events, 1);
	return overlaps;
}

CUresult pdl_launch(pdl_launch_function launch, const CUlaunchConfig *config, CUfunction function, void **params,
		    void **extra)
{
	CUlaunchAttribute attributes[ATTRIBUTES_MOST];
	CUlaunchConfig serial;

	/* Invalid arguments are left for the driver to refuse. */
	if (!config || !config->numAttrs || !config->attrs || !pdl_look(config))
		return launch(config, function, params, extra);
	if (config->numAttrs > ATTRIBUTES_MOST) {
		log_once("a launch with %u attributes keeps its programmatic overlap: at most %d are looked at",
			 config->numAttrs, ATTRIBUTES_MOST);
		return launch(config, function, params, extra);
	}
	memcpy(attributes, config->attrs, config->numAttrs * sizeof(*attributes));
	for (unsigned i = 0; i < config->numAttrs; i++)
		if (is_overlap(&attributes[i]))
			attributes[i].value.programmaticStreamSerializationAllowed = 0;
	serial = *config;
	serial.attrs = attributes;
	stats_add(STAT_pdl_cleared, 1);
	return launch(&serial, function, params, extra);
}

static bool has_programmatic_edge(CUgraph graph, size_t n)
{
	CUgraphNode *nodes = calloc(2 * n, sizeof(*nodes)); /* n nodes where edges begin, then n where they end */
	CUgraphEdgeData *edges = calloc(n, sizeof(*edges));
	bool found = false;

	if (nodes && edges && REAL(cuGraphGetEdges_v2)(graph, nodes, nodes + n, edges, &n) == CUDA_SUCCESS)
		for (size_t i = 0; i < n && !found; i++)
			found = edges[i].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
	free(nodes);
	free(edges);
	return found;
}

bool pdl_graph_overlaps(CUgraph graph)
{
	size_t n = 0;

	/* A driver without edge data (before CUDA 12.3) has no programmatic edges. */
	return real_has(HOOK_cuGraphGetEdges_v2) &&
	       REAL(cuGraphGetEdges_v2)(graph, NULL, NULL, NULL, &n) == CUDA_SUCCESS && n &&
	       has_programmatic_edge(graph, n);
}
