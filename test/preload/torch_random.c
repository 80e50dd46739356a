// SPDX-License-Identifier: Apache-2.0
/*
 * torch_random.c: a program that is made up from a seed and keeps its memory in a caching allocator that reports births
 * and deaths (fake_torch.h). Tensors come and go, on several streams, are copied to each other, and die while kernels
 * still read them; steps repeat themselves with tensors that live for a part of them; graphs have pools of their own;
 * states of a pool are restored; a pool has a part of a slab; cached memory is given back; and of some blocks the
 * program itself says what is alive.
 *
 *   torch_random [made_up.h] [--suspend N] [--expandable MIB] [--hidden]
 *
 * --suspend: under the library, it suspends and resumes itself about once in N operations, also while a state of a pool
 * is half restored; tensors come and go meanwhile. --expandable: segments are expandable, with handles of so many MiB;
 * no pool has a slab then, because memory that the allocator gives to somebody else makes the library doubt all that it
 * reports. --hidden: kernels find addresses in device memory, and some are told of tensors that were born after their
 * launch; not in `fast`. What every word must be is known from a shadow of each tensor.
 */
#include "test/preload/torch_random.h"
#include "test/sim/sim.h"

struct made_up made_up = {"torch_random", .seed = 1,         .operations = 1500,
			  .threads = 2,   .bytes = 48 * MIB, .deadline = 100};
unsigned handle_mib;
static unsigned once_in; /* so many operations it suspends itself; 0: never */
CUcontext context;
const struct fake_torch_functions *torch;
struct fake_torch *torch_cache;

/* ---- suspensions ---- */

bool suspends;

/* What spillway.h says that may be; the driver fails where it has been told to. */
static bool is_told(int status)
{
	return status == -EBUSY || status == -ENOMEM || status == -ENOTSUP ||
	       (status == -EIO && getenv("SIM_FAIL_THREAD"));
}

/* Without memory the process stays suspended, and the call is to be repeated (spillway.h). */
static void resume(void)
{
	int status;

	while ((status = spillway_resume()) == -ENOMEM)
		usleep(1000);
	if (status && !is_told(status))
		made_up_fail("resume: %d", status);
}

static bool suspend(void)
{
	int status = spillway_suspend();

	if (status && !is_told(status))
		made_up_fail("suspend: %d", status);
	return !status;
}

void suspend_for_a_while(void)
{
	if (!suspend())
		return;
	usleep(1000);
	resume();
}

static void *resume_soon(void *unused)
{
	usleep(2000);
	resume();
	return NULL;
}

bool suspend_begin(pthread_t *thread)
{
	if (!suspend())
		return false;
	if (pthread_create(thread, NULL, resume_soon, NULL))
		made_up_fail("no thread");
	return true;
}

/* ---- the whole ---- */

static void change_pools(struct worker *worker)
{
	if (!worker_below(worker, 4))
		slab_change(worker);
	else if (!worker_below(worker, 4))
		cache_empty();
	else if (!worker_below(worker, 2))
		plug_change(worker);
	else if (!worker_below(worker, 4))
		torch->fill(torch_cache, worker_below(worker, 2) ? FILL : 0);
}

static void check_any(struct worker *worker)
{
	tensor_check(worker, any_tensor(worker));
}

static void change_a_part(struct worker *worker)
{
	struct tensor *to = any_tensor(worker), *from = any_tensor(worker);

	if (to != from)
		part_run(worker, to, from, any_stream(worker));
}

static void change_any(struct worker *worker)
{
	kernel_run(worker, any_tensor(worker), NULL, true, any_stream(worker));
}

static void add_any(struct worker *worker)
{
	struct tensor *to = any_tensor(worker), *from = any_tensor(worker);

	if (to != from)
		kernel_run(worker, to, from, true, any_stream(worker));
}

static void make_any(struct worker *worker)
{
	size_t bytes = any_size(worker);

	if (make_room(worker, bytes))
		tensor_any_new(worker, bytes);
}

/* How often: of the sum of all. */
static const struct {
	unsigned share;
	void (*run)(struct worker *worker);
} actions[] = {
    {4, repeat_step},          {4, graph_play}, {4, restore},   {4, change_pools},
    {8, drop_behind_a_reader}, {4, check_any},  {8, drop_any},  {16, change_a_part},
    {12, change_any},          {16, add_any},   {16, make_any}, {1, be_born_beside_captures},
    {1, speak_of_a_block},     {1, go_on_away},
};
#define N_ACTIONS (sizeof(actions) / sizeof(actions[0]))

static void at_random(struct worker *worker)
{
	unsigned sum = 0, i = 0;

	if (op_has_tables && !worker_below(worker, 12))
		tell_running(worker);
	for (i = 0; i < N_ACTIONS; i++)
		sum += actions[i].share;
	sum = worker_below(worker, sum);
	for (i = 0; sum >= actions[i].share; i++)
		sum -= actions[i].share;
	actions[i].run(worker);
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
		GO(cuMemAlloc_v2(&worker->tables, 512 * (STREAMS + 1)));
	while (worker->bytes < worker->share * 3 / 4 && worker->n_tensors < TENSORS / 2)
		tensor_any_new(worker, any_size(worker));
	for (unsigned long i = 0; i < made_up.operations / made_up.threads; i++) {
		at_random(worker);
		if (suspends && !worker_below(worker, once_in))
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

int main(int argc, char **argv)
{
	static struct worker workers[THREADS_MAX];
	static const struct made_up_option own[] = {{"suspend", .number = &once_in},
						    {"expandable", .number = &handle_mib},
						    {"hidden", .flag = &op_has_tables},
						    {NULL}};

	made_up_begin(argc, argv, own, THREADS_MAX, 16 * MIB);
	suspends = once_in && spillway_suspend;
	printf("torch_random: seed %lu, %lu operations\n", (unsigned long)made_up.seed, made_up.operations);
	fflush(stdout);
	GO(cuInit(0));
	GO(cuDevicePrimaryCtxRetain(&context, 0));
	GO(cuCtxSetCurrent(context));
	op_prepare();
	torch = fake_torch_open();
	torch_cache = torch->open(0);
	torch->expand(torch_cache, handle_mib * MIB);
	op_has_ends = handle_mib != 0;
	for (unsigned i = 0; i < made_up.threads; i++) {
		workers[i].id = i;
		workers[i].random = made_up_chance(i);
		workers[i].share = made_up.bytes / made_up.threads;
	}
	made_up_start(work, workers, sizeof(workers[0]));
	made_up_join();
	made_up_check();
	return 0;
}
