// SPDX-License-Identifier: Apache-2.0
/*
 * torch_random_op.c: tensors, operations on them, and the shadows that say what every word must be.
 */
#include "test/preload/torch_random.h"
#include "test/preload/trouble.h"
#include "test/sim/sim.h"

uint32_t worker_below(struct worker *worker, uint32_t n)
{
	return made_up_next(&worker->random) % n;
}

void worker_settle(struct worker *worker)
{
	for (unsigned i = 0; i < STREAMS; i++)
		GO(cuStreamSynchronize(worker->stream[i]));
}

/* ---- submitting ---- */

/* An allocator that restores a state is told apart from one that frees by what is submitted in between: nothing. */
static pthread_rwlock_t submitting = PTHREAD_RWLOCK_INITIALIZER;

void op_hold(void)
{
	pthread_rwlock_wrlock(&submitting);
}

void op_release(void)
{
	pthread_rwlock_unlock(&submitting);
}

#define SUBMIT(call)                                                                                                   \
	do {                                                                                                           \
		pthread_rwlock_rdlock(&submitting);                                                                    \
		GO(call);                                                                                              \
		pthread_rwlock_unlock(&submitting);                                                                    \
	} while (0)

void kernel_apply(uint32_t *to, const uint32_t *from, size_t n, uint32_t salt, bool keep)
{
	for (size_t i = 0; i < n; i++)
		to[i] = (keep ? to[i] * 2654435761u : 0) + (from ? from[i] * 40503u : 0) + salt + (uint32_t)i;
}

#define KEEP      1u
#define FROM_ENDS 2u /* the addresses are those of the ends */

bool op_has_ends;

static void mix_body(const struct sim_launch *launch, void **args)
{
	uint32_t how = *(uint32_t *)args[4], us = *(uint32_t *)args[5], *to = *(uint32_t **)args[0];
	const uint32_t *from = *(const uint32_t **)args[1];
	size_t n = *(size_t *)args[2], back = how & FROM_ENDS ? n : 0;

	if (us)
		usleep(us);
	kernel_apply(to - back, from ? from - back : NULL, n, *(uint32_t *)args[3], how & KEEP);
}

/* To where, and from where: 0: from nowhere. It waits until the first address is there, whose upper bytes come last. */
static void table_body(const struct sim_launch *launch, void **args)
{
	const volatile CUdeviceptr *table = *(CUdeviceptr **)args[0];

	while (!(*table >> 40))
		usleep(100);
	kernel_apply(sim_pointer(table[0]), table[1] ? sim_pointer(table[1]) : NULL, *(size_t *)args[1],
		     *(uint32_t *)args[2], *(uint32_t *)args[3]);
}

SIM_MODULE(image, SIM_KERNEL("mix", mix_body, 8, 8, 8, 4, 4, 4), SIM_KERNEL("table", table_body, 8, 8, 4, 4));
static CUfunction mix_function, table_function;

void op_prepare(void)
{
	mix_function = made_up_kernel(&image, "mix");
	table_function = made_up_kernel(&image, "table");
}

static void mix_submit(CUdeviceptr to, CUdeviceptr from, size_t n, uint32_t salt, uint32_t how, uint32_t us,
		       CUstream stream)
{
	void *args[] = {&to, &from, &n, &salt, &how, &us};

	if (how & FROM_ENDS) {
		to += n * 4;
		from += from ? n * 4 : 0;
	}
	SUBMIT(cuLaunchKernel(mix_function, 4, 1, 1, 64, 1, 1, 0, stream, args, NULL));
}

/* ---- addresses in device memory ---- */

bool op_has_tables;
/* A kernel waits for an address: nothing that the driver would wait with is done meanwhile. */
static pthread_rwlock_t waiting = PTHREAD_RWLOCK_INITIALIZER;

void cache_empty(void)
{
	pthread_rwlock_wrlock(&waiting);
	torch->empty_cache(torch_cache);
	pthread_rwlock_unlock(&waiting);
}

