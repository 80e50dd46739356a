// SPDX-License-Identifier: Apache-2.0
/* random_op.c: the operations of spill_random: what each needs, how it is submitted, what it does (random.h). */
#include "test/preload/random.h"
#include "test/preload/trouble.h"

#include <dlfcn.h>

static const char *const names[OP_KINDS] = {
    [OP_LAUNCH] = "a launch",
    [OP_STRUCT] = "a launch with pointers in a struct",
    [OP_EXTRA] = "a launch with an extra buffer",
    [OP_COOPERATIVE] = "a cooperative launch",
    [OP_EX] = "cuLaunchKernelEx",
    [OP_ODD] = "a launch with odd pointers",
    [OP_HIDDEN] = "a launch with hidden pointers",
    [OP_COPY] = "a copy",
    [OP_COPY_SYNC] = "a synchronous copy",
    [OP_COPY_PLAIN] = "cuMemcpyAsync",
    [OP_COPY_2D] = "a 2D copy",
    [OP_COPY_3D] = "a 3D copy",
    [OP_COPY_BATCH] = "a batch of copies",
    [OP_COPY_UNKNOWN] = "a copy by a function of a newer driver",
    [OP_HTOD_PINNED] = "a copy from pinned memory",
    [OP_HTOD_PAGEABLE] = "a copy from pageable memory",
    [OP_HTOD_SYNC] = "a synchronous copy from the host",
    [OP_HOST_FUNCTION] = "a copy of what a host function wrote",
    [OP_DTOH_PINNED] = "a copy to pinned memory",
    [OP_DTOH_SYNC] = "a synchronous copy to the host",
    [OP_SET8] = "a set of bytes",
    [OP_SET16] = "a set of half words",
    [OP_SET32] = "a set of words",
    [OP_SET_SYNC] = "a synchronous set",
    [OP_SET_2D] = "a 2D set",
};

static bool is_kernel(enum op_kind kind)
{
	return kind <= OP_HIDDEN;
}

static bool is_copy(enum op_kind kind)
{
	return kind >= OP_COPY && kind <= OP_COPY_UNKNOWN;
}

static bool is_from_host(enum op_kind kind)
{
	return kind >= OP_HTOD_PINNED && kind <= OP_HOST_FUNCTION;
}

static bool is_to_host(enum op_kind kind)
{
	return kind == OP_DTOH_PINNED || kind == OP_DTOH_SYNC;
}

static bool is_sync(enum op_kind kind)
{
	return kind == OP_COPY_SYNC || kind == OP_HTOD_SYNC || kind == OP_DTOH_SYNC || kind == OP_SET_SYNC;
}

static bool is_capturable(enum op_kind kind)
{
	return !is_sync(kind) && kind != OP_HTOD_PAGEABLE && kind != OP_DTOH_PINNED && kind != OP_COPY_BATCH &&
	       kind != OP_COPY_UNKNOWN;
}

void op_submitted(struct worker *worker)
{
	worker->submitted++;
	trouble_step();
}

/* ---- making ---- */

/* Block 0 and those with addresses are left alone. */
struct block *op_pick(struct worker *worker)
{
	for (;;) {
		struct block *block = worker->block[1 + random_below(worker, worker->n_blocks - 1)];

		if (!block->addresses)
			return block;
	}
}

static struct block *pick_source(struct worker *worker, const struct block *but)
{
	for (int tries = 0; tries < 8; tries++) {
		struct block *block = random_n_shared && random_one_in(worker, 4)
					  ? random_shared[random_below(worker, random_n_shared)]
					  : op_pick(worker);

		if (block != but)
			return block;
	}
	return NULL;
}

/* A place for so many bytes in the block, at a whole word. */
static size_t place(struct worker *worker, const struct block *block, size_t bytes)
{
	return 4 * (size_t)random_below(worker, (uint32_t)((block->bytes - bytes) / 4 + 1));
}

static uint32_t how_many(struct worker *worker, size_t limit)
{
	uint32_t most = random_one_in(worker, 20) ? 65536 : random_one_in(worker, 4) ? 8192 : 512;

	if (most > limit)
		most = (uint32_t)limit;
	return 1 + random_below(worker, most);
}

static void make_rows(struct worker *worker, struct op *op, size_t room)
{
	op->rows = 1 + random_below(worker, 8);
	op->words = how_many(worker, room / 4 / op->rows > 1024 ? 1024 : room / 4 / op->rows);
	op->pitch = 4 * op->words;
	if (random_one_in(worker, 2))
		op->pitch += 4 * random_below(worker, (uint32_t)((room / op->rows - op->pitch) / 4 + 1));
}

