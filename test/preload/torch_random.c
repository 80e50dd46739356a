/*
 * torch_random.c: a program that is made up from a seed and keeps its memory in a caching allocator that reports births
 * and deaths (fake_torch.h). Tensors come and go, on several streams, are copied to each other, and die while kernels
 * still read them; steps repeat themselves with tensors that live for a part of them; graphs have pools of their own;
 * states of a pool are restored; a pool has a part of a slab; and cached memory is given back.
 *
 *   torch_random [--seed N] [--operations N] [--threads N] [--bytes MIB] [--deadline SECONDS] [--trouble KINDS]
 *                [--suspend N] [--expandable MIB] [--hidden]
 *
 * --suspend: under the library, it suspends and resumes itself about once in N operations, also while a state of a pool
 * is half restored. --expandable: segments are expandable, with handles of so many MiB; no pool has a slab then, because
 * memory that the allocator gives to somebody else makes the library doubt all that it reports. --hidden: kernels find
 * addresses in device memory, and some are told of tensors that were born after their launch; not in `fast`. KINDS are those of trouble.h. TEST_SEED in the environment says so for all runs of it. What every
 * word must be is known from a shadow of each tensor. Ends with 0, or with 1 and the first word that is wrong, or what
 * the driver refused; 2: usage.
 */
#include "shim/spillway.h"
#include "test/preload/torch_random.h"
#include "test/preload/trouble.h"
#include "test/sim/sim.h"

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TENSOR_MOST (5 * MIB)
#define SLAB_PART   (2 * MIB) /* a slab has three, the allocator the second */

static struct {
	uint64_t seed;
	unsigned long operations;
	unsigned threads, deadline, suspend, handle;
	size_t bytes;
} options = {.seed = 1, .operations = 1500, .threads = 2, .bytes = 48 * MIB, .deadline = 100};
static CUcontext context;
const struct fake_torch_functions *torch;
struct fake_torch *torch_cache;

void random_fail(const char *format, ...)
{
	va_list list;

	fprintf(trouble_errors, "torch_random: seed %lu: ", (unsigned long)options.seed);
	va_start(list, format);
	vfprintf(trouble_errors, format, list);
	va_end(list);
	fprintf(trouble_errors, "\n");
	_exit(1);
}

/* ---- suspensions ---- */

static int (*suspend_function)(void), (*resume_function)(void);      /* NULL: they are not wanted */
static int (*discard_function)(const void *address, uint64_t bytes); /* NULL: there is no library */

static void suspend_find(void)
{
	suspend_function = (__typeof__(&spillway_suspend))dlsym(RTLD_DEFAULT, "spillway_suspend");
	resume_function = (__typeof__(&spillway_resume))dlsym(RTLD_DEFAULT, "spillway_resume");
	if (!suspend_function || !resume_function)
		random_fail("it is to suspend itself, and there is no library for that");
}

static void suspend_for_a_while(void)
{
	int status = suspend_function();

	/* A capture may be open, or no safe point may come in time. */
	if (status && status != -EBUSY)
		random_fail("suspend: %d", status);
	usleep(1000);
	status = resume_function();
	if (status)
		random_fail("resume: %d", status);
}

/* ---- tensors at random ---- */

static size_t any_size(struct worker *worker)
{
	static const size_t most[] = {4096, 65536, MIB, 2 * MIB, TENSOR_MOST};

	return 1 + worker_below(worker, (uint32_t)most[worker_below(worker, 5)]);
}

static unsigned any_stream(struct worker *worker)
{
	return worker_below(worker, STREAMS);
}

static struct tensor *any_tensor(struct worker *worker)
{
	return worker->tensor[worker_below(worker, worker->n_tensors)];
}

/* There is room for so many more. */
static bool has_room(const struct worker *worker, size_t bytes)
{
	return worker->n_tensors + 12 <= TENSORS && worker->bytes + bytes <= worker->share;
}

