// SPDX-License-Identifier: Apache-2.0
/*
 * random_context.c: other contexts of the device that spill_random works in (random.h): of cuCtxCreate, of a call that
 * is exempt, so that a library does not see it, and of a green context. What is submitted there works on a block of the
 * thread, in parts; memory is allocated, used and freed there in stream order. One lives for a few turns, and ends with
 * all of that in flight.
 */
#include "test/preload/random.h"

struct other {
	CUcontext context;
	CUgreenCtx green;
	CUfunction function[KERNELS];
	CUstream stream;
};

static struct other *context_open(struct worker *worker)
{
	struct other *other = calloc(1, sizeof(*other));
	unsigned kind = random_below(worker, 3);

	if (kind == 0) {
		GO(cuCtxCreate_v2(&other->context, 0, 0));
	} else if (kind == 1) {
		GO(cuGLCtxCreate_v2(&other->context, 0, 0));
	} else {
		GO(cuGreenCtxCreate(&other->green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
		GO(cuCtxFromGreenCtx(&other->context, other->green));
		GO(cuCtxPushCurrent_v2(other->context));
	}
	kernel_open(other->function);
	if (!random_one_in(worker, 3))
		GO(cuStreamCreate(&other->stream, CU_STREAM_NON_BLOCKING));
	GO(cuCtxPopCurrent_v2(NULL));
	return other;
}

void context_close(struct worker *worker)
{
	if (!worker->other)
		return;
	if (worker->other->green)
		GO(cuGreenCtxDestroy(worker->other->green));
	else
		GO(cuCtxDestroy_v2(worker->other->context));
	free(worker->other);
	worker->other = NULL;
}

/* Memory of the device's pool, which outlives the context: it stays with the thread, or its free is still to come. */
static void allocate(struct worker *worker, CUstream stream, unsigned slot)
{
	size_t bytes = 4 + 4 * (size_t)random_below(worker, 65536);
	unsigned char byte = (unsigned char)random_next(worker);
	CUdeviceptr at;

	GO(cuMemAllocAsync(&at, bytes, stream));
	GO(cuMemsetD8Async(at, byte, bytes, stream));
	if (worker->n_blocks + 8 > BLOCKS_MAX || worker->pooled > 2 * MIB || random_one_in(worker, 2)) {
		GO(cuMemFreeAsync(at, stream));
		return;
	}
	struct block *block = block_add(worker, at, bytes, byte, true);
	block->elsewhere = true;
	block_use(worker, slot, block, true, "a set in another context");
}

static void submit(struct worker *worker, struct block *block, unsigned slot)
{
	struct other *other = worker->other;
	uint32_t parts = 1 + random_below(worker, 6), part = (uint32_t)(block->bytes / 4 / parts);

	for (uint32_t i = 0; i < parts; i++) {
		struct op op = {.kind = OP_LAUNCH,
				.to = block,
				.to_at = 4 * (size_t)part * i,
				.words = 1 + random_below(worker, part < 8192 ? part : 8192),
				.pitch = 1,
				.rows = 1,
				.salt = random_next(worker)};
		struct op_params params;

		op_params(&op, &params);
		GO(cuLaunchKernel(other->function[KERNEL_MIX], 1, 1, 1, 32, 1, 1, 0, other->stream, params.at, NULL));
		op_apply(worker, &op);
		if (random_one_in(worker, 4))
			allocate(worker, other->stream, slot);
	}
}

void context_play(struct worker *worker)
{
	unsigned slot = random_below(worker, SLOTS);
	struct slot *in = &worker->slot[slot];
	struct block *block = op_pick(worker);
	bool is_new = !worker->other;
	CUevent event;

	if (is_new)
		worker->other = context_open(worker);
	block_use(worker, slot, block, true, "a launch in another context");
	GO(cuEventRecord(in->event, in->handle));
	in->recorded = in->n;
	GO(cuCtxPushCurrent_v2(worker->other->context));
	GO(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	GO(cuStreamWaitEvent(worker->other->stream, in->event, 0));
	/* A library may ask where the stream belongs, a program need not. Other calls may need the answer. */
	bool fails = random_one_in(worker, 3) && made_up.threads == 1;
	if (fails)
		sim_fail("cuStreamGetCtx", 1, CUDA_ERROR_UNKNOWN);
	submit(worker, block, slot);
	if (fails)
		sim_fail("cuStreamGetCtx", 0, CUDA_SUCCESS);
	GO(cuEventRecord(event, worker->other->stream));
	GO(cuCtxPopCurrent_v2(NULL));
	GO(cuStreamWaitEvent(in->handle, event, 0));
	GO(cuEventDestroy_v2(event));
	in->n++;
	op_submitted(worker);
	if (!is_new || random_one_in(worker, 2))
		context_close(worker);
}