static size_t extent(const struct op *op)
{
	if (op->kind == OP_COPY_2D || op->kind == OP_COPY_3D || op->kind == OP_SET_2D)
		return (size_t)op->rows * op->pitch;
	return 4 * ((size_t)(op->words - 1) * (is_kernel(op->kind) ? op->pitch : 1) + 1);
}

void op_make(struct worker *worker, struct op *op, bool capturable)
{
	*op = (struct op){.salt = random_next(worker), .slot = random_below(worker, SLOTS), .rows = 1, .pitch = 1};
	do
		op->kind = (enum op_kind)random_below(worker, OP_KINDS);
	while ((capturable && !is_capturable(op->kind)) || (op->kind == OP_HIDDEN && !worker->n_hidden) ||
	       (op->kind == OP_COPY_UNKNOWN && !random_one_in(worker, 8))); /* it may touch anything */
	if (is_sync(op->kind)) /* in the legacy stream, or the thread's own by the other spelling */
		op->slot = random_one_in(worker, 3) ? SLOT_OWN : SLOT_LEGACY;
	if (op->kind == OP_COPY_BATCH) /* the driver refuses it the default streams */
		op->slot = SLOT_BLOCKING + random_below(worker, SLOTS - SLOT_BLOCKING);
	if (op->kind == OP_HIDDEN) {
		op->hidden = &worker->hidden[random_below(worker, worker->n_hidden)];
		return;
	}
	op->to = op_pick(worker);
	size_t room = op->to->bytes;
	if (is_copy(op->kind) || (is_kernel(op->kind) && !random_one_in(worker, 3)))
		op->from = pick_source(worker, is_kernel(op->kind) ? NULL : op->to);
	if (is_copy(op->kind) && !op->from)
		op->kind = OP_SET32;
	if (op->from && op->from->bytes < room)
		room = op->from->bytes;
	if (is_from_host(op->kind) || is_to_host(op->kind))
		room = room < RING_BYTES ? room : RING_BYTES;
	if (op->kind == OP_COPY_2D || op->kind == OP_COPY_3D || op->kind == OP_SET_2D) {
		make_rows(worker, op, room);
	} else {
		op->words = how_many(worker, room / 4);
		if (is_copy(op->kind) && random_one_in(worker, 200))
			op->words = (uint32_t)(room / 4);
	}
	op->to_at = place(worker, op->to, extent(op));
	if (op->from)
		op->from_at = place(worker, op->from, is_kernel(op->kind) ? 4 * (size_t)op->words : extent(op));
}

void op_make_stride(struct worker *worker, struct op *op, struct block *to, struct block *from)
{
	uint32_t stride = 512 + random_below(worker, 1024), most = (uint32_t)((to->bytes / 4 + stride - 1) / stride);

	*op = (struct op){.kind = (enum op_kind)random_below(worker, OP_HIDDEN),
			  .slot = random_below(worker, SLOTS),
			  .to = to,
			  .rows = 1,
			  .words = most,
			  .pitch = stride,
			  .salt = random_next(worker)};
	if (!from)
		return;
	op->from = from;
	if (op->words > from->bytes / 4)
		op->words = (uint32_t)(from->bytes / 4);
	op->from_at = place(worker, from, 4 * (size_t)op->words);
}

void op_make_launch(struct worker *worker, struct op *op)
{
	do
		op_make(worker, op, true);
	while (op->kind != OP_LAUNCH);
}

void op_params(const struct op *op, struct op_params *params)
{
	*params = (struct op_params){op->to->at + op->to_at,
				     op->from ? op->from->at + op->from_at : 0,
				     op->words,
				     op->pitch,
				     op->salt,
				     {&params->to, &params->from, &params->words, &params->stride, &params->salt}};
}

void op_pin(const struct op *op, int by)
{
	if (op->to)
		op->to->pins += (unsigned)by;
	if (op->from && op->from->owner != THREADS_MAX) /* the shared ones stay */
		op->from->pins += (unsigned)by;
}

/* ---- order ---- */

void op_order(struct worker *worker, const struct op *op, unsigned slot)
{
	const char *name = names[op->kind];

	if (op->hidden) {
		block_use(worker, slot, op->hidden->table, false, name);
		for (unsigned i = 0; i < op->hidden->n; i++)
			block_use(worker, slot, op->hidden->target[i].block, true, name);
		return;
	}
	if (op->from)
		block_use(worker, slot, op->from, false, name);
	block_use(worker, slot, op->to, !is_to_host(op->kind), name);
}

