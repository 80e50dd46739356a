// SPDX-License-Identifier: Apache-2.0
/* torch_random_birth.c: births and deaths of torch_random at times and places where few programs have them. */
#include "test/preload/torch_random.h"

/* Whoever may have seen dead bytes leaves them behind. */
static void leave_and_check(struct worker *worker, struct tensor *tensor)
{
	if (suspends && worker_below(worker, 2))
		suspend_for_a_while();
	tensor_check(worker, tensor);
}

/* Something is submitted and done: the deaths that this thread has reported count. */
static void go_on(struct worker *worker)
{
	tensor_fill(worker, any_tensor(worker), any_stream(worker));
	worker_settle(worker);
}

static struct tensor *born_beside_a_capture(struct worker *worker, unsigned stream, size_t bytes)
{
	CUstream captures = worker->stream[(stream + 1) % STREAMS];
	CUgraph made;

	torch->use_pool(torch_cache, 0, true);
	worker->is_capturing = true;
	GO(cuStreamBeginCapture_v2(captures, CU_STREAM_CAPTURE_MODE_RELAXED));
	struct tensor *tensor = tensor_make(worker, 0, stream, bytes);
	GO(cuStreamEndCapture(captures, &made));
	worker->is_capturing = false;
	torch->use_pool(torch_cache, 0, false);
	if (made)
		GO(cuGraphDestroy(made));
	return tensor;
}

void be_born_beside_captures(struct worker *worker)
{
	unsigned stream = any_stream(worker);

	for (unsigned times = 2 + worker_below(worker, 6); times; times--) {
		size_t bytes = worker_below(worker, 4) ? MIB + worker_below(worker, 4 * MIB) : any_size(worker);
		bool beside = worker_below(worker, 2);

		if (!make_room(worker, bytes))
			return;
		struct tensor *tensor =
		    beside ? born_beside_a_capture(worker, stream, bytes) : tensor_make(worker, 0, stream, bytes);
		tensor_fill(worker, tensor, stream);
		if (beside && worker_below(worker, 2))
			leave_and_check(worker, tensor);
		if (worker_below(worker, 4))
			tensor_drop(worker, tensor);
		go_on(worker);
		if (!worker_below(worker, 3))
			cache_empty();
	}
}

void go_on_away(struct worker *worker)
{
	struct tensor *born[4];
	unsigned n = 0;
	pthread_t thread;

	if (!suspends || !suspend_begin(&thread))
		return;
	for (unsigned times = 1 + worker_below(worker, 8); times; times--) {
		size_t bytes = any_size(worker);

		if (worker->n_tensors > 12 && !worker_below(worker, 2))
			drop_any(worker);
		else if (n < 4 && has_room(worker, bytes))
			(born[n++] = tensor_make(worker, 0, any_stream(worker), bytes))->pins = 1;
	}
	for (unsigned i = 0; i < n; i++) {
		tensor_fill(worker, born[i], born[i]->home);
		born[i]->pins = 0;
	}
	pthread_join(thread, NULL);
}

/* ---- the program itself says what is alive ---- */

static void say(int (*function)(const void *, uint64_t), CUdeviceptr at, size_t bytes)
{
	if (function && function((const void *)(uintptr_t)at, bytes))
		made_up_fail("spillway.h does not take %zu bytes", bytes);
}

/* What is dead lies between the beginning and `cut`; what is not yet there behind `before`. */
void speak_of_a_block(struct worker *worker)
{
	size_t before = 2 * MIB + worker_below(worker, 2 * MIB) / 512 * 512,
	       bytes = before + worker_below(worker, 4 * MIB);
	size_t cut = (1 + worker_below(worker, 4)) * MIB / 2, born;
	CUdeviceptr at;

	bytes = bytes < TENSOR_MOST ? bytes / 512 * 512 : TENSOR_MOST;
	if (!make_room(worker, bytes))
		return;
	GO(cuMemAlloc_v2(&at, spillway_grow ? before : bytes));
	struct tensor *block = tensor_add(worker, at, bytes);
	tensor_die(worker, block); /* nothing else is done with it */
	block->bytes = spillway_grow ? before : bytes;
	say(spillway_born, at, cut);
	tensor_fill(worker, block, 0);
	say(spillway_discard, at, cut);
	go_on(worker);
	if (worker_below(worker, 2))
		leave_and_check(worker, any_tensor(worker));
	/* Addresses behind it may be in use: it stays as it is. */
	if (spillway_grow && worker_below(worker, 4) && !spillway_grow((const void *)(uintptr_t)at, bytes))
		block->bytes = bytes;
	born = cut + worker_below(worker, (uint32_t)(block->bytes - cut)) / 512 * 512;
	say(spillway_born, at, born);
	tensor_fill(worker, block, 0);
	leave_and_check(worker, block);
	block->bytes = bytes; /* as they were added */
	tensor_drop(worker, block);
	GO(cuMemFree_v2(at));
}
