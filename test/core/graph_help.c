// SPDX-License-Identifier: Apache-2.0
#include "test/core/core.h"
#include "test/core/graph_help.h"

#include "shim/submit/graph.h"

/* ---- the fakes ---- */

void submission_function(struct submission *use, uint64_t function)
{
	use->function = function;
	use->n_functions++;
}

void submission_name(struct submission *use, CUdeviceptr address, size_t bytes)
{
	CHECK(use->n < sizeof(use->at) / sizeof(use->at[0]));
	use->at[use->n++] = (struct test_name){address, bytes};
}

void submission_graph(struct submission *use, struct graph_names *names)
{
	use->graph = names;
}

void submission_unknown(struct submission *use)
{
	use->unknown = true;
}

uint64_t submission_what(const struct submission *use)
{
	return use->function;
}

void submission_stores(struct submission *use, CUdeviceptr address)
{
	use->n_stored++;
}

bool submission_is_heap(CUdeviceptr address)
{
	return address - memory < 8 * MIB;
}

bool submission_means_heap(CUdeviceptr address)
{
	return submission_is_heap(address);
}

void submission_heap_span(CUdeviceptr *ret_first, CUdeviceptr *ret_bytes)
{
	*ret_first = memory;
	*ret_bytes = 8 * MIB;
}

static __thread struct submission of_this_thread;

void names_drop(void)
{
	graph_names_drop(of_this_thread.graph);
	of_this_thread.graph = NULL;
}

const struct submission *names_of(CUgraphExec exec)
{
	struct submission *use = &of_this_thread;

	use->n = use->n_functions = use->n_stored = 0;
	use->unknown = false;
	names_drop();
	graph_operands(use, exec);
	CHECK(use->n_functions == 1);
	return use;
}

void expect_names(CUgraphExec exec, const struct test_name *names, size_t n, int line)
{
	const struct submission *use = names_of(exec);

	if (use->unknown)
		fail_msg("line %d: unknown", line);
	for (size_t i = 0; i < n; i++) {
		size_t j = 0;

		while (j < use->n && memcmp(&use->at[j], &names[i], sizeof(names[i])) != 0)
			j++;
		if (j == use->n)
			fail_msg("line %d: %#llx + %zu is not named", line, names[i].address, names[i].bytes);
	}
	if (use->n != n)
		fail_msg("line %d: %zu names, not %zu", line, use->n, n);
}

unsigned uses_of(CUgraphExec exec, CUdeviceptr address)
{
	const struct submission *use = names_of(exec);

	CHECK(use->graph);
	for (size_t i = 0; i < use->graph->n; i++)
		if (use->graph->at[i].address == address)
			return use->graph->at[i].uses;
	return 0;
}

void expect_unknown(CUgraphExec exec)
{
	const struct submission *use = names_of(exec);

	assert_true(use->unknown && !use->n);
}

/* ---- the driver ---- */

CUcontext context;
CUdeviceptr memory;
CUfunction mix_function, plain_function, wide_function;
CUkernel mix_kernel;

void do_nothing(void *argument) {}

static void body(const struct sim_launch *launch, void **args) {}

SIM_MODULE(image, SIM_KERNEL("mix", body, 8, 4, 8, 24), SIM_KERNEL("plain", body),
	   SIM_KERNEL("wide", body, sizeof(struct wide)));

void graph_test_start(void)
{
	CUmodule module;
	CUlibrary library;

	core_driver();
	CHECK(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
	CHECK(cuModuleLoadData(&module, &image) == CUDA_SUCCESS);
	CHECK(cuModuleGetFunction(&mix_function, module, "mix") == CUDA_SUCCESS);
	CHECK(cuModuleGetFunction(&plain_function, module, "plain") == CUDA_SUCCESS);
	CHECK(cuModuleGetFunction(&wide_function, module, "wide") == CUDA_SUCCESS);
	CHECK(cuLibraryLoadData(&library, &image, NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS);
	CHECK(cuLibraryGetKernel(&mix_kernel, library, "mix") == CUDA_SUCCESS);
	CHECK(cuMemAlloc_v2(&memory, 8 * MIB) == CUDA_SUCCESS);
}

int graph_test_stop(void **state)
{
	return graph_n_unknown() != 0;
}

struct mix_arguments mix_of(unsigned which)
{
	CUdeviceptr at = memory + which * MIB;

	return (struct mix_arguments){at + 16, 5, 0, at + 32, {at + 48, 7, at + 64}};
}

void mix_params(struct mix_arguments *arguments, void *ret_params[4])
{
	ret_params[0] = &arguments->first;
	ret_params[1] = &arguments->number;
	ret_params[2] = &arguments->second;
	ret_params[3] = &arguments->inner;
}

void wide_of(struct wide *ret_wide, size_t from)
{
	for (size_t i = 0; i < WIDE; i++)
		ret_wide->at[i] = memory + 8 * (from + i);
}

enum { KEPT = 64 };
static CUgraph graphs[KEPT];
static CUgraphExec instances[KEPT];
static unsigned n_graphs, n_instances;

CUgraph graph_new(void)
{
	CUgraph graph;

	CHECK(cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
	if (n_graphs < KEPT)
		graphs[n_graphs++] = graph;
	return graph;
}

CUgraphExec instantiate(CUgraph graph)
{
	CUgraphExec exec = core_instance(graph);

	if (n_instances < KEPT)
		instances[n_instances++] = exec;
	return exec;
}

/* The driver refuses to destroy what the test has destroyed itself. */
int graph_check(void **state)
{
	while (n_instances)
		cuGraphExecDestroy(instances[--n_instances]);
	while (n_graphs)
		cuGraphDestroy(graphs[--n_graphs]);
	core_streams_end(NULL);
	assert_int_equal(graph_n_unknown(), 0);
	return 0;
}

CUgraphNode add_mix(CUgraph graph, struct mix_arguments *arguments)
{
	void *params[4];
	CUDA_KERNEL_NODE_PARAMS p = form_kernel(mix_function, params, NULL);
	CUgraphNode node;

	mix_params(arguments, params);
	CHECK(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &p) == CUDA_SUCCESS);
	return node;
}

CUgraphNode add_copy(CUgraph graph, const CUDA_MEMCPY3D *copy)
{
	CUgraphNode node;

	CHECK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, copy, context) == CUDA_SUCCESS);
	return node;
}

CUgraphNode add_set(CUgraph graph, CUDA_MEMSET_NODE_PARAMS set)
{
	CUgraphNode node;

	CHECK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, context) == CUDA_SUCCESS);
	return node;
}

void set_mix(CUgraphExec exec, CUgraphNode node, struct mix_arguments *arguments)
{
	void *params[4];
	CUDA_KERNEL_NODE_PARAMS p = form_kernel(mix_function, params, NULL);

	mix_params(arguments, params);
	CHECK(cuGraphExecKernelNodeSetParams_v2(exec, node, &p) == CUDA_SUCCESS);
}
