// SPDX-License-Identifier: Apache-2.0
#include "test/preload/torch_help.h"
#include "test/preload/figures_help.h"

const struct fake_torch_functions *torch;
struct fake_torch *torch_cache;

/* ---- kernels ---- */

static uint32_t word_of(uint32_t salt, size_t i)
{
	return salt * 0x9e3779b1u ^ (uint32_t)i;
}

static void fill(uint32_t *at, uint32_t salt, size_t n)
{
	for (size_t i = 0; i < n; i++)
		at[i] = word_of(salt, i);
}

static void words_body(const struct sim_launch *launch, void **args)
{
	fill(*(uint32_t **)args[0], *(uint32_t *)args[1], *(size_t *)args[2]);
}

/* It waits until the address is there, of which the upper half may come last. */
static void hidden_body(const struct sim_launch *launch, void **args)
{
	const volatile CUdeviceptr *table = *(CUdeviceptr **)args[0];

	UNTIL(*table >> 32);
	fill(sim_pointer(*table), *(uint32_t *)args[1], *(size_t *)args[2]);
}

static void late_body(const struct sim_launch *launch, void **args)
{
	uint32_t *to = *(uint32_t **)args[0];
	const uint32_t *from = *(const uint32_t **)args[1];
	size_t n = *(size_t *)args[2];

	usleep(*(unsigned *)args[3]);
	for (size_t i = 0; i < n; i++)
		to[i] = from[i];
}

SIM_MODULE(image, SIM_KERNEL("words", words_body, 8, 4, 8), SIM_KERNEL("hidden", hidden_body, 8, 4, 8),
	   SIM_KERNEL("late", late_body, 8, 8, 8, 4));
static CUfunction words_function, hidden_function, late_function;

/* ---- contents ---- */

void words_fill(CUdeviceptr at, uint32_t salt, size_t n, CUstream stream)
{
	void *args[] = {&at, &salt, &n};

	MUST(cu.cuLaunchKernel(words_function, 4, 1, 1, 64, 1, 1, 0, stream, args, NULL));
}

void words_fill_hidden(CUdeviceptr table, uint32_t salt, size_t n, CUstream stream)
{
	void *args[] = {&table, &salt, &n};

	MUST(cu.cuLaunchKernel(hidden_function, 4, 1, 1, 64, 1, 1, 0, stream, args, NULL));
}

size_t words_same(CUdeviceptr at, uint32_t salt, size_t n)
{
	uint32_t *words = malloc(n * 4);
	size_t same = 0;

	CHECK(words);
	MUST(cu.cuMemcpyDtoH_v2(words, at, n * 4));
	for (size_t i = 0; i < n; i++)
		same += words[i] == word_of(salt, i);
	free(words);
	return same;
}

static uint32_t next_salt(void)
{
	static uint32_t salt;

	return ++salt;
}

struct tensor tensor_new(size_t bytes, CUstream stream)
{
	struct tensor tensor = {.stream = stream};

	tensor.at = torch->allocate(torch_cache, bytes, stream, &tensor.bytes);
	CHECK(tensor.at);
	return tensor;
}

struct tensor tensor_new_in(unsigned pool, size_t bytes, CUstream stream)
{
	torch->use_pool(torch_cache, pool, false);
	struct tensor tensor = tensor_new(bytes, stream);
	torch->use_pool(torch_cache, 0, false);
	return tensor;
}

void tensor_free(const struct tensor *tensor)
{
	torch->release(torch_cache, tensor->at);
}

void tensor_fill(struct tensor *tensor, CUstream stream)
{
	tensor->salt = next_salt();
	words_fill(tensor->at, tensor->salt, tensor->bytes / 4, stream);
}

size_t tensor_same(const struct tensor *tensor)
{
	return words_same(tensor->at, tensor->salt, tensor->bytes / 4);
}

bool tensor_holds(const struct tensor *tensor)
{
	size_t same = tensor_same(tensor);

	if (same != tensor->bytes / 4)
		printf("%zu of %zu words at %#llx are right\n", same, tensor->bytes / 4, tensor->at);
	return same == tensor->bytes / 4;
}

void tensor_copy_late(struct tensor *to, const struct tensor *from, unsigned us, CUstream stream)
{
	CUdeviceptr to_at = to->at, from_at = from->at;
	size_t n = to->bytes / 4;
	void *args[] = {&to_at, &from_at, &n, &us};

	MUST(cu.cuLaunchKernel(late_function, 4, 1, 1, 64, 1, 1, 0, stream, args, NULL));
	to->salt = from->salt;
}

bool tensor_is_there(const struct tensor *tensor)
{
	CUdeviceptr begin = tensor->at / (2 * MIB) * (2 * MIB);

	return child_on_device(begin, tensor->at + tensor->bytes - begin);
}

void tensor_bring(struct tensor *tensor)
{
	for (int i = 0; i < 300 && !tensor_is_there(tensor); i++) {
		tensor_fill(tensor, NULL);
		MUST(cu.cuStreamSynchronize(NULL));
	}
	CHECK(tensor_is_there(tensor));
}

/* ---- captures ---- */

void torch_capture(CUstream stream, unsigned pool)
{
	torch->use_pool(torch_cache, pool, true);
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

CUgraphExec torch_end_capture(CUstream stream)
{
	CUgraph graph;

	MUST(cu.cuStreamEndCapture(stream, &graph));
	torch->use_pool(torch_cache, 0, false);
	CUgraphExec exec = driver_instance(graph);
	MUST(cu.cuGraphDestroy(graph));
	return exec;
}

/* ---- the job beside ---- */

void torch_run(void (*part)(void))
{
	folder_clear(); /* a child that ended before has left its figures */
	assert_int_equal(child_run(TORCH_SETTINGS, part), 0);
}

void torch_run_bare(void (*part)(void))
{
	folder_clear();
	assert_int_equal(child_run_bare(TORCH_SETTINGS, part), 0);
}

void torch_begin(void)
{
	scene_load(&own_scene, 0);
	words_function = driver_function(&image, "words");
	hidden_function = driver_function(&image, "hidden");
	late_function = driver_function(&image, "late");
	torch = fake_torch_open();
	torch_cache = torch->open(0);
}

void torch_begin_moving(void)
{
	torch_begin();
	scene_allocate(&own_scene);
	CHECK(scene_warm_up(&own_scene));
}

void torch_leave(void)
{
	if (scene_moves())
		own_empty_device();
}

void torch_evict(void)
{
	MUST(cu.cuCtxSynchronize());
	torch_leave();
}

void torch_go_on(void)
{
	struct tensor small = tensor_new(1024, NULL);

	tensor_fill(&small, NULL);
	tensor_free(&small);
	MUST(cu.cuCtxSynchronize());
	usleep(20000); /* the mover reads of it */
}

uint64_t torch_dead_bytes(void)
{
	return page_there()->counter[STAT_dead_bytes];
}

uint64_t torch_dead_in_bytes(void)
{
	return page_there()->counter[STAT_dead_in_bytes];
}

uint64_t torch_bytes_out(void)
{
	return page_there()->counter[STAT_moved_out_bytes];
}
