// SPDX-License-Identifier: Apache-2.0
/* peer_op.c: the operations of peer_random: what each needs, how it is submitted and what it does (peers.h). */
#include "test/preload/peers.h"

static const char *const names[OP_KINDS] = {
    [OP_MIX] = "a kernel",
    [OP_CHASE] = "a kernel that finds its block in memory",
    [OP_SET] = "a set",
    [OP_DTOD] = "cuMemcpyDtoDAsync",
    [OP_PLAIN] = "cuMemcpyAsync",
    [OP_PEER] = "cuMemcpyPeerAsync",
    [OP_PEER_NOW] = "cuMemcpyPeer",
    [OP_PEER_3D] = "cuMemcpy3DPeerAsync",
    [OP_BATCH] = "cuMemcpyBatchAsync",
    [OP_2D] = "a 2D copy",
    [OP_3D] = "a 3D copy",
    [OP_IN] = "a copy from the host",
    [OP_OUT] = "a copy to the host",
};

static bool is_kernel(enum op_kind kind)
{
	return kind == OP_MIX || kind == OP_CHASE;
}

static bool is_copy(enum op_kind kind)
{
	return kind >= OP_DTOD && kind <= OP_3D;
}

/* Copies that say whose memory it is on either side. */
static bool is_peer_copy(enum op_kind kind)
{
	return kind == OP_PEER || kind == OP_PEER_NOW || kind == OP_PEER_3D;
}

bool op_returns(const struct op *op)
{
	return op->kind != OP_PEER_NOW && op->kind < OP_IN && op->kind != OP_CHASE;
}

/* What a stream capture takes. */
static bool is_capturable(enum op_kind kind)
{
	return kind == OP_MIX || kind == OP_SET || kind == OP_DTOD || kind == OP_PLAIN || kind == OP_PEER ||
	       kind == OP_2D || kind == OP_3D;
}

const struct functions *op_functions(const struct worker *worker, unsigned lane)
{
	return lane == LANE_GUEST ? &worker->guest.functions : &world.functions[worker->lane[lane].device];
}

/* ---- may it be done? ---- */

/* Memory of cuMemAlloc is copied by whoever asks; that of pools by a device to which it is open. */
static bool may_copy(const struct worker *worker, const struct op *op, const struct block *block, bool write)
{
	if (block->kind == BLOCK_HOST)
		return op->kind == OP_PLAIN;
	return block->kind == BLOCK_PLAIN || is_peer_copy(op->kind) || reach_may(worker, op->lane, block, write);
}

bool op_may(const struct worker *worker, const struct op *op)
{
	if (is_kernel(op->kind) || op->kind == OP_SET)
		return (op->to->kind != BLOCK_HOST || op->kind == OP_MIX) &&
		       reach_may(worker, op->lane, op->to, true) &&
		       (!op->from || reach_may(worker, op->lane, op->from, false));
	return may_copy(worker, op, op->to, op->kind != OP_OUT) && (!op->from || may_copy(worker, op, op->from, false));
}

/* ---- making ---- */

static enum op_kind any_kind(struct worker *worker, enum op_use use)
{
	uint32_t what = peers_below(worker, 100);
	enum op_kind kind;

	if (use == OP_KERNEL || what < 45)
		return use == OP_ANY && world.hidden && peers_one_in(worker, 6) ? OP_CHASE : OP_MIX;
	do
		kind = what < 55   ? OP_SET
		       : what < 85 ? OP_DTOD + peers_below(worker, OP_3D - OP_DTOD + 1)
				   : OP_IN + peers_below(worker, 2);
	while (use == OP_OF_GRAPH && !is_capturable(kind) && (what = peers_below(worker, 85)) < 100);
	return kind;
}

