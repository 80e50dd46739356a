// SPDX-License-Identifier: Apache-2.0
/* model.c: the kernels of the tests of the model, and what comes before and after each test (model.h). */
#include "model.h"

/* ---- kernels ---- */

/* Word by word: model_pdl_test looks at the first one meanwhile. */
static void fill_body(const struct sim_launch *launch, void **args)
{
	uint32_t *at = *(uint32_t **)args[0], value = *(uint32_t *)args[1];
	size_t n = *(size_t *)args[2];

	for (size_t i = 0; i < n; i++)
		__atomic_store_n(&at[i], value + (uint32_t)i, __ATOMIC_RELAXED);
}

/* Follows a pointer that lies in device memory. */
static void chase_body(const struct sim_launch *launch, void **args)
{
	CUdeviceptr *table = *(CUdeviceptr **)args[0];

	*(uint32_t *)sim_pointer(table[0]) = 77;
}

static void pair_body(const struct sim_launch *launch, void **args)
{
	struct model_pair *pair = args[1];

	for (uint32_t i = 0; i < pair->n; i++)
		pair->b[i] = pair->a[i] + *(unsigned char *)args[0];
}

atomic_bool model_gate;

static void gate_body(const struct sim_launch *launch, void **args)
{
	UNTIL(atomic_load(&model_gate));
}

SIM_MODULE(image, SIM_KERNEL("fill", fill_body, 8, 4, 8), SIM_KERNEL("chase", chase_body, 8),
	   SIM_KERNEL("pair", pair_body, 1, sizeof(struct model_pair)), SIM_KERNEL("gate", gate_body));
CUcontext model_context;
CUfunction model_chase, model_pair;
static CUfunction fill, gate_kernel;

static struct {
	CUgraph graphs[16];
	CUgraphExec instances[16];
	unsigned n_graphs, n_instances;
} made;

int model_set_up(void **state)
{
	CUmodule module;

	ok(cuInit(0));
	ok(cuCtxCreate(&model_context, NULL, 0, 0));
	ok(cuModuleLoadData(&module, &image));
	ok(cuModuleGetFunction(&fill, module, "fill"));
	ok(cuModuleGetFunction(&model_chase, module, "chase"));
	ok(cuModuleGetFunction(&model_pair, module, "pair"));
	ok(cuModuleGetFunction(&gate_kernel, module, "gate"));
	atomic_store(&model_gate, false);
	return 0;
}

int model_tear_down(void **state)
{
	atomic_store(&model_gate, true);
	sim_release();
	/* The test may have destroyed some of them itself: that is refused. */
	while (made.n_instances)
		cuGraphExecDestroy(made.instances[--made.n_instances]);
	while (made.n_graphs)
		cuGraphDestroy(made.graphs[--made.n_graphs]);
	ok(cuCtxDestroy(model_context));
	struct sim_live live = sim_live();
	if (sim_leaks(stderr) || live.device_bytes || live.host_bytes)
		return 1;
	return 0;
}

CUdeviceptr model_alloc(size_t bytes)
{
	CUdeviceptr at;

	ok(cuMemAlloc(&at, bytes));
	return at;
}

CUstream model_stream(void)
{
	CUstream stream;

	ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

CUevent model_event(unsigned flags)
{
	CUevent event;

	ok(cuEventCreate(&event, flags));
	return event;
}

static CUgraph note(CUgraph graph)
{
	assert_true(made.n_graphs < 16);
	return made.graphs[made.n_graphs++] = graph;
}

CUgraph model_graph(void)
{
	CUgraph graph;

	ok(cuGraphCreate(&graph, 0));
	return note(graph);
}

CUgraph model_captured(CUstream stream)
{
	CUgraph graph;

	ok(cuStreamEndCapture(stream, &graph));
	return note(graph);
}

CUgraphExec model_instance(CUgraph graph)
{
	CUgraphExec instance;

	assert_true(made.n_instances < 16);
	ok(cuGraphInstantiate(&instance, graph, 0));
	return made.instances[made.n_instances++] = instance;
}

CUmemAllocationProp model_on(CUmemLocationType type)
{
	return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = type}};
}

CUmemGenericAllocationHandle model_handle(CUmemLocationType type, size_t bytes)
{
	CUmemAllocationProp prop = model_on(type);
	CUmemGenericAllocationHandle handle;

	ok(cuMemCreate(&handle, bytes, &prop, 0));
	return handle;
}

CUdeviceptr model_map(CUmemGenericAllocationHandle handle, size_t bytes)
{
	CUdeviceptr at;

	ok(cuMemAddressReserve(&at, bytes, 0, 0, 0));
	ok(cuMemMap(at, bytes, 0, handle, 0));
	return at;
}

CUdeviceptr model_map_new(CUmemLocationType type, size_t bytes)
{
	CUmemGenericAllocationHandle handle = model_handle(type, bytes);
	CUdeviceptr at = model_map(handle, bytes);

	ok(cuMemRelease(handle));
	return at;
}

void model_set_access(CUdeviceptr at, size_t bytes, CUmemAccess_flags flags)
{
	CUmemAccessDesc desc = form_access(0, flags);

	ok(cuMemSetAccess(at, bytes, &desc, 1));
}

void model_unmap(CUdeviceptr at, size_t bytes)
{
	ok(cuMemUnmap(at, bytes));
	ok(cuMemAddressFree(at, bytes));
}

CUresult model_launch_fill(CUdeviceptr at, uint32_t value, size_t n, CUstream stream)
{
	void *args[] = {&at, &value, &n};

	return cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, stream, args, NULL);
}

CUresult model_launch_overlapping_fill(CUdeviceptr at, uint32_t value, size_t n, CUstream stream)
{
	void *args[] = {&at, &value, &n};
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
				       .value.programmaticStreamSerializationAllowed = 1};
	CUlaunchConfig config = {1, 1, 1, 32, 1, 1, 0, stream, &attribute, 1};

	return cuLaunchKernelEx(&config, fill, args, NULL);
}

CUresult model_launch_gate(CUstream stream)
{
	return cuLaunchKernel(gate_kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

void model_expect(CUdeviceptr at, uint32_t value, size_t n)
{
	uint32_t *got = malloc(n * 4);

	ok(cuMemcpyDtoH(got, at, n * 4));
	for (size_t i = 0; i < n; i++)
		assert_int_equal(got[i], value + i);
	free(got);
}