#define FILL 0x5a5a5a5au /* what the allocator has filled new memory with */

static struct tensor *tensor_any_new(struct worker *worker, size_t bytes)
{
	unsigned pool = worker_below(worker, 4) ? 0 : worker->saved;

	if (!options.handle && !worker_below(worker, 4))
		pool = worker->plugged;
	if (worker->slab && !worker_below(worker, 4) && bytes <= SLAB_PART / 2)
		pool = worker->slab_pool;
	struct tensor *tensor = tensor_make(worker, pool, pool == worker->slab_pool ? 0 : any_stream(worker), bytes);
	if (tensor && torch->is_filled(torch_cache, tensor->at) && worker_below(worker, 2))
		for (size_t i = 0; i < tensor->bytes / 4; i++)
			tensor->shadow[i] = FILL;
	else if (tensor)
		(worker_below(worker, 3) ? tensor_fill : tensor_set)(worker, tensor, tensor->home);
	return tensor;
}

static void drop_any(struct worker *worker)
{
	struct tensor *tensor = any_tensor(worker);

	if (!tensor->pins)
		tensor_drop(worker, tensor);
}

/* A tensor dies right after the launch of a kernel that reads it, on a stream that is perhaps not its own. */
static void drop_behind_a_reader(struct worker *worker)
{
	struct tensor *from = any_tensor(worker), *to = any_tensor(worker);

	if (from == to || from->pins)
		return;
	kernel_run_late(worker, to, from, any_stream(worker));
	tensor_drop(worker, from);
}

/*
 * A kernel that runs is told of a tensor that is born in memory that has died, and was perhaps discarded: nothing was
 * submitted since but what tells it. Nothing is allocated or freed by the driver while the kernel waits: the memory is there.
 */
static void tell_running(struct worker *worker)
{
	unsigned stream = any_stream(worker);
	size_t bytes = any_size(worker);
	uint32_t salt;

	if (!has_room(worker, 2 * bytes))
		return;
	struct tensor *old = tensor_make(worker, 0, stream, bytes), *other = tensor_make(worker, 0, stream, 512);
	bytes = old->bytes;
	tensor_fill(worker, old, stream);
	worker_settle(worker);
	if (discard_function && worker_below(worker, 2) &&
	    discard_function((const void *)(uintptr_t)old->at, old->bytes))
		random_fail("discard");
	tensor_drop(worker, old);
	/* The thread goes on and reports: the death counts. */
	tensor_fill(worker, other, stream);
	worker_settle(worker);
	tensor_drop(worker, other);
	salt = op_wait(worker, bytes / 4, stream);
	struct tensor *tensor = tensor_make(worker, 0, stream, bytes);
	op_tell(worker, tensor, stream);
	kernel_apply(tensor->shadow, NULL, bytes / 4, salt, false);
	if (suspend_function && worker_below(worker, 2))
		suspend_for_a_while();
	if (tensor->bytes != bytes)
		tensor_fill(worker, tensor, stream);
	tensor_check(worker, tensor);
}

/* ---- steps ---- */

/* The same again and again: tensors that live for a part of it, of always the same sizes. */
static void repeat_step(struct worker *worker)
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

/* ---- graphs ---- */

static void graph_drop(struct worker *worker, struct graph *graph)
{
	if (!graph->exec)
		return;
	worker_settle(worker);
	tensor_check(worker, graph->sum);
	tensor_check(worker, graph->out);
	GO(cuGraphExecDestroy(graph->exec));
	graph->in->pins--;
	graph->sum->pins = graph->out->pins = 0;
	tensor_drop(worker, graph->sum);
	tensor_drop(worker, graph->out);
	torch->drop_pool(torch_cache, graph->pool);
	*graph = (struct graph){0};
}

