// SPDX-License-Identifier: Apache-2.0
/*
 * Memory that has contents of which PyTorch's allocator (fake_torch.h) does not tell, though it told of a death there:
 * what it has given back to an allocator that is plugged in, and what a pool gets back with an older state. Each part
 * in a process of its own, which is suspended before anything has spilled: what submissions name is not known until
 * then.
 */
#include "test/preload/torch_help.h"

/* What is dead is not there afterwards: memory that the driver gives out again does not hold what it held. */
static void run(void (*part)(void))
{
	folder_clear();
	child_passes(SCENE_SETTINGS(runtime, "SIM_FILL=1"), part);
}

static void away_and_back(void)
{
	int status = -EBUSY;

	MUST(cu.cuCtxSynchronize());
	if (!scene_moves())
		return;
	for (int tries = 0; tries < 50 && status == -EBUSY; tries++)
		status = spillway_suspend();
	CHECK(status == 0 && spillway_resume() == 0);
}

/* A plugged-in allocator that keeps what PyTorch gives back, and gives it to another library. */
static CUdeviceptr given_back;

static void keep(CUdeviceptr address)
{
	given_back = address;
}

PART_TEST(what_a_plugged_in_allocator_keeps_is_preserved, run(part))
{
	torch_begin();
	unsigned pool = torch->new_pool(torch_cache, 0, 0);
	size_t n = 4 * MIB / sizeof(uint32_t);

	torch->plug_pool(torch_cache, pool, (struct fake_plug){child_alloc, keep});
	struct tensor tensor = tensor_new_in(pool, 4 * MIB, NULL);
	tensor_fill(&tensor, NULL);
	tensor_free(&tensor);
	/* This thread submits something, and reports again: the death counts. */
	struct tensor other = tensor_new(4 * MIB, NULL);
	tensor_fill(&other, NULL);
	tensor_free(&other);
	torch->drop_pool(torch_cache, pool);
	torch->empty_cache(torch_cache);
	CHECK(given_back == tensor.at);
	words_fill(given_back, 75, n, NULL);
	away_and_back();
	CHECK(words_same(given_back, 75, n) == n);
}

/*
 * As PyTorch's graph trees do: the output of a graph is dead for the allocator while the program has its address. Its
 * thread submits and reports meanwhile. Then the state of the pool is restored: the output is born again, with
 * contents.
 */
PART_TEST(what_a_pool_of_graphs_restores_after_submissions_is_preserved, run(part))
{
	torch_begin();
	CUstream stream = child_stream();
	unsigned pool = torch->new_pool(torch_cache, 0, 0);
	struct tensor in = tensor_new(MIB / 2, stream), out;

	/* Before it is captured, it runs, in the same pool: what is there is trusted. */
	torch->use_pool(torch_cache, pool, false);
	out = tensor_new(in.bytes, stream);
	tensor_fill(&out, stream);
	tensor_free(&out);
	torch_capture(stream, pool);
	out = tensor_new(in.bytes, stream);
	tensor_copy_late(&out, &in, 0, stream);
	CUgraphExec exec = torch_end_capture(stream);
	CUdeviceptr at = out.at;
	tensor_free(&out);
	for (unsigned i = 0; i < 3; i++) {
		tensor_fill(&in, stream);
		MUST(cu.cuGraphLaunch(exec, stream));
		struct tensor other = tensor_new(in.bytes, stream);
		tensor_fill(&other, stream);
		tensor_free(&other);
		away_and_back();
		out = tensor_new_in(pool, in.bytes, stream);
		CHECK(out.at == at);
		out.salt = in.salt;
		CHECK(tensor_holds(&out));
		tensor_free(&out);
	}
	MUST(cu.cuGraphExecDestroy(exec));
}

EACH_TEST(folder_make, folder_remove)
