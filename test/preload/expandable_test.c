// SPDX-License-Identifier: Apache-2.0
/*
 * A caching allocator with expandable segments (fake_torch.h) and vmm.spill: move: a tensor covers any number of
 * handles, and kernels are given where it begins. What the allocator reports says how far that reaches, so the handles
 * move in `fast`, too, and none of them while a kernel uses the tensor; what a graph uses does not. Each part in a
 * process of its own, beside a job that needs twice its budget.
 */
#include "test/preload/torch_help.h"

#define HANDLE ((size_t)4 * MIB)
#define LARGE  (11 * MIB) /* covers three handles */

static bool is_fast(void)
{
	return !strcmp(scene_mode(), "fast");
}

static void run_in(int (*run)(const char *const *settings, void (*part)(void)), void (*part)(void))
{
	char set[300];

	folder_clear();
	snprintf(set, sizeof(set), "%s,vmm.spill=move", scene_set());
	const char *const settings[] = {
	    "SIM_FILL=0", "SIM_MEMORY=256MiB", "SIM_HOST_MEMORY=512MiB", "SIM_MAP_WAITS=3", runtime, set, NULL};
	assert_int_equal(run(settings, part), 0);
}

static void expandable_run(void (*part)(void))
{
	run_in(child_run, part);
}

static void begin(void)
{
	torch_begin_moving();
	torch->expand(torch_cache, HANDLE);
}

CHILD_FRAME(begin, own_end)

/* What is known of all of its handles: can each of them move, is none of it on the device? */
static bool is_movable(const struct tensor *tensor)
{
	bool movable = true;

	for (size_t at = 0; at < tensor->bytes; at += MIB)
		movable &= own_place(tensor->at + at).movable;
	return movable;
}

static bool is_away(const struct tensor *tensor)
{
	bool away = true;

	for (size_t at = 0; at < tensor->bytes; at += MIB)
		away &= own_is_out(tensor->at + at);
	return away;
}

/* The mover hears of it when it comes to it. */
static bool becomes_movable(const struct tensor *tensor, bool movable)
{
	for (int ms = 0; ms < 20000 && is_movable(tensor) != movable; ms++)
		usleep(1000);
	return is_movable(tensor) == movable;
}

static struct tensor large_new(CUstream stream)
{
	struct tensor tensor = tensor_new(LARGE, stream);

	CHECK(own_place(tensor.at).bytes == HANDLE);
	tensor_fill(&tensor, stream);
	return tensor;
}

/* ---- what is reported moves ---- */

PART_TEST(what_is_reported_moves, expandable_run(part))
{
	CUstream stream = child_stream();
	struct tensor first = large_new(stream), second = large_new(stream);

	for (int i = 0; i < 6; i++) {
		CHECK(becomes_movable(&first, scene_moves()) && becomes_movable(&second, scene_moves()));
		own_rounds(5);
		MUST(cu.cuStreamSynchronize(stream));
		torch_evict();
		CHECK(!scene_moves() || (is_away(&first) && is_away(&second)));
		CHECK(tensor_holds(&first));
		CHECK(tensor_holds(&second));
		tensor_fill(i % 2 ? &first : &second, stream);
	}
	/* They come and go by themselves, too. */
	uint64_t out = torch_bytes_out();
	for (int i = 0; i < 2000 && scene_moves() && torch_bytes_out() - out < 8 * LARGE; i++) {
		tensor_fill(&first, stream);
		own_rounds(1);
		tensor_fill(&second, stream);
		MUST(cu.cuStreamSynchronize(stream));
	}
	CHECK(!scene_moves() || torch_bytes_out() - out >= 8 * LARGE);
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(tensor_holds(&first) && tensor_holds(&second));
}

/* Of a handle, behind which nothing is mapped, only the last bytes are alive. */
PART_TEST(a_handle_moves_of_which_only_the_end_is_alive, expandable_run(part))
{
	CUstream stream = child_stream();
	struct tensor first = tensor_new(MIB, stream), second = tensor_new(MIB - FAKE_TORCH_UNIT, stream),
		      last = tensor_new(FAKE_TORCH_UNIT, stream), other;

	CHECK(first.at % (2 * MIB) == 0 && last.at + last.bytes == first.at + 2 * MIB);
	tensor_free(&first);
	tensor_free(&second);
	for (unsigned i = 0; i < 20; i++) {
		tensor_fill(&last, stream);
		/* This thread has submitted, and reports again: the deaths count. */
		other = tensor_new(1000, stream);
		tensor_free(&other);
		MUST(cu.cuStreamSynchronize(stream));
		torch_evict();
		CHECK(tensor_holds(&last));
	}
}

/* ---- but not while it is used ---- */

