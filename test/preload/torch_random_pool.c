// SPDX-License-Identifier: Apache-2.0
/*
 * torch_random_pool.c: pools of torch_random: a state that is restored, a part of a slab, and an allocator that the
 * cache is given: it keeps what it gets back, and gives it to anybody.
 */
#include "test/preload/torch_random.h"

#define SLAB_PART (2 * MIB) /* a slab has three, the allocator the second */

void restore(struct worker *worker)
{
	op_hold();
	torch->checkpoint(torch_cache, worker->saved, suspends && worker_below(worker, 2) ? suspend_for_a_while : NULL);
	op_release();
}

void slab_drop(struct worker *worker)
{
	worker_settle(worker);
	for (unsigned i = worker->n_tensors; i-- > 0;) {
		struct tensor *tensor = worker->tensor[i];

		if (!tensor->is_slab && tensor->pool != worker->slab_pool)
			continue;
		tensor_check(worker, tensor);
		tensor_drop(worker, tensor);
	}
	torch->drop_pool(torch_cache, worker->slab_pool);
	GO(cuMemFree_v2(worker->slab));
	worker->slab = 0;
	worker->slab_pool = UINT32_MAX;
}

void slab_change(struct worker *worker)
{
	if (worker->slab) {
		slab_drop(worker);
		return;
	}
	if (handle_mib || !has_room(worker, 3 * SLAB_PART))
		return;
	GO(cuMemAlloc_v2(&worker->slab, 3 * SLAB_PART));
	worker->slab_pool = torch->new_pool(torch_cache, worker->slab + SLAB_PART, SLAB_PART);
	tensor_fill(worker, tensor_add(worker, worker->slab, SLAB_PART), 0);
	tensor_fill(worker, tensor_add(worker, worker->slab + 2 * SLAB_PART, SLAB_PART), 0);
}

/* ---- an allocator that the cache was given ---- */

static struct {
	pthread_mutex_t lock;
	struct {
		CUdeviceptr at;
		size_t bytes;
		bool used;
	} part[256];
	unsigned n;
} plug = {.lock = PTHREAD_MUTEX_INITIALIZER};

/*
 * Memory that the allocator has got back, or new memory. bytes: so many; 0: any that is there. Returns 0 if there is
 * none.
 */
static CUdeviceptr plug_take(size_t bytes, size_t *ret_bytes)
{
	CUdeviceptr at = 0;

	pthread_mutex_lock(&plug.lock);
	for (unsigned i = 0; i < plug.n && !at; i++)
		if (!plug.part[i].used && (!bytes || plug.part[i].bytes == bytes)) {
			plug.part[i].used = true;
			at = plug.part[i].at;
			*ret_bytes = plug.part[i].bytes;
		}
	if (!at && bytes && plug.n < sizeof(plug.part) / sizeof(plug.part[0])) {
		GO(cuMemAlloc_v2(&at, bytes));
		plug.part[plug.n].at = at;
		plug.part[plug.n].bytes = bytes;
		plug.part[plug.n++].used = true;
	}
	pthread_mutex_unlock(&plug.lock);
	return at;
}

static CUdeviceptr plug_allocate(size_t bytes)
{
	return plug_take(bytes, &bytes);
}

static void plug_release(CUdeviceptr at)
{
	pthread_mutex_lock(&plug.lock);
	for (unsigned i = 0; i < plug.n; i++)
		if (plug.part[i].at == at)
			plug.part[i].used = false;
	pthread_mutex_unlock(&plug.lock);
}

void plug_pool(struct worker *worker)
{
	worker->plugged = torch->new_pool(torch_cache, 0, 0);
	worker->n_plugged++;
	torch->plug_pool(torch_cache, worker->plugged, (struct fake_plug){plug_allocate, plug_release});
}

void plug_change(struct worker *worker)
{
	size_t bytes = 0;

	if (handle_mib || worker->n_plugged == 12 || !has_room(worker, 9 * MIB))
		return;
	torch->drop_pool(torch_cache, worker->plugged);
	cache_empty();
	plug_pool(worker);
	CUdeviceptr at = plug_take(0, &bytes);
	if (at && bytes <= TENSOR_MOST + MIB)
		tensor_fill(worker, tensor_add(worker, at, bytes), 0);
	else if (at)
		plug_release(at);
}