static struct block *any_block(struct worker *worker)
{
	return worker->block[peers_below(worker, worker->n_blocks)];
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* How much of which part; copies and sets of any part, kernels of the beginning, often all of it. */
static void measure(struct worker *worker, struct op *op)
{
	size_t room = op->from ? smaller(op->to->words, op->from->words) : op->to->words;

	op->to_at = op->from_at = 0;
	op->words = room;
	if (is_kernel(op->kind))
		return;
	if (op->kind == OP_IN || op->kind == OP_OUT)
		room = smaller(room, HOST_WORDS);
	op->words = 1 + peers_below(worker, room);
	if ((op->kind == OP_2D || op->kind == OP_3D) && op->words > 64)
		op->words = op->words / 64 * 64;
	op->to_at = peers_below(worker, op->to->words - op->words + 1);
	if (op->from)
		op->from_at = peers_below(worker, op->from->words - op->words + 1);
}

/* Of a capture, copies with the host are left out that are of another device than the stream (spillway-limits(7)). */
static bool of_graph(const struct worker *worker, const struct op *op)
{
	const struct block *host = op->to->kind == BLOCK_HOST                 ? op->to
				   : op->from && op->from->kind == BLOCK_HOST ? op->from
									      : NULL;
	const struct block *other = host == op->to ? op->from : op->to;

	if (op->lane == LANE_GUEST || op->lane % PER_DEVICE >= LANE_LEGACY || op->to->guest ||
	    (op->from && op->from->guest))
		return false;
	return !is_copy(op->kind) || !host || other->kind == BLOCK_HOST ||
	       other->device == worker->lane[op->lane].device;
}

static bool choose_blocks(struct worker *worker, struct op *op, enum op_use use)
{
	op->to = any_block(worker);
	op->from = is_copy(op->kind) || (op->kind == OP_MIX && !peers_one_in(worker, 3)) ? any_block(worker) : NULL;
	if (op->from == op->to) {
		if (is_copy(op->kind))
			return false;
		op->from = NULL;
	}
	if ((use != OP_ANY && !of_graph(worker, op)) || !op_may(worker, op))
		return false;
	measure(worker, op);
	return true;
}

bool op_make(struct worker *worker, struct op *op, enum op_use use)
{
	for (int tries = 0; tries < 12; tries++) {
		*op = (struct op){.kind = any_kind(worker, use), .lane = lane_any(worker), .salt = peers_next(worker)};
		if (use != OP_ANY)
			op->lane = peers_below(worker, (size_t)world.devices) * PER_DEVICE + op->salt % 2;
		if (op->kind == OP_PEER_NOW && op->lane != LANE_GUEST)
			op->lane = op->lane / PER_DEVICE * PER_DEVICE + LANE_LEGACY;
		/*
		 * The legacy stream of a guest has no lane; a list is refused by the default streams; no table is a
		 * guest's.
		 */
		if (op->lane == LANE_GUEST && (op->kind == OP_PEER_NOW || op->kind == OP_CHASE))
			continue;
		if (op->kind == OP_BATCH && op->lane != LANE_GUEST && op->lane % PER_DEVICE >= LANE_LEGACY)
			continue;
		if (choose_blocks(worker, op, use))
			return true;
	}
	return false;
}

bool op_change_blocks(struct worker *worker, struct op *op)
{
	for (int tries = 0; tries < 12; tries++)
		if (choose_blocks(worker, op, OP_KERNEL))
			return true;
	return false;
}

bool op_conflict(const struct op *a, const struct op *b)
{
	return a->to == b->to || a->to == b->from || a->from == b->to;
}

void op_pin(const struct op *op, int by)
{
	op->to->pins += (unsigned)by;
	if (op->from)
		op->from->pins += (unsigned)by;
}

/* ---- submitting ---- */

void op_order(struct worker *worker, const struct op *op, unsigned lane)
{
	if (op->from)
		lane_order(worker, lane, op->from, false, NULL);
	lane_order(worker, lane, op->to, op->kind != OP_OUT, names[op->kind]);
}

void op_params(const struct op *op, struct op_params *params)
{
	*params = (struct op_params){op->to->at,
				     op->from ? op->from->at : 0,
				     op->words,
				     op->salt,
				     {&params->to, &params->from, &params->n, &params->salt}};
}

static void submit_mix(struct worker *worker, const struct op *op, CUstream stream)
{
	CUfunction function = op_functions(worker, op->lane)->mix;
	struct op_params params;

	op_params(op, &params);
	if (op->lane % PER_DEVICE == LANE_OWN && op->lane != LANE_GUEST && (op->salt & 8))
		GO(cuLaunchKernel_ptsz(function, 1, 1, 1, 32, 1, 1, 0, NULL, params.at, NULL));
	else
		GO(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0,
				  op->salt & 8 && stream == CU_STREAM_LEGACY ? NULL : stream, params.at, NULL));
}