/* What a launch does, in one buffer for what is in between. */
static void graph_apply(struct worker *worker, const struct graph *graph)
{
	size_t n = graph->in->bytes / 4;
	uint32_t *words = worker->words;

	kernel_apply(words, graph->in->shadow, n, graph->salt, false);
	kernel_apply(words, words, n, graph->salt + 1, false);
	kernel_apply(words, words, n, graph->salt + 2, false);
	kernel_apply(graph->sum->shadow, words, n, graph->salt + 3, true);
	kernel_apply(graph->out->shadow, words, n, graph->salt + 4, false);
}

/* Captures it. Between input and outputs are three tensors, of which the third, or an output, takes the first one's place. */
static void graph_capture(struct worker *worker, struct graph *graph)
{
	CUstream stream = worker->stream[0];
	size_t bytes = graph->in->bytes, n = bytes / 4;
	struct tensor *between[3];
	CUgraph made;

	torch->use_pool(torch_cache, graph->pool, true);
	worker->is_capturing = true;
	GO(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	between[0] = tensor_make(worker, graph->pool, 0, bytes);
	kernel_submit(between[0], graph->in, n, graph->salt, false, stream);
	between[1] = tensor_make(worker, graph->pool, 0, bytes);
	kernel_submit(between[1], between[0], n, graph->salt + 1, false, stream);
	tensor_drop(worker, between[0]);
	between[2] = tensor_make(worker, graph->pool, 0, bytes);
	kernel_submit(between[2], between[1], n, graph->salt + 2, false, stream);
	kernel_submit(graph->sum, between[2], n, graph->salt + 3, true, stream);
	graph->out = tensor_make(worker, graph->pool, 0, bytes);
	kernel_submit(graph->out, between[2], n, graph->salt + 4, false, stream);
	tensor_drop(worker, between[1]);
	tensor_drop(worker, between[2]);
	GO(cuStreamEndCapture(stream, &made));
	worker->is_capturing = false;
	torch->use_pool(torch_cache, 0, false);
	GO(cuGraphInstantiateWithFlags(&graph->exec, made, 0));
	GO(cuGraphDestroy(made));
}

static void graph_make(struct worker *worker, struct graph *graph)
{
	graph_drop(worker, graph);
	struct tensor *in = any_tensor(worker);
	if (in->pins || !has_room(worker, 5 * in->bytes) || in->pool == worker->slab_pool)
		return;
	worker_settle(worker);
	graph->pool = torch->new_pool(torch_cache, 0, 0);
	graph->salt = worker_below(worker, 1u << 30);
	graph->in = in;
	graph->sum = tensor_make(worker, graph->pool, 0, in->bytes);
	tensor_fill(worker, graph->sum, 0);
	worker_settle(worker);
	graph_capture(worker, graph);
	in->pins++;
	graph->sum->pins = graph->out->pins = 1;
	tensor_fill(worker, graph->out, 0);
}

static void graph_play(struct worker *worker)
{
	struct graph *graph = &worker->graph[worker_below(worker, GRAPHS)];

	if (!graph->exec || !worker_below(worker, 8))
		graph_make(worker, graph);
	for (unsigned times = graph->exec ? 1 + worker_below(worker, 3) : 0; times; times--) {
		unsigned stream = any_stream(worker);

		tensor_order(worker, graph->in, stream);
		tensor_order(worker, graph->sum, stream);
		tensor_order(worker, graph->out, stream);
		graph_launch(worker, graph->exec, stream);
		graph_apply(worker, graph);
	}
}

/* ---- pools ---- */

static void restore(struct worker *worker)
{
	op_hold();
	torch->checkpoint(torch_cache, worker->saved,
			  suspend_function && worker_below(worker, 2) ? suspend_for_a_while : NULL);
	op_release();
}

static void slab_drop(struct worker *worker)
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

/* Its outer parts are memory like any other, of which nobody reports anything. */
static void slab_change(struct worker *worker)
{
	if (worker->slab) {
		slab_drop(worker);
		return;
	}
	if (options.handle || !has_room(worker, 3 * SLAB_PART))
		return;
	GO(cuMemAlloc_v2(&worker->slab, 3 * SLAB_PART));
	worker->slab_pool = torch->new_pool(torch_cache, worker->slab + SLAB_PART, SLAB_PART);
	tensor_fill(worker, tensor_add(worker, worker->slab, SLAB_PART), 0);
	tensor_fill(worker, tensor_add(worker, worker->slab + 2 * SLAB_PART, SLAB_PART), 0);
}

/* ---- an allocator that the cache was given ---- */

static void plug_pool(struct worker *worker)
{
	worker->plugged = torch->new_pool(torch_cache, 0, 0);
	worker->n_plugged++;
	torch->plug_pool(torch_cache, worker->plugged, (struct fake_plug){plug_allocate, plug_release});
}

/* The cache gives back what it does not use; somebody else has it now, and reports nothing. */
static void plug_change(struct worker *worker)
{
	size_t bytes = 0;

	if (options.handle || worker->n_plugged == 12 || !has_room(worker, 9 * MIB))
		return;
	torch->drop_pool(torch_cache, worker->plugged);
	torch->empty_cache(torch_cache);
	plug_pool(worker);
	CUdeviceptr at = plug_take(0, &bytes);
	if (at && bytes <= TENSOR_MOST + MIB)
		tensor_fill(worker, tensor_add(worker, at, bytes), 0);
	else if (at)
		plug_release(at);
}

/* ---- the whole ---- */

static void at_random(struct worker *worker)
{
	struct tensor *to = any_tensor(worker), *from = any_tensor(worker);
	size_t bytes = any_size(worker);

	if (op_has_tables && !worker_below(worker, 12))
		tell_running(worker);
	switch (worker_below(worker, 24)) {
	case 0:
		repeat_step(worker);
		break;
	case 1:
		graph_play(worker);
		break;
	case 2:
		restore(worker);
		break;
	case 3:
		if (!worker_below(worker, 4))
			slab_change(worker);
		else if (!worker_below(worker, 4))
			torch->empty_cache(torch_cache);
		else if (!worker_below(worker, 2))
			plug_change(worker);
		else if (!worker_below(worker, 4))
			torch->fill(torch_cache, worker_below(worker, 2) ? FILL : 0);
		break;
	case 4:
	case 5:
		drop_behind_a_reader(worker);
		break;
	case 6:
		tensor_check(worker, to);
		break;
	case 7:
	case 8:
		drop_any(worker);
		break;
	case 9:
	case 10:
	case 11:
	case 12:
		if (to != from)
			part_run(worker, to, from, any_stream(worker));
		break;
	case 13:
	case 14:
	case 15:
		kernel_run(worker, to, NULL, true, any_stream(worker));
		break;
	case 16:
	case 17:
	case 18:
	case 19:
		if (to != from)
			kernel_run(worker, to, from, true, any_stream(worker));
		break;
	default:
		while (!has_room(worker, bytes))
			drop_any(worker);
		tensor_any_new(worker, bytes);
		break;
	}
	while (worker->n_tensors < 8)
		tensor_any_new(worker, any_size(worker));
}

static void *work(void *argument)
{
	struct worker *worker = argument;

	GO(cuCtxSetCurrent(context));
	for (unsigned i = 0; i < STREAMS; i++)
		GO(cuStreamCreate(&worker->stream[i], CU_STREAM_NON_BLOCKING));
	GO(cuEventCreate(&worker->event, CU_EVENT_DISABLE_TIMING));
	worker->words = malloc(TENSOR_MOST + FAKE_TORCH_UNIT + 4 * MIB);
	worker->saved = torch->new_pool(torch_cache, 0, 0);
	worker->slab_pool = UINT32_MAX;
	plug_pool(worker);
	if (op_has_tables)
		GO(cuMemAlloc_v2(&worker->tables, 512 * STREAMS));
	while (worker->bytes < worker->share * 3 / 4 && worker->n_tensors < TENSORS / 2)
		tensor_any_new(worker, any_size(worker));
	for (unsigned long i = 0; i < options.operations / options.threads; i++) {
		at_random(worker);
		if (suspend_function && !worker_below(worker, options.suspend))
			suspend_for_a_while();
		if (i % 200 == 199)
			for (unsigned j = 0; j < worker->n_tensors; j++)
				tensor_check(worker, worker->tensor[j]);
	}
	for (unsigned i = 0; i < worker->n_tensors; i++)
		tensor_check(worker, worker->tensor[i]);
	for (unsigned i = 0; i < GRAPHS; i++)
		graph_drop(worker, &worker->graph[i]);
	if (worker->slab)
		slab_drop(worker);
	while (worker->n_tensors)
		tensor_drop(worker, worker->tensor[0]);
	worker_settle(worker);
	free(worker->words);
	return NULL;
}

static bool parse(int argc, char **argv)
{
	static const struct option known[] = {
	    {"seed", required_argument, NULL, 's'},     {"operations", required_argument, NULL, 'o'},
	    {"threads", required_argument, NULL, 't'},  {"bytes", required_argument, NULL, 'b'},
	    {"deadline", required_argument, NULL, 'd'}, {"trouble", required_argument, NULL, 'w'},
	    {"suspend", required_argument, NULL, 'u'},  {"expandable", required_argument, NULL, 'e'},
	    {"hidden", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};

	for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
		unsigned long value = optarg ? strtoul(optarg, NULL, 0) : 0;

		switch (option) {
		case 's':
			options.seed = value;
			break;
		case 'o':
			options.operations = value;
			break;
		case 't':
			options.threads = (unsigned)value;
			break;
		case 'b':
			options.bytes = value * MIB;
			break;
		case 'd':
			options.deadline = (unsigned)value;
			break;
		case 'u':
			options.suspend = (unsigned)value;
			break;
		case 'e':
			options.handle = (unsigned)value;
			break;
		case 'h':
			op_has_tables = true;
			break;
		case 'w':
			if (!trouble_read(optarg))
				return false;
			break;
		default:
			return false;
		}
	}
	if (getenv("TEST_SEED"))
		options.seed = strtoul(getenv("TEST_SEED"), NULL, 0);
	return optind == argc && options.threads >= 1 && options.threads <= THREADS_MAX &&
	       options.bytes / options.threads >= 16 * MIB;
}

int main(int argc, char **argv)
{
	static struct worker workers[THREADS_MAX];
	const char *wrong;

	if (!parse(argc, argv)) {
		fprintf(stderr, "usage: see the head of torch_random.c\n");
		return 2;
	}
	if (options.suspend)
		suspend_find();
	discard_function = (__typeof__(&spillway_discard))dlsym(RTLD_DEFAULT, "spillway_discard");
	trouble_begin(options.seed);
	alarm(options.deadline);
	printf("torch_random: seed %lu, %lu operations\n", (unsigned long)options.seed, options.operations);
	fflush(stdout);
	GO(cuInit(0));
	GO(cuDevicePrimaryCtxRetain(&context, 0));
	GO(cuCtxSetCurrent(context));
	op_prepare();
	torch = fake_torch_open();
	torch_cache = torch->open(0);
	torch->expand(torch_cache, options.handle * MIB);
	op_has_ends = options.handle != 0;
	for (unsigned i = 0; i < options.threads; i++) {
		workers[i].id = i;
		workers[i].random = options.seed * 0x9e3779b97f4a7c15u + i * 0x632be59bd9b4e019u;
		workers[i].share = options.bytes / options.threads;
		if (trouble_thread(&workers[i].thread, work, &workers[i]))
			random_fail("no thread");
	}
	for (unsigned i = 0; i < options.threads; i++)
		pthread_join(workers[i].thread, NULL);
	wrong = trouble_end();
	if (wrong)
		random_fail("%s", wrong);
	if (sim_broken_rules())
		random_fail("the model has seen %lu rules broken", sim_broken_rules());
	return 0;
}
