// SPDX-License-Identifier: Apache-2.0
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

SIM_MODULE(image, SIM_KERNEL("mix", mix_body, 8, 8, 8, 4), SIM_KERNEL("chase", chase_body, 8, 8, 4),
	   SIM_KERNEL("rest", rest_body, 4));

void kernel_load(struct functions *functions)
{
	functions->mix = made_up_kernel(&image, "mix");
	functions->chase = made_up_kernel(&image, "chase");
	functions->rest = made_up_kernel(&image, "rest");
}