/* ---- submitting ---- */

/* The per-thread stream also by the spellings that mean it by 0. */
static bool by_zero(const struct op *op, CUstream stream)
{
	return stream == CU_STREAM_PER_THREAD && (op->salt & 8);
}

static void launch(const struct op *op, CUfunction function, CUstream stream, void **params, void **extra)
{
	CUlaunchConfig config = {1 + op->salt % 8, 1, 1, 32, 1, 1, 0, stream, NULL, 0};

	if (op->kind == OP_COOPERATIVE)
		GO(cuLaunchCooperativeKernel(function, 2, 1, 1, 32, 1, 1, 0, stream, params));
	else if (op->kind == OP_EX)
		GO(cuLaunchKernelEx(&config, function, params, extra));
	else if (by_zero(op, stream))
		GO(cuLaunchKernel_ptsz(function, 1 + op->salt % 8, 1, 1, 32, 1, 1, 0, NULL, params, extra));
	else
		GO(cuLaunchKernel(function, 1 + op->salt % 8, 1, 1, 32, 1, 1, 0, stream, params, extra));
}

static void submit_kernel(const struct op *op, CUstream stream)
{
	struct op_params p;
	uint32_t before = 7;

	op_params(op, &p);
	struct kernel_struct all = {p.words, p.stride, (uint32_t *)p.to, (const uint32_t *)p.from, p.salt};
	void *by_struct[] = {&before, &all};
	struct __attribute__((packed)) {
		CUdeviceptr to, from;
		uint32_t words, stride, salt;
	} buffer = {p.to, p.from, p.words, p.stride, p.salt};
	size_t bytes = sizeof(buffer);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
			 CU_LAUNCH_PARAM_END};

	if (op->kind == OP_STRUCT)
		launch(op, kernel_function[KERNEL_STRUCT], stream, by_struct, NULL);
	else if (op->kind == OP_EXTRA)
		launch(op, kernel_function[KERNEL_MIX], stream, NULL, extra);
	else
		launch(op, kernel_function[KERNEL_MIX], stream, p.at, NULL);
}

static void submit_odd(const struct op *op, CUstream stream)
{
	int32_t to_by, from_by = 0;
	CUdeviceptr to = kernel_odd(op->to, op->to_at, op->salt, &to_by);
	CUdeviceptr from = op->from ? kernel_odd(op->from, op->from_at, op->salt / 7, &from_by) : 0;
	uint32_t words = op->words, stride = op->pitch, salt = op->salt;
	void *params[] = {&to, &to_by, &from, &from_by, &words, &stride, &salt};

	launch(op, kernel_function[KERNEL_ODD], stream, params, NULL);
}

static void submit_hidden(const struct op *op, CUstream stream)
{
	const struct hidden *hidden = op->hidden;
	CUdeviceptr at = hidden->table->at + (hidden->list ? hidden->target[0].at : 0);
	uint32_t n = hidden->used, words = hidden->words, salt = op->salt;
	void *table[] = {&at, &n, &words, &salt}, *list[] = {&at, &words, &salt};

	if (hidden->list)
		launch(op, kernel_function[KERNEL_LIST], stream, list, NULL);
	else
		launch(op, kernel_function[KERNEL_TABLE], stream, table, NULL);
}

static void submit_batch(const struct op *op, CUstream stream)
{
	size_t half = op->words / 2, bytes[] = {4 * half, 4 * (op->words - half)}, index = 0, n = half ? 2 : 1;
	CUdeviceptr to = op->to->at + op->to_at, from = op->from->at + op->from_at;
	CUdeviceptr tos[] = {to, to + bytes[0]}, froms[] = {from, from + bytes[0]};
	CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};

	GO(cuMemcpyBatchAsync_v2(tos + 2 - n, froms + 2 - n, bytes + 2 - n, n, &attributes, &index, 1, stream));
}

/* Found by its name, as no program of today can call it otherwise. */
static CUresult copy_unknown(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	void *address = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuBrandNewCopyAsync");
	CUresult (*body)(CUdeviceptr, CUdeviceptr, size_t, CUstream);

	memcpy(&body, &address, sizeof(body));
	return body(to, from, bytes, stream);
}

