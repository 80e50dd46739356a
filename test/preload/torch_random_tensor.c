// SPDX-License-Identifier: Apache-2.0
/*
 * torch_random_tensor.c: how tensors of torch_random come and go: at random, behind a kernel that still reads them,
 * under a kernel that is told of them, and in steps that repeat themselves.
 */
#include "test/preload/torch_random.h"

size_t any_size(struct worker *worker)
{
	static const size_t most[] = {4096, 65536, MIB, 2 * MIB, TENSOR_MOST};

	return 1 + worker_below(worker, (uint32_t)most[worker_below(worker, 5)]);
}

unsigned any_stream(struct worker *worker)
{
	return worker_below(worker, STREAMS);
}

struct tensor *any_tensor(struct worker *worker)
{
	return worker->tensor[worker_below(worker, worker->n_tensors)];
}

bool has_room(const struct worker *worker, size_t bytes)
{
	return worker->n_tensors + 12 <= TENSORS && worker->bytes + bytes <= worker->share;
}

struct tensor *tensor_any_new(struct worker *worker, size_t bytes)
{
	unsigned pool = worker_below(worker, 4) ? 0 : worker->saved;

	if (!handle_mib && !worker_below(worker, 4))
		pool = worker->plugged;
	if (worker->slab && !worker_below(worker, 4) && bytes <= MIB)
		pool = worker->slab_pool;
	struct tensor *tensor = tensor_make(worker, pool, pool == worker->slab_pool ? 0 : any_stream(worker), bytes);
	if (tensor && torch->is_filled(torch_cache, tensor->at) && worker_below(worker, 2))
		for (size_t i = 0; i < tensor->bytes / 4; i++)
			tensor->shadow[i] = FILL;
	else if (tensor)
		(worker_below(worker, 3) ? tensor_fill : tensor_set)(worker, tensor, tensor->home);
	return tensor;
}

void drop_any(struct worker *worker)
{
	struct tensor *tensor = any_tensor(worker);

	if (!tensor->pins)
		tensor_drop(worker, tensor);
}

bool make_room(struct worker *worker, size_t bytes)
{
	for (unsigned tries = 0; tries < 2 * TENSORS && !has_room(worker, bytes); tries++)
		drop_any(worker);
	return has_room(worker, bytes);
}

void drop_behind_a_reader(struct worker *worker)
{
	struct tensor *from = any_tensor(worker), *to = any_tensor(worker);

	if (from == to || from->pins)
		return;
	kernel_run_late(worker, to, from, any_stream(worker));
	tensor_drop(worker, from);
}

void tell_running(struct worker *worker)
{
	unsigned stream = any_stream(worker);
	size_t bytes = any_size(worker);

	if (!has_room(worker, 2 * bytes))
		return;
	struct tensor *old = tensor_make(worker, 0, stream, bytes), *other = tensor_make(worker, 0, stream, 512);
	bytes = old->bytes;
	tensor_fill(worker, old, stream);
	worker_settle(worker);
	if (spillway_discard && !handle_mib && worker_below(worker, 2) &&
	    spillway_discard((const void *)(uintptr_t)old->at, old->bytes))
		made_up_fail("discard");
	tensor_drop(worker, old);
	/* The thread goes on and reports: the death counts. */
	tensor_fill(worker, other, stream);
	worker_settle(worker);
	tensor_drop(worker, other);
	uint32_t salt = op_wait(worker, bytes / 4, stream);
	struct tensor *tensor = tensor_make(worker, 0, stream, bytes);
	op_tell(worker, tensor, stream);
	kernel_apply(tensor->shadow, NULL, bytes / 4, salt, false);
	if (suspends && worker_below(worker, 2))
		suspend_for_a_while();
	if (tensor->bytes != bytes)
		tensor_fill(worker, tensor, stream);
	tensor_check(worker, tensor);
}

/* ---- steps ---- */

#define STEP_TENSORS 5 /* that live for a part of a step */

void repeat_step(struct worker *worker)
{
	struct tensor *kept[STEP_TENSORS], *tensor[STEP_TENSORS];
	size_t size[STEP_TENSORS], sum = 0;
	unsigned stream = any_stream(worker);

	for (unsigned i = 0; i < STEP_TENSORS; i++) {
		size[i] = any_size(worker);
		sum += size[i];
		kept[i] = any_tensor(worker);
	}
	if (!has_room(worker, sum))
		return;
	for (unsigned times = 2 + worker_below(worker, 8); times; times--) {
		for (unsigned i = 0; i < STEP_TENSORS; i++) {
			tensor[i] = tensor_make(worker, 0, stream, size[i]);
			tensor_fill(worker, tensor[i], stream);
			kernel_run(worker, tensor[i], i ? tensor[i - 1] : kept[0], true, stream);
			kernel_run(worker, tensor[i], kept[i], true, stream);
			if (i % 2)
				tensor_drop(worker, tensor[i - 1]);
		}
		for (unsigned i = STEP_TENSORS; i-- > 0;) {
			if (i % 2 == 0 && i + 1 < STEP_TENSORS)
				continue; /* is dead */
			kernel_run(worker, kept[i], tensor[i], true, stream);
			tensor_drop(worker, tensor[i]);
		}
	}
}
