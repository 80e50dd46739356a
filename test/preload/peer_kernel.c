/* peer_kernel.c: the kernels of peer_random, as bodies on the device and as a function on shadows (peers.h). */
#include "test/preload/peers.h"

void kernel_mix(uint32_t *to, const uint32_t *from, size_t n, uint32_t salt)
{
	for (size_t i = 0; i < n; i++)
		to[i] = to[i] * 31 + (from ? from[i] : (uint32_t)i) + salt;
}

static void mix_body(const struct sim_launch *launch, void **args)
{
	kernel_mix(*(uint32_t **)args[0], *(uint32_t **)args[1], *(size_t *)args[2], *(uint32_t *)args[3]);
}

/* The block's address lies in device memory: no argument names it. */
static void chase_body(const struct sim_launch *launch, void **args)
{
	kernel_mix(sim_pointer(**(CUdeviceptr **)args[0]), NULL, *(size_t *)args[1], *(uint32_t *)args[2]);
}

static void rest_body(const struct sim_launch *launch, void **args)
{
	usleep(*(uint32_t *)args[0]);
}

static const size_t mix_params[] = {8, 8, 8, 4}, chase_params[] = {8, 8, 4}, rest_params[] = {4};
static const struct sim_kernel kernels[] = {
    {"mix", mix_body, 4, mix_params}, {"chase", chase_body, 3, chase_params}, {"rest", rest_body, 1, rest_params}};
static const struct sim_module image = {SIM_MODULE_MAGIC, 3, kernels};

void kernel_load(struct functions *functions)
{
	CUmodule module;

	GO(cuModuleLoadData(&module, &image));
	GO(cuModuleGetFunction(&functions->mix, module, "mix"));
	GO(cuModuleGetFunction(&functions->chase, module, "chase"));
	GO(cuModuleGetFunction(&functions->rest, module, "rest"));
}