static void submit_copy(const struct op *op, CUstream stream, unsigned slot)
{
	CUdeviceptr to = op->to->at + op->to_at, from = op->from->at + op->from_at;
	size_t bytes = 4 * (size_t)op->words;
	CUDA_MEMCPY2D two = form_rows(to, from, op->pitch, bytes, op->rows);
	CUDA_MEMCPY3D three = form_box(to, from, op->pitch, bytes, 1, op->rows);

	if (op->kind == OP_COPY_BATCH)
		submit_batch(op, stream);
	else if (op->kind == OP_COPY_UNKNOWN)
		GO(copy_unknown(to, from, bytes, stream));
	else if (op->kind == OP_COPY_2D)
		GO(cuMemcpy2DAsync_v2(&two, stream));
	else if (op->kind == OP_COPY_3D)
		GO(cuMemcpy3DAsync_v2(&three, stream));
	else if (op->kind == OP_COPY_PLAIN)
		GO(cuMemcpyAsync(to, from, bytes, stream));
	else if (op->kind == OP_COPY_SYNC && slot == SLOT_OWN)
		GO(cuMemcpyDtoD_v2_ptds(to, from, bytes));
	else if (op->kind == OP_COPY_SYNC)
		GO(op->salt & 8 ? cuMemcpyDtoD_v2(to, from, bytes) : cuMemcpy(to, from, bytes));
	else if (by_zero(op, stream))
		GO(cuMemcpyDtoDAsync_v2_ptsz(to, from, bytes, NULL));
	else
		GO(cuMemcpyDtoDAsync_v2(to, from, bytes, stream));
}

static void CUDA_CB fill_on_host(void *argument)
{
	struct ring *ring = argument;

	kernel_fill(ring->memory, ring->words, ring->salt);
}

/* A pinned piece may be used again when its operation is done, the pageable one at once. */
static void submit_from_host(struct worker *worker, const struct op *op, CUstream stream, unsigned slot)
{
	CUdeviceptr to = op->to->at + op->to_at;
	size_t bytes = 4 * (size_t)op->words;
	struct ring *ring;

	if (op->host) { /* captured: its contents are as they must be */
		GO(cuMemcpyHtoDAsync_v2(to, op->host, bytes, stream));
	} else if (op->kind == OP_HTOD_PAGEABLE || op->kind == OP_HTOD_SYNC) {
		kernel_fill((uint32_t *)worker->scratch, op->words, op->salt);
		if (op->kind == OP_HTOD_PAGEABLE)
			GO(cuMemcpyHtoDAsync_v2(to, worker->scratch, bytes, stream));
		else if (slot == SLOT_OWN)
			GO(cuMemcpyHtoD_v2_ptds(to, worker->scratch, bytes));
		else
			GO(cuMemcpyHtoD_v2(to, worker->scratch, bytes));
		memset(worker->scratch, 0x5a, bytes);
	} else {
		ring = ring_take(worker, slot);
		ring->words = op->words;
		ring->salt = op->salt;
		if (op->kind == OP_HOST_FUNCTION)
			GO(cuLaunchHostFunc(stream, fill_on_host, ring));
		else
			fill_on_host(ring);
		GO(cuMemcpyHtoDAsync_v2(to, ring->memory, bytes, stream));
	}
}

static void submit_to_host(struct worker *worker, const struct op *op, CUstream stream, unsigned slot)
{
	CUdeviceptr from = op->to->at + op->to_at;
	size_t bytes = 4 * (size_t)op->words;
	const unsigned char *expected = op->to->shadow + op->to_at;
	struct ring *ring;

	if (op->kind == OP_DTOH_PINNED) {
		ring = ring_take(worker, slot);
		memcpy(ring->expected, expected, bytes);
		ring->check = bytes;
		GO(cuMemcpyDtoHAsync_v2(ring->memory, from, bytes, stream));
		return;
	}
	if (slot == SLOT_OWN)
		GO(cuMemcpyDtoH_v2_ptds(worker->scratch, from, bytes));
	else
		GO(cuMemcpyDtoH_v2(worker->scratch, from, bytes));
	digest_add(&worker->digest, worker->scratch, bytes);
	if (memcmp(worker->scratch, expected, bytes))
		made_up_fail(
		    "thread %u: %zu bytes read at %zu of block %u.%u are wrong; last written by %s, submission "
		    "%lu of the thread; now %lu",
		    worker->id, bytes, op->to_at, op->to->owner, op->to->number, op->to->last, op->to->last_submission,
		    worker->submitted);
}