/* Each stream's own; the last is where an address comes from that is copied. */
static CUdeviceptr table_of(const struct worker *worker, unsigned stream)
{
	return worker->tables + 512 * stream;
}

static void set_words(CUdeviceptr at, CUdeviceptr value, CUstream stream)
{
	SUBMIT(cuMemsetD32Async(at, (unsigned)value, 1, stream));
	SUBMIT(cuMemsetD32Async(at + 4, (unsigned)(value >> 32), 1, stream));
}

static void table_write(const struct worker *worker, CUdeviceptr to, CUdeviceptr from, unsigned stream)
{
	set_words(table_of(worker, stream) + 8, from, worker->stream[stream]);
	set_words(table_of(worker, stream), to, worker->stream[stream]);
}

static void table_submit(const struct worker *worker, size_t n, uint32_t salt, uint32_t keep, unsigned stream)
{
	CUdeviceptr table = table_of(worker, stream);
	void *args[] = {&table, &n, &salt, &keep};

	SUBMIT(cuLaunchKernel(table_function, 4, 1, 1, 64, 1, 1, 0, worker->stream[stream], args, NULL));
}

static void begin_capture(CUstream stream)
{
	torch->use_pool(torch_cache, 0, true);
	GO(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

/* What was captured runs, once. */
static void end_capture(CUstream stream)
{
	CUgraphExec exec;
	CUgraph made;

	GO(cuStreamEndCapture(stream, &made));
	torch->use_pool(torch_cache, 0, false);
	GO(cuGraphInstantiateWithFlags(&exec, made, 0));
	GO(cuGraphDestroy(made));
	SUBMIT(cuGraphLaunch(exec, stream));
	GO(cuGraphExecDestroy(exec));
}

/* The kernel finds both addresses, and is now and then in a graph with what writes them. */
static void hidden_submit(struct worker *worker, CUdeviceptr to, CUdeviceptr from, size_t n, uint32_t salt,
			  uint32_t keep, unsigned stream)
{
	bool captures = !worker_below(worker, 16);

	if (captures)
		begin_capture(worker->stream[stream]);
	table_write(worker, to, from, stream);
	table_submit(worker, n, salt, keep, stream);
	if (captures)
		end_capture(worker->stream[stream]);
}

uint32_t op_wait(struct worker *worker, size_t n, unsigned stream)
{
	uint32_t salt = worker_below(worker, 1u << 30);

	pthread_rwlock_rdlock(&waiting);
	table_write(worker, 0, 0, stream);
	GO(cuStreamSynchronize(worker->stream[stream])); /* whoever tells does so on another stream */
	table_submit(worker, n, salt, false, stream);
	return salt;
}

/* By the ways that bring an address into memory. */
static void tell(struct worker *worker, CUdeviceptr table, CUdeviceptr at, CUstream stream)
{
	CUdeviceptr between = table_of(worker, STREAMS);
	CUDA_MEMCPY2D box = form_rows(table, between, 8, 8, 1);

	switch (worker_below(worker, 8)) {
	case 0:
		set_words(table, at, stream);
		break;
	case 1:
		for (unsigned i = 0; i < 6; i++)
			SUBMIT(cuMemsetD8Async(table + i, (unsigned char)(at >> 8 * i), 1, stream));
		break;
	case 2:
		for (unsigned i = 0; i < 3; i++)
			SUBMIT(cuMemsetD16Async(table + 2 * i, (unsigned short)(at >> 16 * i), 1, stream));
		break;
	case 3:
		for (unsigned i = 0; i < 2; i++)
			SUBMIT(cuMemsetD2D32Async(table + 4 * i, 4, (unsigned)(at >> 32 * i), 1, 1, stream));
		break;
	case 4:
		set_words(between, at, stream);
		SUBMIT(cuMemcpyDtoDAsync_v2(table, between, 8, stream));
		break;
	case 5:
		SUBMIT(cuMemcpyHtoDAsync_v2(between, &at, 8, stream));
		SUBMIT(cuMemcpy2DAsync_v2(&box, stream));
		break;
	case 6:
		begin_capture(stream);
		set_words(table, at, stream);
		end_capture(stream);
		break;
	default:
		SUBMIT(cuMemcpyHtoDAsync_v2(table, &at, 8, stream));
		break;
	}
}

void op_tell(struct worker *worker, struct tensor *tensor, unsigned stream)
{
	unsigned other = (stream + 1) % STREAMS;

	tell(worker, table_of(worker, stream), tensor->at, worker->stream[other]);
	worker_settle(worker);
	pthread_rwlock_unlock(&waiting);
}

static size_t words_of(const struct tensor *to, const struct tensor *from)
{
	return (from && from->bytes < to->bytes ? from->bytes : to->bytes) / 4;
}

void kernel_submit(const struct tensor *to, const struct tensor *from, size_t n, uint32_t salt, bool keep,
		   CUstream stream)
{
	mix_submit(to->at, from ? from->at : 0, n, salt, keep, 0, stream);
}

void kernel_run(struct worker *worker, struct tensor *to, struct tensor *from, bool keep, unsigned stream)
{
	uint32_t salt = worker_below(worker, 1u << 30), how = keep ? KEEP : 0;

	trouble_step();
	tensor_order(worker, to, stream);
	if (from)
		tensor_order(worker, from, stream);
	if (op_has_ends && !worker_below(worker, 3))
		how |= FROM_ENDS;
	if (op_has_tables && !worker_below(worker, 2))
		hidden_submit(worker, to->at, from ? from->at : 0, words_of(to, from), salt, keep, stream);
	else
		mix_submit(to->at, from ? from->at : 0, words_of(to, from), salt, how, 0, worker->stream[stream]);
	kernel_apply(to->shadow, from ? from->shadow : NULL, words_of(to, from), salt, keep);
}

void kernel_run_late(struct worker *worker, struct tensor *to, struct tensor *from, unsigned stream)
{
	uint32_t salt = worker_below(worker, 1u << 30), us = 100 + worker_below(worker, 2000);

	tensor_order(worker, to, stream);
	tensor_order(worker, from, stream);
	mix_submit(to->at, from->at, words_of(to, from), salt, 1, us, worker->stream[stream]);
	kernel_apply(to->shadow, from->shadow, words_of(to, from), salt, true);
}

void part_run(struct worker *worker, struct tensor *to, struct tensor *from, unsigned stream)
{
	size_t all = words_of(to, from), first = worker_below(worker, (uint32_t)all);
	size_t n = 1 + worker_below(worker, (uint32_t)(all - first));
	CUdeviceptr at = to->at + first * 4, source = from->at + first * 4;
	uint32_t salt = worker_below(worker, 1u << 30);

	tensor_order(worker, to, stream);
	tensor_order(worker, from, stream);
	switch (worker_below(worker, 4)) {
	case 0:
		SUBMIT(cuMemsetD32Async(at, salt, n, worker->stream[stream]));
		for (size_t i = 0; i < n; i++)
			to->shadow[first + i] = salt;
		break;
	case 1:
		SUBMIT(cuMemcpyDtoDAsync_v2(at, source, n * 4, worker->stream[stream]));
		memcpy(to->shadow + first, from->shadow + first, n * 4);
		break;
	default:
		if (op_has_tables && !worker_below(worker, 2))
			hidden_submit(worker, at, source, n, salt, salt % 2, stream);
		else
			mix_submit(at, source, n, salt, salt % 2, 0, worker->stream[stream]);
		kernel_apply(to->shadow + first, from->shadow + first, n, salt, salt % 2);
		break;
	}
}

void graph_launch(struct worker *worker, CUgraphExec exec, unsigned stream)
{
	trouble_step();
	SUBMIT(cuGraphLaunch(exec, worker->stream[stream]));
}

/* ---- tensors ---- */

static struct tensor *add(struct worker *worker, struct tensor tensor)
{
	struct tensor *ret = malloc(sizeof(*ret));

	tensor.shadow = malloc(tensor.bytes);
	if (!ret || !tensor.shadow || worker->n_tensors == TENSORS)
		made_up_fail("no memory of the host, or too many tensors");
	*ret = tensor;
	worker->bytes += tensor.bytes;
	worker->tensor[worker->n_tensors++] = ret;
	return ret;
}

struct tensor *tensor_make(struct worker *worker, unsigned pool, unsigned home, size_t bytes)
{
	struct tensor tensor = {.pool = pool, .home = home, .last = home};

	torch->use_pool(torch_cache, pool, worker->is_capturing);
	tensor.at = torch->allocate(torch_cache, bytes, worker->stream[home], &tensor.bytes);
	if (!worker->is_capturing)
		torch->use_pool(torch_cache, 0, false);
	if (!tensor.at && pool != worker->slab_pool)
		made_up_fail("no memory of the device");
	return tensor.at ? add(worker, tensor) : NULL;
}

struct tensor *tensor_add(struct worker *worker, CUdeviceptr at, size_t bytes)
{
	return add(worker, (struct tensor){.at = at, .bytes = bytes, .is_slab = true, .pins = 1});
}

void tensor_die(struct worker *worker, struct tensor *tensor)
{
	unsigned i = 0;

	while (i < worker->n_tensors && worker->tensor[i] != tensor)
		i++;
	if (i < worker->n_tensors)
		worker->tensor[i] = worker->tensor[--worker->n_tensors];
	if (!tensor->is_slab)
		torch->release(torch_cache, tensor->at);
	tensor->is_slab = true;
}

void tensor_drop(struct worker *worker, struct tensor *tensor)
{
	tensor_die(worker, tensor);
	worker->bytes -= tensor->bytes;
	free(tensor->shadow);
	free(tensor);
}

void tensor_order(struct worker *worker, struct tensor *tensor, unsigned stream)
{
	if (tensor->last != stream) {
		GO(cuEventRecord(worker->event, worker->stream[tensor->last]));
		GO(cuStreamWaitEvent(worker->stream[stream], worker->event, 0));
	}
	tensor->last = stream;
	if (stream != tensor->home && !tensor->is_slab)
		torch->record_stream(torch_cache, tensor->at, worker->stream[stream]);
}

void tensor_fill(struct worker *worker, struct tensor *tensor, unsigned stream)
{
	kernel_run(worker, tensor, NULL, false, stream);
}

void tensor_set(struct worker *worker, struct tensor *tensor, unsigned stream)
{
	uint32_t salt = worker_below(worker, 1u << 30);

	tensor_order(worker, tensor, stream);
	SUBMIT(cuMemsetD32Async(tensor->at, salt, tensor->bytes / 4, worker->stream[stream]));
	for (size_t i = 0; i < tensor->bytes / 4; i++)
		tensor->shadow[i] = salt;
}

void tensor_check(struct worker *worker, struct tensor *tensor)
{
	tensor_order(worker, tensor, 0);
	SUBMIT(cuMemcpyDtoHAsync_v2(worker->words, tensor->at, tensor->bytes, worker->stream[0]));
	GO(cuStreamSynchronize(worker->stream[0]));
	for (size_t i = 0; i < tensor->bytes / 4; i++)
		if (worker->words[i] != tensor->shadow[i])
			made_up_fail("worker %u: word %zu of %zu at %#llx (pool %u%s) is %#x, not %#x", worker->id, i,
				     tensor->bytes / 4, tensor->at, tensor->pool,
				     tensor->is_slab ? ", a slab"
				     : tensor->pins  ? ", of a graph"
						     : "",
				     worker->words[i], tensor->shadow[i]);
}
