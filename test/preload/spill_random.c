// SPDX-License-Identifier: Apache-2.0
/*
 * spill_random: a program made up from a seed that uses far more memory than the device budget, checks every byte and
 * prints what must be the same with and without Spillway (random.h).
 *
 *   spill_random [made_up.h] [--no-hidden] [--in-order 0|1] [--textures] [--leave]
 *
 * --textures: random_texture.c plays, too.
 *
 * A run has phases, each followed by a checkpoint where all threads meet and all bytes are compared. In every other
 * phase each thread repeats a step of operations, as training does, with a small difference now and then.
 */
#include "test/preload/random.h"

#include <semaphore.h>

enum { PHASES = 6 };

CUcontext random_context;
struct block *random_shared[4];
unsigned random_n_shared;
int random_has_values;
pthread_rwlock_t random_captures = PTHREAD_RWLOCK_INITIALIZER;

struct made_up made_up = {"spill_random", .seed = 1,          .operations = 20000,
			  .threads = 2,   .bytes = 144 * MIB, .deadline = 100};
static struct options options;
static struct worker workers[THREADS_MAX];
static pthread_barrier_t meeting;
static sem_t last_phase; /* has begun */

/* What one thread gives the next in each phase. */
static struct mailbox {
	pthread_mutex_t lock;
	pthread_cond_t filled;
	struct block *block;
	CUevent event;
	bool full;
} mailboxes[THREADS_MAX];

/* ---- actions of one thread ---- */

static size_t any_size(struct worker *worker)
{
	uint32_t kind = random_below(worker, 10);
	size_t least = kind < 5 ? KIB : kind < 8 ? 64 * KIB : 2 * MIB;
	size_t most = kind < 5 ? 64 * KIB : kind < 8 ? 2 * MIB : 24 * MIB;

	return least + random_below(worker, (uint32_t)(most - least));
}

static void allocate_to_share(struct worker *worker)
{
	while (worker->bytes < worker->share) {
		size_t bytes = any_size(worker), left = worker->share - worker->bytes;

		if (worker->n_blocks > BLOCKS_MAX - 16)
			bytes = 24 * MIB;
		if (!block_make(worker, bytes < left ? bytes : left > KIB ? left : KIB))
			break;
	}
}

/* The place of a block that nothing names, or 0. */
static unsigned any_loose(struct worker *worker)
{
	for (int tries = 0; tries < 20; tries++) {
		unsigned i = 1 + random_below(worker, worker->n_blocks - 1);

		if (!worker->block[i]->pins)
			return i;
	}
	return 0;
}

static void free_and_allocate(struct worker *worker)
{
	unsigned index = any_loose(worker);

	/* Some data blocks must be left to work on. */
	if (index && !worker->block[index]->addresses && worker->n_blocks <= 6)
		index = 0;
	if (index && random_one_in(worker, 2)) { /* what nobody reads any more is not checked at the end */
		block_use(worker, SLOT_LEGACY, worker->block[index], false, "the check before the free");
		block_check(worker, worker->block[index]);
		worker->slot[SLOT_LEGACY].n++;
		op_submitted(worker);
	}
	if (index)
		block_free(worker, index);
	allocate_to_share(worker);
}

static void synchronize(struct worker *worker)
{
	pthread_rwlock_wrlock(&random_captures);
	GO(cuCtxSynchronize());
	pthread_rwlock_unlock(&random_captures);
}

static void change_hidden(struct worker *worker)
{
	/* What was copied before anything was spilled is not known as addresses. */
	if (!worker->options->hidden && !worker->phase)
		return;
	if (worker->n_hidden && random_one_in(worker, 2))
		hidden_drop(worker, random_below(worker, worker->n_hidden));
	else
		hidden_make(worker);
}

static void ask(struct worker *worker)
{
	struct slot *slot = &worker->slot[random_below(worker, SLOTS)];
	CUresult result = random_one_in(worker, 2) ? cuStreamQuery(slot->handle) : cuEventQuery(slot->event);
	size_t left, total;

	if (result != CUDA_ERROR_NOT_READY)
		GO(result);
	GO(cuMemGetInfo_v2(&left, &total));
}