static void submit_set(const struct op *op, CUstream stream, unsigned slot)
{
	CUdeviceptr at = op->to->at + op->to_at;

	switch (op->kind) {
	case OP_SET8:
		GO(cuMemsetD8Async(at, (unsigned char)op->salt, 4 * (size_t)op->words, stream));
		break;
	case OP_SET16:
		GO(cuMemsetD16Async(at, (unsigned short)op->salt, 2 * (size_t)op->words, stream));
		break;
	case OP_SET_2D:
		GO(cuMemsetD2D32Async(at, op->pitch, op->salt, op->words, op->rows, stream));
		break;
	case OP_SET_SYNC:
		GO(slot == SLOT_OWN ? cuMemsetD32_v2_ptds(at, op->salt, op->words)
				    : cuMemsetD32_v2(at, op->salt, op->words));
		break;
	default:
		GO(by_zero(op, stream) ? cuMemsetD32Async_ptsz(at, op->salt, op->words, NULL)
				       : cuMemsetD32Async(at, op->salt, op->words, stream));
	}
}

void op_submit(struct worker *worker, const struct op *op, CUstream stream, unsigned slot)
{
	if (op->hidden)
		submit_hidden(op, stream);
	else if (op->kind == OP_ODD)
		submit_odd(op, stream);
	else if (is_kernel(op->kind))
		submit_kernel(op, stream);
	else if (is_copy(op->kind))
		submit_copy(op, stream, slot);
	else if (is_from_host(op->kind))
		submit_from_host(worker, op, stream, slot);
	else if (is_to_host(op->kind))
		submit_to_host(worker, op, stream, slot);
	else
		submit_set(op, stream, slot);
	op_submitted(worker);
}

/* ---- the same on the shadows ---- */

void op_apply(struct worker *worker, const struct op *op)
{
	size_t bytes = 4 * (size_t)op->words;

	if (op->hidden) {
		hidden_apply(op->hidden, op->salt);
		return;
	}
	unsigned char *to = op->to->shadow + op->to_at;
	const unsigned char *from = op->from ? op->from->shadow + op->from_at : NULL;
	if (is_kernel(op->kind)) {
		kernel_mix((uint32_t *)to, (const uint32_t *)from, op->words, op->pitch, op->salt);
	} else if (op->kind == OP_COPY_2D || op->kind == OP_COPY_3D) {
		for (uint32_t row = 0; row < op->rows; row++)
			memcpy(to + (size_t)row * op->pitch, from + (size_t)row * op->pitch, bytes);
	} else if (is_copy(op->kind)) {
		memcpy(to, from, bytes);
	} else if (is_from_host(op->kind)) {
		kernel_fill((uint32_t *)to, op->words, op->salt);
	} else if (op->kind == OP_SET8) {
		memset(to, (int)(op->salt & 0xff), bytes);
	} else if (op->kind == OP_SET16) {
		for (uint32_t i = 0; i < 2 * op->words; i++)
			((uint16_t *)to)[i] = (uint16_t)op->salt;
	} else if (!is_to_host(op->kind)) {
		for (uint32_t row = 0; row < op->rows; row++)
			for (uint32_t i = 0; i < op->words; i++)
				((uint32_t *)(to + (size_t)row * op->pitch))[i] = op->salt;
	}
}

void op_run(struct worker *worker, const struct op *op)
{
	if (op->hidden)
		hidden_renew(worker, op->hidden, op->slot);
	op_order(worker, op, op->slot);
	op_submit(worker, op, worker->slot[op->slot].handle, op->slot);
	op_apply(worker, op);
	worker->slot[op->slot].n++;
}

/* ---- pinned pieces ---- */

void ring_settle(struct worker *worker, struct ring *ring)
{
	if (!ring->n)
		return;
	slot_wait(worker, ring->slot);
	if (ring->check && memcmp(ring->memory, ring->expected, ring->check))
		made_up_fail("thread %u: %zu bytes that were copied to pinned memory are wrong; submission %lu",
			     worker->id, ring->check, worker->submitted);
	digest_add(&worker->digest, ring->expected, ring->check);
	ring->n = 0;
	ring->check = 0;
}

struct ring *ring_take(struct worker *worker, unsigned slot)
{
	struct ring *ring = &worker->ring[worker->next_ring++ % RINGS];

	ring_settle(worker, ring);
	ring->slot = slot;
	ring->n = worker->slot[slot].n + 1;
	return ring;
}