/* The kernel is given where both begin, and reads for as long as others want the room. */
PART_TEST(nothing_moves_of_what_a_kernel_uses, expandable_run(part))
{
	CUstream stream = child_stream();
	struct tensor from = large_new(stream), to = large_new(stream), other = large_new(stream);

	MUST(cu.cuStreamSynchronize(stream)); /* `other` is filled on another stream */
	for (int i = 0; i < 20; i++) {
		tensor_fill(&from, stream);
		tensor_copy_late(&to, &from, 20000, stream);
		own_rounds(2);
		tensor_fill(&other, NULL);
		own_rounds(1);
		MUST(cu.cuStreamSynchronize(stream));
		CHECK(tensor_holds(&to));
	}
	CHECK(becomes_movable(&from, scene_moves()) && becomes_movable(&to, scene_moves()));
}

/*
 * The same by a kernel that goes backwards: it is given where both end, which is where others begin, or nothing does.
 */
static void back_body(const struct sim_launch *launch, void **args)
{
	uint32_t *to = *(uint32_t **)args[0];
	const uint32_t *from = *(const uint32_t **)args[1];

	usleep(*(unsigned *)args[3]);
	for (size_t n = *(size_t *)args[2]; n; n--)
		*--to = *--from;
}

SIM_MODULE(back_image, SIM_KERNEL("back", back_body, 8, 8, 8, 4));

static void copy_backwards(struct tensor *to, const struct tensor *from, CUfunction function, CUstream stream)
{
	CUdeviceptr to_end = to->at + to->bytes, from_end = from->at + from->bytes;
	size_t n = to->bytes / 4;
	unsigned us = 20000;
	void *args[] = {&to_end, &from_end, &n, &us};

	MUST(cu.cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, stream, args, NULL));
	to->salt = from->salt;
}

PART_TEST(nothing_moves_of_what_a_kernel_uses_backwards, expandable_run(part))
{
	CUfunction function = driver_function(&back_image, "back");
	CUstream stream = child_stream();
	struct tensor from = large_new(stream), other = large_new(stream), to = large_new(stream);

	CHECK(other.at == from.at + from.bytes && to.bytes == from.bytes);
	for (int i = 0; i < 20; i++) {
		tensor_fill(&from, stream);
		copy_backwards(&to, &from, function, stream);
		own_rounds(3);
		MUST(cu.cuStreamSynchronize(stream));
		CHECK(tensor_holds(&to));
	}
	CHECK(becomes_movable(&from, scene_moves()) && becomes_movable(&to, scene_moves()));
}

/* A copy names how far it reaches; here over what was born as two tensors. */
PART_TEST(nothing_moves_of_what_a_copy_uses, expandable_run(part))
{
	CUstream stream = child_stream();
	struct tensor first = large_new(stream), second = large_new(stream);
	size_t bytes = first.bytes + second.bytes;
	uint32_t *words;

	CHECK(second.at == first.at + first.bytes);
	MUST(cu.cuStreamSynchronize(stream));
	MUST(cu.cuMemHostAlloc((void **)&words, bytes, CU_MEMHOSTALLOC_PORTABLE));
	for (uint32_t i = 0; i < 20; i++) {
		torch_evict();
		MUST(cu.cuMemsetD8Async(first.at, (unsigned char)i, bytes, stream));
		MUST(cu.cuMemcpyDtoHAsync_v2(words, first.at, bytes, stream));
		own_rounds(2);
		MUST(cu.cuStreamSynchronize(stream));
		for (size_t at = 0; at < bytes / 4; at++)
			CHECK(words[at] == i * 0x01010101u);
	}
}

/* ---- growing and shrinking ---- */

/* What is free is unmapped, beside what is used. */
static void empty_cache(struct tensor *small, bool tells)
{
	torch->empty_cache(torch_cache);
	if (!tells)
		return;
	tensor_free(small);
	*small = tensor_new(1000, small->stream);
}

/* tells: something is reported in between; if not, what is mapped next may hold what was there, and is not reported. */
static void shrink(struct tensor *small, unsigned i, bool tells)
{
	CUstream stream = small->stream;
	struct tensor first = tensor_new((2 + i) * MIB, stream), second = large_new(stream);

	tensor_fill(&first, stream);
	MUST(cu.cuStreamSynchronize(stream));
	CHECK(!tells || becomes_movable(&second, scene_moves()));
	own_rounds(2);
	tensor_free(&first);
	empty_cache(small, tells);
	own_rounds(2);
	struct tensor third = tensor_new(LARGE - 4 * i * MIB / 3, stream);
	tensor_fill(&third, stream);
	CHECK(!tells || becomes_movable(&third, scene_moves()));
	torch_evict();
	CHECK(tensor_holds(&second) && tensor_holds(&third));
	tensor_free(&second);
	tensor_free(&third);
	if (i % 2)
		empty_cache(small, tells);
}

PART_TEST(segments_grow_and_shrink, expandable_run(part))
{
	struct tensor small = tensor_new(1000, child_stream());

	for (unsigned i = 0; i < 8; i++)
		shrink(&small, i, i < 4);
}

/* ---- graphs ---- */

