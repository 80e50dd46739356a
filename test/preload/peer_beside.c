// SPDX-License-Identifier: Apache-2.0
/* peer_beside.c: copies of peer_random beside captures of other threads, and behind pending frees (peers.h). */
#include "test/preload/peers.h"

/* ---- a pool that has room for one block ---- */

static CUdeviceptr take(struct worker *worker, unsigned lane, CUmemoryPool pool, size_t bytes)
{
	CUdeviceptr at;

	lane_be(worker, lane);
	GO(cuMemAllocFromPoolAsync(&at, bytes, pool, worker->lane[lane].stream));
	return at;
}

/* The lane frees it with a kernel in front of that still writes. */
static void free_late(struct worker *worker, unsigned lane, CUdeviceptr at, size_t n)
{
	const struct functions *functions = op_functions(worker, lane);
	uint32_t us = peers_below(worker, 3000), salt = peers_next(worker);
	CUstream stream = worker->lane[lane].stream;
	CUdeviceptr none = 0;
	void *rest[] = {&us}, *mix[] = {&at, &none, &n, &salt};

	GO(cuLaunchKernel(functions->rest, 1, 1, 1, 32, 1, 1, 0, stream, rest, NULL));
	GO(cuLaunchKernel(functions->mix, 1, 1, 1, 32, 1, 1, 0, stream, mix, NULL));
	GO(cuMemFreeAsync(at, stream));
}

static void compare(const struct worker *worker, const struct block *from, const uint32_t *got, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (got[i] != from->shadow[i])
			made_up_fail("thread %u, after %lu operations: word %zu of %zu, copied from device %d behind a "
				     "pending free, is %08x, not %08x",
				     worker->id, worker->done, i, n, from->device, got[i], from->shadow[i]);
}

static CUmemoryPool pool_for(int device, size_t bytes)
{
	CUmemPoolProps props = form_pool(device, (bytes + 511) / 512 * 512);
	CUmemoryPool pool;

	GO(cuMemPoolCreate(&pool, &props));
	return pool;
}

void beside_pool(struct worker *worker)
{
	int device = (int)peers_below(worker, (size_t)world.devices);
	unsigned first = (unsigned)device * PER_DEVICE + peers_below(worker, 2), second = first ^ 1;
	struct block to = {.kind = BLOCK_POOLED, .device = device}, *from;
	struct op op = {.kind = OP_DTOD + peers_below(worker, OP_3D - OP_DTOD + 1), .lane = second, .to = &to};

	op.from = from = worker->block[peers_below(worker, worker->n_blocks)];
	if (from->guest || !op_returns(&op) || !op_may(worker, &op))
		return;
	op.words = to.words = from->words > 64 ? from->words / 64 * 64 : from->words;
	size_t bytes = 4 * op.words;
	CUmemoryPool pool = pool_for(device, bytes);
	free_late(worker, first, take(worker, first, pool, bytes), op.words);
	lane_order(worker, second, from, false, NULL);
	to.at = take(worker, second, pool, bytes);
	op_submit(worker, &op);
	lane_submitted(worker, second);
	uint32_t *got = malloc(bytes);
	GO(cuMemcpyDtoHAsync_v2(got, to.at, bytes, worker->lane[second].stream));
	GO(cuMemFreeAsync(to.at, worker->lane[second].stream));
	GO(cuStreamSynchronize(worker->lane[second].stream));
	compare(worker, from, got, op.words);
	free(got);
	GO(cuMemPoolDestroy(pool));
}

/* Between two devices, as one piece: the pool has room for it, and for nothing else. */
static bool op_make_between(struct worker *worker, struct op *op)
{
	for (int tries = 0; tries < 20 && worker->n_blocks; tries++)
		if (op_make(worker, op, OP_ANY) && op->from && op_returns(op) && op->to->device >= 0 &&
		    op->from->device >= 0 && op->to->device != op->from->device && op->kind != OP_BATCH &&
		    !op->to->guest)
			return true;
	return false;
}

void beside_full_pool(struct worker *worker)
{
	CUmemoryPool usual, full;
	unsigned lane;
	struct op op;

	pthread_rwlock_wrlock(&world.lock);
	if (op_make_between(worker, &op)) {
		int device = op.to->device;

		full = pool_for(device, 4 * op.words);
		lane = (unsigned)device * PER_DEVICE + peers_below(worker, 2);
		free_late(worker, lane, take(worker, lane, full, 4 * op.words), op.words);
		GO(cuDeviceGetMemPool(&usual, device));
		GO(cuDeviceSetMemPool(device, full));
		op_run(worker, &op);
		GO(cuDeviceSetMemPool(device, usual));
		block_check(worker, op.to);
		lane_be(worker, lane);
		GO(cuStreamSynchronize(worker->lane[lane].stream));
		GO(cuMemPoolDestroy(full));
	}
	pthread_rwlock_unlock(&world.lock);
}

/* ---- captures of other threads ---- */

struct capture {
	CUcontext context;
	CUdeviceptr table;
	pthread_barrier_t turn;
};

static void *capture_alone(void *argument)
{
	struct capture *capture = argument;
	CUstream stream;
	CUgraph made;

	GO(cuCtxSetCurrent(capture->context));
	GO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	GO(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	pthread_barrier_wait(&capture->turn);
	pthread_barrier_wait(&capture->turn);
	GO(cuMemsetD32Async(capture->table, 0, 2, stream));
	GO(cuStreamEndCapture(stream, &made));
	GO(cuGraphDestroy(made));
	GO(cuStreamDestroy_v2(stream));
	return NULL;
}

void beside_capture(struct worker *worker)
{
	int device = (int)peers_below(worker, (size_t)world.devices);
	struct capture capture = {.context = world.context[device], .table = worker->table[device].at};
	pthread_t thread;
	struct op op;

	pthread_rwlock_wrlock(&world.lock);
	pthread_barrier_init(&capture.turn, NULL, 2);
	if (pthread_create(&thread, NULL, capture_alone, &capture))
		made_up_fail("no thread");
	pthread_barrier_wait(&capture.turn);
	for (unsigned times = 1 + peers_below(worker, 6); times && worker->n_blocks; times--)
		if (op_make(worker, &op, OP_ANY) && op_returns(&op))
			op_run(worker, &op);
	pthread_barrier_wait(&capture.turn);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&capture.turn);
	pthread_rwlock_unlock(&world.lock);
}
