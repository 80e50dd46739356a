// SPDX-License-Identifier: Apache-2.0
/*
 * peer_random: a program made up from a seed that uses several GPUs as programs do, and knows what every byte must be:
 *
 *   peer_random [made_up.h] [--no-hidden]
 *
 * Blocks live on all devices, more of them than the budgets hold, in pools, and pinned on the host. Kernels, copies and
 * graphs are run by any device that may reach what they touch, in streams of all kinds; peer access and contexts come
 * and go; where the library is there, the program suspends and resumes itself. See peers.h. --bytes is of all threads,
 * on each device. The last line on stdout counts the submissions.
 */
#include "shim/spillway.h"
#include "test/preload/peers.h"
#include "test/preload/trouble.h"

struct made_up made_up = {"peer_random", .seed = 1,         .operations = 1500,
			  .threads = 2,  .bytes = 20 * MIB, .deadline = 100};
struct world world;
struct worker workers[THREADS];

/*
 * The thread that suspends submits nothing until it has resumed; others wait in their submissions. It holds no lock
 * that they need meanwhile. Refusals are told in spillway.h; the driver fails where it has been told to.
 */
static void suspend(void)
{
	if (!spillway_suspend)
		return;
	int result = spillway_suspend();
	if (result == 0) {
		usleep(500);
		result = spillway_resume();
	}
	if (result && result != -EBUSY && result != -ENOMEM && result != -ENOTSUP &&
	    !(result == -EIO && getenv("SIM_FAIL_THREAD")))
		made_up_fail("suspending, or resuming: %d", result);
}

static void ask(struct worker *worker)
{
	unsigned lane = lane_any(worker);
	size_t left, total;

	lane_be(worker, lane);
	CUresult result = cuStreamQuery(worker->lane[lane].stream);
	if (result != CUDA_ERROR_NOT_READY)
		GO(result);
	GO(cuMemGetInfo_v2(&left, &total));
	if (left > total)
		made_up_fail("%zu bytes are free of %zu", left, total);
}

static void free_any(struct worker *worker)
{
	unsigned index = peers_below(worker, worker->n_blocks);

	if (worker->n_blocks > 6 && !worker->block[index]->pins)
		block_free(worker, index);
}

static void run_any(struct worker *worker)
{
	struct op op;

	if (op_make(worker, &op, OP_ANY))
		op_run(worker, &op);
}

/* Under the lock for reading. */
static void operate(struct worker *worker)
{
	unsigned what = peers_below(worker, 1000);

	if (worker->n_blocks < 4)
		block_make(worker);
	else if (what < 780)
		run_any(worker);
	else if (what < 785)
		beside_pool(worker);
	else if (what < 840)
		block_make(worker);
	else if (what < 880)
		free_any(worker);
	else if (what < 900)
		graph_make(worker);
	else if (what < 985)
		graph_play(worker);
	else if (what < 992)
		ask(worker);
	else if (what < 996)
		lane_renew(worker, lane_any(worker));
	else
		block_check(worker, worker->block[peers_below(worker, worker->n_blocks)]);
}

static void *work(void *argument)
{
	struct worker *worker = argument;

	for (unsigned i = 0; i < made_up.operations; i++) {
		unsigned what = peers_below(worker, 1000);

		trouble_step();
		if (what < 12) {
			reach_change(worker);
		} else if (what < 18) {
			guest_change(worker);
		} else if (what < 22) {
			beside_capture(worker);
		} else if (what < 28) {
			beside_full_pool(worker);
		} else if (what == 28) {
			suspend();
		} else {
			pthread_rwlock_rdlock(&world.lock);
			operate(worker);
			pthread_rwlock_unlock(&world.lock);
		}
	}
	pthread_rwlock_wrlock(&world.lock);
	while (worker->n_graphs)
		graph_drop(worker, worker->n_graphs - 1);
	guest_end(worker);
	while (worker->n_blocks) {
		block_check(worker, worker->block[worker->n_blocks - 1]);
		block_free(worker, worker->n_blocks - 1);
	}
	pthread_rwlock_unlock(&world.lock);
	return NULL;
}

static void *open_worker(void *argument)
{
	struct worker *worker = argument;

	worker->id = (unsigned)(worker - workers);
	worker->random = made_up.seed * 7919 + worker->id;
	/* Another thread may capture already. */
	pthread_rwlock_rdlock(&world.lock);
	lanes_open(worker);
	block_open_tables(worker);
	GO(cuMemHostAlloc((void **)&worker->pinned, 4 * HOST_WORDS, CU_MEMHOSTALLOC_PORTABLE));
	pthread_rwlock_unlock(&world.lock);
	worker->pageable = malloc(4 * HOST_WORDS);
	return work(worker);
}

int main(int argc, char **argv)
{
	bool no_hidden = false;
	const struct made_up_option own[] = {{"no-hidden", .flag = &no_hidden}, {NULL}};
	unsigned long done = 0;

	made_up_begin(argc, argv, own, THREADS, 0);
	world.hidden = !no_hidden;
	printf("peer_random: seed %lu\n", (unsigned long)made_up.seed);
	fflush(stdout);
	reach_open();
	made_up_start(open_worker, workers, sizeof(workers[0]));
	made_up_join();
	for (unsigned i = 0; i < made_up.threads; i++)
		done += workers[i].done;
	made_up_check();
	printf("peer_random: seed %lu, %lu submissions\n", (unsigned long)made_up.seed, done);
	return 0;
}