/* ---- a block for the next thread ---- */

static void give(struct worker *worker)
{
	struct mailbox *box = &mailboxes[(worker->id + 1) % made_up.threads];
	unsigned index = any_loose(worker), slot = random_below(worker, SLOTS);
	struct block *block = index ? worker->block[index] : NULL;

	if (block && (block->addresses || block->elsewhere || (block->pooled && !worker->options->in_order) ||
		      worker->n_blocks < 6))
		block = NULL;
	if (block) {
		block_use(worker, slot, block, true, "the giver");
		worker->slot[slot].n++;
		GO(cuEventCreate(&box->event, CU_EVENT_DISABLE_TIMING));
		GO(cuEventRecord(box->event, worker->slot[slot].handle));
		block_take_off(worker, index);
	}
	pthread_mutex_lock(&box->lock);
	box->block = block;
	box->full = true;
	pthread_cond_signal(&box->filled);
	pthread_mutex_unlock(&box->lock);
}

static void take(struct worker *worker)
{
	struct mailbox *box = &mailboxes[worker->id];
	unsigned slot = random_below(worker, SLOTS);

	pthread_mutex_lock(&box->lock);
	while (!box->full)
		pthread_cond_wait(&box->filled, &box->lock);
	struct block *block = box->block;
	box->full = false;
	pthread_mutex_unlock(&box->lock);
	if (!block)
		return;
	GO(cuStreamWaitEvent(worker->slot[slot].handle, box->event, 0));
	GO(cuEventDestroy_v2(box->event));
	memset(block->read, 0, sizeof(block->read));
	block->wrote_slot = slot;
	block->wrote = ++worker->slot[slot].n;
	block->owner = worker->id;
	block->number = worker->n_made++;
	/* Without a place for it the block goes; the giver's work on it is waited for. */
	if (worker->n_blocks == BLOCKS_MAX) {
		GO(cuMemFree_v2(block->at));
		free(block->shadow);
		free(block);
		return;
	}
	worker->block[worker->n_blocks++] = block;
	worker->bytes += block->bytes;
}

/* ---- phases ---- */

struct phase {
	unsigned long half, late, end; /* in submissions of the thread */
	bool gave, took;
};

static void pass_on(struct worker *worker, struct phase *phase)
{
	if (made_up.threads == 1)
		return;
	if (!phase->gave && worker->submitted >= phase->half) {
		phase->gave = true;
		give(worker);
	}
	if (!phase->took && worker->submitted >= phase->late) {
		phase->took = true;
		take(worker);
	}
}

static void anything(struct worker *worker)
{
	uint32_t which = random_below(worker, 2000);
	struct op op;

	if (options.textures && random_one_in(worker, 20)) {
		texture_play(worker);
		return;
	}
	if (which < 6)
		free_and_allocate(worker);
	else if (which < 10)
		slot_renew(worker, SLOT_BLOCKING + random_below(worker, SLOTS - SLOT_BLOCKING));
	else if (which < 14)
		synchronize(worker);
	else if (which < 30)
		slot_wait(worker, random_below(worker, SLOTS));
	else if (which < 34)
		change_hidden(worker);
	else if (which < 50)
		graph_play(worker);
	else if (which < 70)
		ask(worker);
	else if (which < 74)
		crowd_play(worker);
	else if (which < 84)
		context_play(worker);
	else {
		op_make(worker, &op, false);
		op_run(worker, &op);
	}
}

static void aperiodic(struct worker *worker, struct phase *phase)
{
	while (worker->submitted < phase->end) {
		anything(worker);
		pass_on(worker, phase);
	}
}

