// SPDX-License-Identifier: Apache-2.0
/*
 * A job that needs twice its budget (scene.h), with kernels beside it that read all of its memory by addresses that
 * they find in memory: no parameter names them, and nobody can know what they touch. Ends with 0 when every byte was
 * right, with 3 when its context died of an illegal address. Its arguments: how many rounds at most; after how many of
 * them nothing is submitted for a while, and for how many milliseconds. With STOPPER_BESIDE=1 device 1 runs the kernels
 * beside. With STOPPER_CHANCE=1 the next question about an event gets an error when all is done.
 */
#include "test/preload/scene.h"

/*
 * The table is pinned memory, and not ours; what it points to is. Nobody orders this against the rounds, so nothing is
 * made of what it reads.
 */
__attribute__((no_sanitize("thread"))) static void read_hidden(const struct sim_launch *launch, void **args)
{
	const CUdeviceptr *table = *(const CUdeviceptr **)args[0];

	for (unsigned i = 0; i < SCENE_BLOCKS; i++) {
		const volatile uint32_t *words = sim_pointer(table[i]);

		for (size_t at = 0; at < SCENE_BYTES / 4; at += SCENE_STRIDE)
			(void)words[at];
	}
}

SIM_MODULE(image, SIM_KERNEL("reads_what_nobody_named", read_hidden, 8));

/* The context in which they run. */
static CUcontext open_beside(const struct scene *scene)
{
	const char *device = getenv("STOPPER_BESIDE");
	CUcontext context;

	if (!device)
		return scene->context;
	context = driver_start(atoi(device));
	MUST(cuCtxEnablePeerAccess(scene->context, 0));
	return context;
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? strtol(argv[1], NULL, 0) : 100;
	long every = argc > 3 ? strtol(argv[2], NULL, 0) : 0, rest_ms = argc > 3 ? strtol(argv[3], NULL, 0) : 0;
	CUresult result = CUDA_SUCCESS;
	struct scene scene;

	scene_open(&scene, 0);
	CUstream job = child_stream();
	CUcontext other = open_beside(&scene);
	MUST(cu.cuCtxSetCurrent(other));
	CUfunction hidden = driver_function(&image, "reads_what_nobody_named");
	CUstream beside = child_stream();
	CUdeviceptr *table = (CUdeviceptr *)scene_word();
	memcpy(table, scene.block, sizeof(scene.block));
	for (long i = 0; i < rounds && result == CUDA_SUCCESS; i++) {
		void *args[] = {&table};

		MUST(cu.cuCtxSetCurrent(scene.context));
		result = scene_round(&scene, job, 0);
		MUST(cu.cuCtxSetCurrent(other));
		if (result == CUDA_SUCCESS)
			result = cu.cuLaunchKernel(hidden, 1, 1, 1, 1, 1, 1, 0, beside, args, NULL);
		if (result == CUDA_SUCCESS)
			result = cu.cuStreamSynchronize(job);
		if (every && i % every == every - 1)
			usleep((useconds_t)rest_ms * 1000);
	}
	if (result == CUDA_SUCCESS)
		result = cu.cuCtxSynchronize();
	bool holds = result == CUDA_SUCCESS && scene_holds(&scene);
	if (holds && getenv("STOPPER_CHANCE"))
		sim_fail("cuEventQuery", 1, CUDA_ERROR_UNKNOWN);
	if (result == CUDA_SUCCESS)
		return holds ? 0 : 1;
	return result == CUDA_ERROR_ILLEGAL_ADDRESS ? 3 : 2;
}
