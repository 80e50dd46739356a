/*
 * peer_random: a program made up from a seed that uses several GPUs as programs do, and knows what every byte must be:
 *
 *   peer_random [--seed N] [--operations N] [--threads N] [--bytes MIB] [--no-hidden] [--deadline SECONDS]
 *               [--trouble KINDS]
 *
 * Blocks live on all devices, more of them than the budgets hold, in pools, and pinned on the host. Kernels, copies and
 * graphs are run by any device that may reach what they touch, in streams of all kinds; peer access and contexts come
 * and go; where the library is there, the program suspends and resumes itself. See peers.h. KINDS are those of trouble.h,
 * which befall the process beside its work.
 *
 * Exit status: 0 all bytes are right; 1 the first wrong one, or an error, is told on stderr, with the seed; 2 bad
 * arguments; 3 a context died of an illegal address; 142 (SIGALRM) not done by the deadline. The last line on stdout
 * counts the submissions.
 */
#include "test/preload/peers.h"
#include "test/preload/trouble.h"

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct world world = {.seed = 1, .threads = 2, .bytes = 20 * MIB, .hidden = true};
struct worker workers[THREADS];
static unsigned operations = 1500, deadline = 100;
static pthread_mutex_t ending = PTHREAD_MUTEX_INITIALIZER; /* for good: by the one thread that ends the process */

static int (*suspend_us)(void), (*resume_us)(void);

void peers_fail(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	fprintf(trouble_errors, "peer_random: seed %lu: ", (unsigned long)world.seed);
	vfprintf(trouble_errors, format, list);
	fprintf(trouble_errors, "\n");
	va_end(list);
	_exit(1);
}

void peers_must(CUresult result, const char *call, const char *file, int line)
{
	if (result == CUDA_SUCCESS)
		return;
	if (result != CUDA_ERROR_ILLEGAL_ADDRESS)
		peers_fail("%s:%d: %s: CUDA error %d", file, line, call, result);
	fprintf(trouble_errors, "peer_random: seed %lu: %s:%d: %s: illegal address\n", (unsigned long)world.seed, file,
		line, call);
	fflush(NULL);
	/* What the library has to say of it may come at the end; a second thread in exit() would cut it short. */
	pthread_mutex_lock(&ending);
	exit(3);
}

/*
 * The thread that suspends submits nothing until it has resumed; others wait in their submissions. It holds no lock that
 * they need meanwhile. Refusals are told in spillway.h; the driver fails where it has been told to.
 */
static void suspend(void)
{
	int result;

	if (!suspend_us || !resume_us)
		return;
	result = suspend_us();
	if (result == 0) {
		usleep(500);
		result = resume_us();
	}
	if (result && result != -EBUSY && result != -ENOMEM && result != -ENOTSUP &&
	    !(result == -EIO && getenv("SIM_FAIL_THREAD")))
		peers_fail("suspending, or resuming: %d", result);
}

static void ask(struct worker *worker)
{
	unsigned lane = lane_any(worker);
	size_t left, total;
	CUresult result;

	lane_be(worker, lane);
	result = cuStreamQuery(worker->lane[lane].stream);
	if (result != CUDA_ERROR_NOT_READY)
		GO(result);
	GO(cuMemGetInfo_v2(&left, &total));
	if (left > total)
		peers_fail("%zu bytes are free of %zu", left, total);
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

	for (unsigned i = 0; i < operations; i++) {
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
	worker->random = world.seed * 7919 + worker->id;
	/* Another thread may capture already. */
	pthread_rwlock_rdlock(&world.lock);
	lanes_open(worker);
	block_open_tables(worker);
	GO(cuMemHostAlloc((void **)&worker->pinned, 4 * HOST_WORDS, CU_MEMHOSTALLOC_PORTABLE));
	pthread_rwlock_unlock(&world.lock);
	worker->pageable = malloc(4 * HOST_WORDS);
	return work(worker);
}

static void read_options(int argc, char **argv)
{
	static const struct option names[] = {{"seed", 1, NULL, 's'},     {"operations", 1, NULL, 'n'},
					      {"threads", 1, NULL, 't'},  {"bytes", 1, NULL, 'b'},
					      {"deadline", 1, NULL, 'd'}, {"no-hidden", 0, NULL, 'h'},
					      {"trouble", 1, NULL, 'w'},  {NULL, 0, NULL, 0}};
	int option;

	while ((option = getopt_long(argc, argv, "", names, NULL)) != -1)
		switch (option) {
		case 's':
			world.seed = strtoull(optarg, NULL, 0);
			break;
		case 'n':
			operations = (unsigned)atoi(optarg);
			break;
		case 't':
			world.threads = (unsigned)atoi(optarg);
			break;
		case 'b':
			world.bytes = (size_t)atoi(optarg) * MIB;
			break;
		case 'd':
			deadline = (unsigned)atoi(optarg);
			break;
		case 'h':
			world.hidden = false;
			break;
		case 'w':
			if (!trouble_read(optarg))
				exit(2);
			break;
		default:
			exit(2);
		}
	if (!world.threads || world.threads > THREADS)
		exit(2);
}

int main(int argc, char **argv)
{
	unsigned long done = 0;
	const char *wrong;

	read_options(argc, argv);
	printf("peer_random: seed %lu\n", (unsigned long)world.seed);
	fflush(stdout);
	trouble_begin(world.seed);
	alarm(deadline);
	suspend_us = (int (*)(void))dlsym(RTLD_DEFAULT, "spillway_suspend");
	resume_us = (int (*)(void))dlsym(RTLD_DEFAULT, "spillway_resume");
	reach_open();
	for (unsigned i = 0; i < world.threads; i++)
		if (trouble_thread(&workers[i].thread, open_worker, &workers[i]))
			peers_fail("no thread");
	for (unsigned i = 0; i < world.threads; i++) {
		pthread_join(workers[i].thread, NULL);
		done += workers[i].done;
	}
	wrong = trouble_end();
	if (wrong)
		peers_fail("%s", wrong);
	if (sim_broken_rules())
		peers_fail("%lu rules of the model were broken", sim_broken_rules());
	printf("peer_random: seed %lu, %lu submissions\n", (unsigned long)world.seed, done);
	return 0;
}