static unsigned make_step(struct worker *worker, struct op *op)
{
	struct block *before = random_n_shared ? random_shared[random_below(worker, random_n_shared)] : NULL;
	unsigned n = 0, more = 10 + random_below(worker, 60);

	for (unsigned i = 1; i < worker->n_blocks; i++) {
		if (worker->block[i]->addresses)
			continue;
		op_make_stride(worker, &op[n++], worker->block[i], before);
		before = worker->block[i];
	}
	for (; more && n < OPS_MAX; more--) {
		op_make(worker, &op[n], false);
		if (random_one_in(worker, 3)) { /* in between, too */
			struct op other = op[n];
			unsigned at = random_below(worker, n + 1);

			op[n] = op[at];
			op[at] = other;
		}
		n++;
	}
	for (unsigned i = 0; i < n; i++)
		op_pin(&op[i], 1);
	return n;
}

static void periodic(struct worker *worker, struct phase *phase)
{
	struct op *op = calloc(OPS_MAX, sizeof(*op)), other;
	unsigned n = make_step(worker, op);

	while (worker->submitted < phase->end) {
		for (unsigned i = 0; i < n && worker->submitted < phase->end; i++) {
			op_run(worker, &op[i]);
			if (random_one_in(worker, 600)) {
				op_make(worker, &other, false);
				op_run(worker, &other);
			}
			if (random_one_in(worker, 3000))
				graph_play(worker);
			if (options.textures && random_one_in(worker, 20))
				texture_play(worker);
		}
		if (random_one_in(worker, 4))
			slot_wait(worker, random_below(worker, SLOTS));
		else if (random_one_in(worker, 6))
			synchronize(worker);
		pass_on(worker, phase);
	}
	for (unsigned i = 0; i < n; i++)
		op_pin(&op[i], -1);
	free(op);
}

/* All threads meet, nothing is submitted, everything is done. */
static void check_all(struct worker *worker)
{
	for (unsigned i = 0; i < RINGS; i++)
		ring_settle(worker, &worker->ring[i]);
	pthread_barrier_wait(&meeting);
	GO(cuCtxSynchronize());
	pthread_barrier_wait(&meeting);
	for (unsigned i = 0; i < worker->n_blocks; i++)
		block_check(worker, worker->block[i]);
	if (worker->id == 0)
		for (unsigned i = 0; i < random_n_shared; i++)
			block_check(worker, random_shared[i]);
	pthread_barrier_wait(&meeting);
}

static void open_worker(struct worker *worker)
{
	GO(cuCtxSetCurrent(random_context));
	for (unsigned i = 0; i < SLOTS; i++)
		slot_open(worker, i);
	GO(cuEventCreate(&worker->fork, CU_EVENT_DISABLE_TIMING));
	GO(cuEventCreate(&worker->join, CU_EVENT_DISABLE_TIMING));
	GO(cuMemHostAlloc((void **)&worker->host_words, 4096, CU_MEMHOSTALLOC_PORTABLE));
	memset(worker->host_words, 0, 4096);
	for (unsigned i = 0; i < RINGS; i++) {
		GO(cuMemHostAlloc(&worker->ring[i].memory, RING_BYTES, CU_MEMHOSTALLOC_PORTABLE));
		worker->ring[i].expected = malloc(RING_BYTES);
	}
	worker->scratch = malloc(MIB);
	/* Block 0: the words that streams write and wait for. */
	struct block *words = block_make(worker, KIB);
	words->addresses = true;
	words->pins = 1;
	memset(words->shadow, 0, KIB);
	synchronize(worker);
	GO(cuMemcpyHtoD_v2(words->at, words->shadow, KIB));
	allocate_to_share(worker);
	if (worker->n_blocks < 2)
		block_make(worker, KIB);
	if (options.hidden)
		hidden_make(worker);
}

static void close_worker(struct worker *worker)
{
	context_close(worker);
	while (worker->n_hidden)
		hidden_drop(worker, 0);
	for (unsigned i = 0; i < TEXTURES_MAX; i++)
		texture_drop(worker, &worker->texture[i]);
	while (worker->n_blocks)
		block_free(worker, worker->n_blocks - 1);
	for (unsigned i = 0; i < RINGS; i++) {
		GO(cuMemFreeHost(worker->ring[i].memory));
		free(worker->ring[i].expected);
	}
	GO(cuMemFreeHost(worker->host_words));
	for (unsigned i = 0; i < SLOTS; i++) {
		GO(cuEventDestroy_v2(worker->slot[i].event));
		if (i >= SLOT_BLOCKING)
			GO(cuStreamDestroy_v2(worker->slot[i].handle));
	}
	free(worker->scratch);
}