/* The table is the worker's, of the lane's device: written in the lane's order, in which it is read. */
static void submit_chase(struct worker *worker, const struct op *op, CUstream stream)
{
	struct block *table = &worker->table[worker->lane[op->lane].device];
	size_t n = op->words;
	uint32_t salt = op->salt;
	void *params[] = {&table->at, &n, &salt};

	lane_order(worker, op->lane, table, true, "an address");
	GO(cuMemcpyHtoDAsync_v2(table->at, &op->to->at, 8, stream));
	GO(cuLaunchKernel(op_functions(worker, op->lane)->chase, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

/* The context on whose behalf that side is touched. */
static CUcontext context_of(const struct worker *worker, const struct block *block)
{
	return block->guest ? worker->guest.context : world.context[block->device];
}

static void submit_peer(const struct worker *worker, const struct op *op, CUdeviceptr dst, CUdeviceptr src,
			CUstream stream)
{
	CUcontext to = context_of(worker, op->to), from = context_of(worker, op->from);
	CUDA_MEMCPY3D_PEER box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				  .srcDevice = src,
				  .srcContext = from,
				  .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				  .dstDevice = dst,
				  .dstContext = to,
				  .WidthInBytes = 4 * op->words,
				  .Height = 1,
				  .Depth = 1};

	if (op->kind == OP_PEER_3D)
		GO(cuMemcpy3DPeerAsync(&box, stream));
	else if (op->kind == OP_PEER_NOW)
		GO(cuMemcpyPeer(dst, to, src, from, 4 * op->words));
	else
		GO(cuMemcpyPeerAsync(dst, to, src, from, 4 * op->words, stream));
}

/* The same rows by a form that has a pitch. */
static void submit_box(const struct op *op, CUdeviceptr dst, CUdeviceptr src, CUstream stream)
{
	size_t row = op->words > 64 ? 256 : 4 * op->words, rows = op->words > 64 ? op->words / 64 : 1;
	CUDA_MEMCPY2D two = form_rows(dst, src, row, row, rows);
	CUDA_MEMCPY3D three = form_box(dst, src, row, row, rows, 1);

	two.dstMemoryType = three.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
	GO(op->kind == OP_3D ? cuMemcpy3DAsync_v2(&three, stream) : cuMemcpy2DAsync_v2(&two, stream));
}

/* In two parts where it is long enough: if one of them goes another way, the list is split. */
static void submit_list(const struct op *op, CUdeviceptr dst, CUdeviceptr src, CUstream stream)
{
	CUmemcpyAttributes in_order = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	size_t half = 4 * (op->words / 2), sizes[] = {half, 4 * op->words - half}, first = 0, from = half ? 0 : 1;
	CUdeviceptr dsts[] = {dst, dst + half}, srcs[] = {src, src + half};

	GO(cuMemcpyBatchAsync_v2(dsts + from, srcs + from, sizes + from, 2 - from, &in_order, &first, 1, stream));
}

static void submit_copy(const struct worker *worker, const struct op *op, CUstream stream)
{
	CUdeviceptr dst = op->to->at + 4 * op->to_at, src = op->from->at + 4 * op->from_at;
	size_t bytes = 4 * op->words;

	if (is_peer_copy(op->kind))
		submit_peer(worker, op, dst, src, stream);
	else if (op->kind == OP_2D || op->kind == OP_3D)
		submit_box(op, dst, src, stream);
	else if (op->kind == OP_BATCH)
		submit_list(op, dst, src, stream);
	else if (op->kind == OP_PLAIN)
		GO(cuMemcpyAsync(dst, src, bytes, stream));
	else
		GO(cuMemcpyDtoDAsync_v2(dst, src, bytes, stream));
}

/* The memory on the host is used again at once: the lane is waited for. */
static void submit_host(struct worker *worker, const struct op *op, CUstream stream)
{
	uint32_t *memory = op->salt & 8 ? worker->pinned : worker->pageable;
	CUdeviceptr at = op->to->at + 4 * op->to_at;

	if (op->kind == OP_IN) {
		for (size_t i = 0; i < op->words; i++)
			memory[i] = op->salt + (uint32_t)i;
		GO(cuMemcpyHtoDAsync_v2(at, memory, 4 * op->words, stream));
		GO(cuStreamSynchronize(stream));
		return;
	}
	GO(cuMemcpyDtoHAsync_v2(memory, at, 4 * op->words, stream));
	GO(cuStreamSynchronize(stream));
	for (size_t i = 0; i < op->words; i++)
		if (memory[i] != op->to->shadow[op->to_at + i])
			made_up_fail(
			    "thread %u, after %lu operations: word %zu of %zu read from device %d by %d is %08x, not "
			    "%08x; last written by %s, operation %lu",
			    worker->id, worker->done, op->to_at + i, op->to->words, op->to->device,
			    worker->lane[op->lane].device, memory[i], op->to->shadow[op->to_at + i], op->to->last,
			    op->to->last_number);
}

/* On its lane, whose context becomes current. */
void op_submit(struct worker *worker, const struct op *op)
{
	CUstream stream = worker->lane[op->lane].stream;

	lane_be(worker, op->lane);
	if (op->kind == OP_MIX)
		submit_mix(worker, op, stream);
	else if (op->kind == OP_CHASE)
		submit_chase(worker, op, stream);
	else if (op->kind == OP_SET)
		GO(cuMemsetD32Async(op->to->at + 4 * op->to_at, op->salt, op->words, stream));
	else if (is_copy(op->kind))
		submit_copy(worker, op, stream);
	else
		submit_host(worker, op, stream);
}

void op_apply(const struct op *op)
{
	uint32_t *to = op->to->shadow + op->to_at;

	if (is_kernel(op->kind))
		kernel_mix(to, op->from ? op->from->shadow : NULL, op->words, op->salt);
	else if (is_copy(op->kind))
		memcpy(to, op->from->shadow + op->from_at, 4 * op->words);
	else if (op->kind == OP_SET)
		for (size_t i = 0; i < op->words; i++)
			to[i] = op->salt;
	else if (op->kind == OP_IN)
		for (size_t i = 0; i < op->words; i++)
			to[i] = op->salt + (uint32_t)i;
}

void op_run(struct worker *worker, const struct op *op)
{
	op_order(worker, op, op->lane);
	op_submit(worker, op);
	op_apply(op);
	lane_submitted(worker, op->lane);
}