static CUgraphExec capture(CUstream stream, unsigned pool, const struct tensor *in, struct tensor *ret_out)
{
	torch_capture(stream, pool);
	struct tensor between = tensor_new(in->bytes, stream);
	tensor_copy_late(&between, in, 5000, stream);
	*ret_out = tensor_new(in->bytes, stream);
	tensor_copy_late(ret_out, &between, 5000, stream);
	tensor_free(&between);
	return torch_end_capture(stream);
}

/* A graph uses tensors that are dead. Where it keeps them has moved before: what the pool had was reported then. */
PART_TEST(what_a_graph_uses_stays_in_fast, expandable_run(part))
{
	CUstream stream = child_stream();
	unsigned pool = torch->new_pool(torch_cache, 0, 0);

	torch->use_pool(torch_cache, pool, false);
	struct tensor early = large_new(stream), in = large_new(stream), out;
	torch->use_pool(torch_cache, 0, false);
	CHECK(becomes_movable(&early, scene_moves()));
	torch_evict();
	tensor_free(&early);
	MUST(cu.cuStreamSynchronize(stream));
	CUgraphExec exec = capture(stream, pool, &in, &out);
	for (unsigned i = 0; i < 12; i++) {
		tensor_fill(&in, stream);
		MUST(cu.cuGraphLaunch(exec, stream));
		out.salt = in.salt;
		own_rounds(3);
		MUST(cu.cuStreamSynchronize(stream));
		if (i % 3 == 2)
			torch_evict();
		CHECK(tensor_holds(&out) && tensor_holds(&in));
	}
	CHECK(becomes_movable(&out, scene_moves() && !is_fast()) && becomes_movable(&in, scene_moves() && !is_fast()));
	MUST(cu.cuGraphExecDestroy(exec));
}

/* Something is born while a capture is open: a graph may use all of the address space from then on. */
static struct tensor born_in_capture(size_t bytes, CUstream stream, CUstream beside)
{
	MUST(cu.cuStreamBeginCapture_v2(beside, CU_STREAM_CAPTURE_MODE_RELAXED));
	struct tensor tensor = tensor_new(bytes, stream);
	driver_forget_capture(beside);
	return tensor;
}

/* In that space handles are unmapped and mapped again, dead by then; what is born in a capture reaches into them. */
PART_TEST(what_is_mapped_where_a_graph_may_use_everything_is_preserved, run_in(child_run_bare, part))
{
	torch_begin();
	torch->expand(torch_cache, HANDLE);
	CUstream stream = child_stream(), beside = child_stream();
	struct tensor first = tensor_new(5 * HANDLE / 2, stream), rest = born_in_capture(HANDLE / 2, stream, beside);
	CHECK(rest.at == first.at + 5 * HANDLE / 2);
	for (unsigned i = 0; i < 2; i++) {
		struct tensor dead = tensor_new(2 * HANDLE, stream);
		CHECK(dead.at == first.at + 3 * HANDLE);
		tensor_fill(&dead, stream);
		tensor_free(&dead);
		tensor_fill(&first, stream);
		MUST(cu.cuStreamSynchronize(stream));
		if (i == 0)
			torch->empty_cache(torch_cache);
		tensor_free(&rest);
		if (i == 0)
			rest = tensor_new(HANDLE / 2, stream);
	}
	struct tensor reaching = born_in_capture(5 * HANDLE / 2, stream, beside);
	CHECK(reaching.at == rest.at);
	tensor_fill(&reaching, stream);
	MUST(cu.cuCtxSynchronize());
	torch_evict();
	CHECK(tensor_holds(&first) && tensor_holds(&reaching));
}

/* ---- what is not reported ---- */

/* Memory that the program makes beside the allocator, whose pointers nobody knows the reach of. */
PART_TEST(what_nobody_reports_stays_in_fast, expandable_run(part))
{
	const CUmemAccessDesc access = form_access(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;

	CUstream stream = child_stream();
	struct tensor tensor = large_new(stream);
	MUST(cu.cuMemAddressReserve(&at, 4 * HANDLE, 0, 0, 0));
	for (unsigned i = 0; i < 3; i++) {
		MUST(driver_create(&handle, 0, HANDLE));
		MUST(cu.cuMemMap(at + i * HANDLE, HANDLE, 0, handle, 0));
		MUST(cu.cuMemRelease(handle));
	}
	MUST(cu.cuMemSetAccess(at, 3 * HANDLE, &access, 1));
	struct tensor own = {.at = at, .bytes = 3 * HANDLE, .stream = stream};
	CHECK(becomes_movable(&tensor, scene_moves()));
	for (unsigned i = 0; i < 6; i++) {
		tensor_fill(&own, stream);
		tensor_fill(&tensor, stream);
		own_rounds(2);
		MUST(cu.cuStreamSynchronize(stream));
		torch_evict();
		CHECK(tensor_holds(&own) && tensor_holds(&tensor));
		CHECK(is_movable(&own) == (scene_moves() && !is_fast()));
	}
	MUST(cu.cuMemUnmap(at, 3 * HANDLE));
	MUST(cu.cuMemAddressFree(at, 4 * HANDLE));
}

EACH_TEST(folder_make, folder_remove)