static void *work(void *argument)
{
	struct worker *worker = argument;

	open_worker(worker);
	for (unsigned p = 0; p < PHASES; p++) {
		unsigned long start = worker->quota * p / PHASES, end = worker->quota * (p + 1) / PHASES;
		struct phase phase = {.half = (start + end) / 2, .late = start + (end - start) * 3 / 4, .end = end};

		worker->phase = p;
		if (p == PHASES - 1 && worker->id == 0)
			sem_post(&last_phase);
		if (p % 2)
			periodic(worker, &phase);
		else
			aperiodic(worker, &phase);
		/* A thread that was done before half of it has still one to give, and one to take. */
		phase.half = phase.late = 0;
		pass_on(worker, &phase);
		check_all(worker);
	}
	close_worker(worker);
	return NULL;
}

/* ---- the whole ---- */

static void share_blocks(void)
{
	static const size_t bytes[] = {300 * KIB, 3 * MIB, 8 * MIB};

	for (unsigned i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
		struct block *block = calloc(1, sizeof(*block));

		block->bytes = bytes[i];
		block->owner = THREADS_MAX;
		block->number = i;
		block->shadow = malloc(bytes[i]);
		kernel_fill((uint32_t *)block->shadow, (uint32_t)(bytes[i] / 4), (uint32_t)made_up.seed + i);
		GO(cuMemAlloc_v2(&block->at, bytes[i]));
		GO(cuMemcpyHtoD_v2(block->at, block->shadow, bytes[i]));
		random_shared[random_n_shared++] = block;
	}
}

/* The threads' end, and what is said of it. */
static void finish(void)
{
	unsigned long submitted = 0;
	uint64_t digest = 0;

	made_up_join();
	for (unsigned i = 0; i < made_up.threads; i++) {
		submitted += workers[i].submitted;
		digest_add(&digest, &workers[i].digest, sizeof(digest));
	}
	for (unsigned i = 0; i < random_n_shared; i++)
		GO(cuMemFree_v2(random_shared[i]->at));
	made_up_check();
	printf("spill_random: seed %lu, %lu submissions, %u threads, digest %016lx\n", (unsigned long)made_up.seed,
	       submitted, made_up.threads, (unsigned long)digest);
}

int main(int argc, char **argv)
{
	bool no_hidden = false;
	const struct made_up_option own[] = {{"no-hidden", .flag = &no_hidden},
					     {"in-order", .number = &options.in_order},
					     {"textures", .flag = &options.textures},
					     {"leave", .flag = &made_up.leave},
					     {NULL}};

	made_up_begin(argc, argv, own, THREADS_MAX, 8 * MIB);
	options.hidden = !no_hidden;
	/* First of all: it comes after what libraries have to do at the end. */
	if (made_up.leave)
		atexit(finish);
	sem_init(&last_phase, 0, 0);
	GO(cuInit(0));
	GO(cuDevicePrimaryCtxRetain(&random_context, 0));
	GO(cuCtxSetCurrent(random_context));
	GO(cuDeviceGetAttribute(&random_has_values, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
	kernel_open(kernel_function);
	texture_open();
	share_blocks();
	pthread_barrier_init(&meeting, NULL, made_up.threads);
	for (unsigned i = 0; i < made_up.threads; i++) {
		pthread_mutex_init(&mailboxes[i].lock, NULL);
		pthread_cond_init(&mailboxes[i].filled, NULL);
	}
	for (unsigned i = 0; i < made_up.threads; i++) {
		workers[i].options = &options;
		workers[i].id = i;
		workers[i].random = made_up_chance(i);
		workers[i].quota = made_up.operations / made_up.threads;
		workers[i].share = made_up.bytes / made_up.threads;
	}
	made_up_start(work, workers, sizeof(workers[0]));
	if (made_up.leave) {
		sem_wait(&last_phase);
		exit(0);
	}
	finish();
	return 0;
}
