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
	while (!atomic_load(&model_gate))
		usleep(100);
}

static const size_t fill_bytes[] = {8, 4, 8}, chase_bytes[] = {8}, pair_bytes[] = {1, sizeof(struct model_pair)};
static const struct sim_kernel kernels[] = {{"fill", fill_body, 3, fill_bytes},
					    {"chase", chase_body, 1, chase_bytes},
					    {"pair", pair_body, 2, pair_bytes},
					    {"gate", gate_body, 0, NULL}};
static const struct sim_module image = {SIM_MODULE_MAGIC, 4, kernels};
CUcontext model_context;
CUfunction model_chase, model_pair;
static CUfunction fill, gate_kernel;

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
	struct sim_live live;

	atomic_store(&model_gate, true);
	sim_release();
	ok(cuCtxDestroy(model_context));
	live = sim_live();
	if (sim_leaks(stderr) || live.device_bytes || live.host_bytes)
		return 1;
	return 0;
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
