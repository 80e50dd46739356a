/*
 * What submissions tell the mover, what they wait for, and the mover's beginning and end.
 */
#include "shim/capture.h"
#include "shim/context.h"
#include "shim/enter.h"
#include "shim/ledger.h"
#include "shim/log.h"
#include "shim/real.h"
#include "shim/spill/inside.h"
#include "shim/spill/layout.h"
#include "shim/spill/use.h"
#include "shim/stats.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* A submission that nobody answers goes on after this long: the mover may have ended. */
#define ANSWER_MS 2000
/* Errors in a row before an event is believed; they are microseconds apart. */
#define DOUBTS_MOST 8

uint64_t engine_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- what is in transit ---- */

/* Blocks that are told of at most. */
#define BLOCKS_MOST 8

/* Of one block. */
struct travelling {
	uint32_t block_unit;
	uint64_t out, in, resting; /* bytes on their way to the host, to the device, and just arrived on the host */
};

struct blocks {
	struct travelling at[BLOCKS_MOST];
	unsigned n, n_more; /* n_more: pieces of further blocks */
};

static struct travelling *travelling(struct blocks *blocks, uint32_t block_unit)
{
	for (unsigned i = 0; i < blocks->n; i++)
		if (blocks->at[i].block_unit == block_unit)
			return &blocks->at[i];
	if (blocks->n == BLOCKS_MOST) {
		blocks->n_more++;
		return NULL;
	}
	blocks->at[blocks->n].block_unit = block_unit;
	return &blocks->at[blocks->n++];
}

static void add_queue(struct blocks *blocks, const struct queue *queue, bool in)
{
	for (unsigned i = 0; i < queue->n; i++) {
		const struct transit *transit = &queue->at[(queue->head + i) % MOVES].transit;
		struct travelling *one = travelling(blocks, transit->block_unit);

		if (one)
			*(in ? &one->in : &one->out) += (uint64_t)transit->units * HEAP_UNIT;
	}
}

/* Of what rests, the latest: the mover looks at this again and again. */
#define RESTS_NOTED 16

static void add_transits(const struct engine *engine, struct blocks *blocks)
{
	add_queue(blocks, &engine->out, false);
	add_queue(blocks, &engine->in, true);
	for (unsigned i = engine->n_rest; i && i + RESTS_NOTED > engine->n_rest; i--) {
		const struct transit *transit = &engine->rest[i - 1].transit;
		struct travelling *one = travelling(blocks, transit->block_unit);

		if (one)
			one->resting += (uint64_t)transit->units * HEAP_UNIT;
	}
}

/*
 * A context's death is noticed when the mover looks next, and by then what was in transit may have arrived. So what was
 * under way at its last two looks is kept, and stays as it is from the first sign of a death on.
 */
struct transits {
	struct blocks look[2]; /* the latest first */
};

static void note_transits(struct engine *engine)
{
	struct transits *before = engine->before;

	if (engine->exact || engine->doubts || (!move_any(engine) && !before->look[0].n && !before->look[1].n))
		return;
	before->look[1] = before->look[0];
	before->look[0] = (struct blocks){0};
	add_transits(engine, &before->look[0]);
}

/* Those of now, and those of the last looks that are not among them. */
static struct blocks latest_transits(const struct engine *engine)
{
	struct blocks blocks = {0};

	add_transits(engine, &blocks);
	for (unsigned look = 0; look < 2; look++) {
		const struct blocks *seen = &engine->before->look[look];

		for (unsigned i = 0; i < seen->n; i++) {
			unsigned n = blocks.n;
			struct travelling *one = travelling(&blocks, seen->at[i].block_unit);

			if (one && blocks.n > n)
				*one = seen->at[i];
		}
	}
	return blocks;
}

/* ---- the log: function, n, then address and bytes n times ---- */

static void put(struct engine *engine, uint64_t word)
{
	engine->log[engine->log_head++ % LOG_WORDS] = word;
}

void engine_log(struct engine *engine, uint64_t function, const struct named *named, unsigned n)
{
	pthread_mutex_lock(&engine->log_lock);
	if (engine->log_head - engine->log_tail + 2 + 2 * (size_t)n > LOG_WORDS) {
		engine->log_lost++;
	} else {
		put(engine, function);
		put(engine, n);
		for (unsigned i = 0; i < n; i++) {
			put(engine, named[i].address);
			put(engine, named[i].bytes);
		}
	}
	pthread_mutex_unlock(&engine->log_lock);
}

static uint64_t get(struct engine *engine)
{
	return engine->log[engine->log_tail++ % LOG_WORDS];
}

bool engine_read_log(struct engine *engine, uint64_t *ret_function, struct named *ret_named, unsigned most,
		     unsigned *ret_n)
{
	bool any;

	pthread_mutex_lock(&engine->log_lock);
	any = engine->log_tail < engine->log_head;
	if (any) {
		*ret_function = get(engine);
		unsigned n = (unsigned)get(engine);
		*ret_n = n < most ? n : most;
		for (unsigned i = 0; i < n; i++) {
			struct named one = {.address = get(engine)};

			one.bytes = get(engine);
			if (i < most)
				ret_named[i] = one;
		}
	}
	pthread_mutex_unlock(&engine->log_lock);
	/* Once a look of the mover, before it changes anything. */
	if (!any)
		note_transits(engine);
	return any;
}

/* ---- waiting ---- */

struct mark *engine_everything(struct engine *engine)
{
	return &engine->everything;
}

bool engine_is_hungry(const struct engine *engine)
{
	return atomic_load_explicit(&engine->hungry, memory_order_relaxed);
}

void engine_wake(struct engine *engine)
{
	if (!atomic_load(&engine->asleep))
		return;
	pthread_mutex_lock(&engine->wake_lock);
	pthread_cond_signal(&engine->wake);
	pthread_mutex_unlock(&engine->wake_lock);
}

static void deadline(struct timespec *ret, unsigned ms)
{
	clock_gettime(CLOCK_REALTIME, ret);
	ret->tv_sec += ms / 1000;
	ret->tv_nsec += ms % 1000 * 1000000;
	if (ret->tv_nsec >= 1000000000) {
		ret->tv_sec++;
		ret->tv_nsec -= 1000000000;
	}
}

static void unlink_waiter(struct engine *engine, const struct waiter *waiter)
{
	struct waiter **at = &engine->waiters;

	while (*at != waiter)
		at = &(*at)->next;
	*at = waiter->next;
	atomic_fetch_sub(&engine->n_waiters, 1);
}

void engine_wait(struct engine *engine, const struct named *named, unsigned n, bool unknown)
{
	struct waiter waiter = {.named = named, .n = n, .unknown = unknown, .since = engine_now()};
	struct timespec until;

	if (atomic_load(&engine->dead)) {
		sched_yield();
		return;
	}
	deadline(&until, ANSWER_MS);
	lock_take(&engine->lock);
	waiter.next = engine->waiters;
	engine->waiters = &waiter;
	atomic_fetch_add(&engine->n_waiters, 1);
	engine_wake(engine);
	while (!waiter.answered && !atomic_load(&engine->dead) && use_is_tracking())
		if (pthread_cond_timedwait(&engine->answered, &engine->lock.mutex, &until))
			break;
	unlink_waiter(engine, &waiter);
	lock_drop(&engine->lock);
	stats_add(STAT_waits, 1);
	stats_add(STAT_wait_us, (engine_now() - waiter.since) / 1000);
}

enum sw_status engine_ask(struct engine *engine, enum engine_order order, CUcontext context, uint64_t bytes,
			  unsigned patience_ms, uint64_t *ret_bytes)
{
	enum sw_status status = SW_BUSY;
	struct timespec until;

	deadline(&until, patience_ms);
	lock_take(&engine->lock);
	/* One at a time. */
	while (engine->order != ORDER_NONE && !atomic_load(&engine->dead))
		if (pthread_cond_timedwait(&engine->answered, &engine->lock.mutex, &until))
			goto out;
	if (atomic_load(&engine->dead)) {
		status = SW_NOT_SUPPORTED;
		goto out;
	}
	engine->order = order;
	engine->order_context = context;
	engine->order_bytes = bytes;
	engine->order_done = false;
	atomic_store(&engine->has_order, true);
	engine_wake(engine);
	while (!engine->order_done && !atomic_load(&engine->dead))
		if (pthread_cond_timedwait(&engine->answered, &engine->lock.mutex, &until))
			break;
	if (engine->order_done) {
		status = engine->order_status;
		if (ret_bytes)
			*ret_bytes = engine->order_bytes;
	}
	/* An order that nobody waits for any more is still carried out; its answer is nobody's. */
	if (engine->order_done || atomic_load(&engine->dead))
		engine->order = ORDER_NONE;
	else
		engine->order_left = true;
	pthread_cond_broadcast(&engine->answered);
out:
	lock_drop(&engine->lock);
	return status;
}

/* ---- the end ---- */

void engine_die(struct engine *engine, const char *why)
{
	if (atomic_exchange(&engine->dead, true))
		return;
	/* Submissions go on being held back from what is not mapped until the mover has seen to it (mover.c). */
	log_line("memory does not move any more: %s", why);
}

/* What is told of a stop, at most: kernels in all and of one stream. */
#define KERNELS_MOST   32
#define KERNELS_STREAM 12

/* Kernels in flight, each once: those whose launch has not returned, then the others as they were submitted. */
struct kernels {
	struct done_what what[KERNELS_MOST];
	unsigned n, n_more;
	unsigned char of_row[DONE_ROWS]; /* how many of the stream are among them */
};

static bool has_kernel(const struct kernels *kernels, const struct done_what *what)
{
	for (unsigned i = 0; i < kernels->n; i++)
		if (kernels->what[i].function == what->function && kernels->what[i].id == what->id)
			return true;
	return false;
}

/* It may run already, although its launch has not returned. */
static void add_inside(void *argument, const struct done_what *what)
{
	struct kernels *kernels = argument;

	if (!has_kernel(kernels, what) && kernels->n < KERNELS_MOST)
		kernels->what[kernels->n++] = *what;
}

static void add_kernel(void *argument, unsigned row, const struct done_what *what)
{
	struct kernels *kernels = argument;

	if (has_kernel(kernels, what))
		return;
	if (kernels->n == KERNELS_MOST || kernels->of_row[row] == KERNELS_STREAM) {
		kernels->n_more++;
		return;
	}
	kernels->of_row[row]++;
	kernels->what[kernels->n++] = *what;
}

static void tell_of_kernels(void)
{
	struct kernels kernels = {0};
	char text[900], name[LAYOUT_NAME];
	size_t at = 0;

	/* In this order: what is inside may have its number by the time that those with numbers are looked at. */
	use_each_inside(add_inside, &kernels);
	done_each_in_flight(add_kernel, &kernels);
	for (unsigned i = 0; i < kernels.n; i++) {
		const struct done_what *what = &kernels.what[i];
		bool known = layout_name(what->function, name);

		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", at ? ", " : "",
				       known ? name : real_name((int)what->id));
		if (at + LAYOUT_NAME + 2 < sizeof(text) && i + 1 < kernels.n)
			continue;
		log_line("  in flight, as far as is known: %s", text);
		at = 0;
	}
	if (kernels.n_more)
		log_line("  and %u later submissions", kernels.n_more);
	if (!kernels.n)
		log_line("  in flight: nothing that was seen to be submitted");
}

/* The ledger's ids count from here, pinned and managed memory and the like included. */
#define FIRST_ID ((uint64_t)1 << 40)

/* Who the block is: what the program asked for, the how many-th it was of all it asked for, and the rule that decided. */
static void name_block(const struct engine *engine, uint32_t block_unit, char *text, size_t room)
{
	CUdeviceptr address = arena_address(engine->arena, block_unit);
	uint32_t word = arena_look(engine->arena, address);
	const struct policy *policy = life_policy();
	struct ledger_row row;
	char bytes[32];

	if (word & ARENA_SLAB) {
		snprintf(text, room, "small allocations at 0x%llx", address);
		return;
	}
	if (!ledger_get(LEDGER_HEAP, address, &row)) {
		snprintf(text, room, "an allocation at 0x%llx, freed since", address);
		return;
	}
	int rule = policy ? row.rule : -1;
	snprintf(text, room, "allocation %llu, %s at 0x%llx%s%s", (unsigned long long)(row.id - FIRST_ID + 1),
		 log_bytes(bytes, sizeof(bytes), row.bytes), address, rule >= 0 ? ", rule " : "",
		 rule >= 0 ? policy_rule_name(policy, rule) : "");
}

static void tell_of_blocks(const struct engine *engine)
{
	struct blocks blocks = latest_transits(engine);

	for (unsigned i = 0; i < blocks.n; i++) {
		const struct travelling *one = &blocks.at[i];
		char who[200], out[32], in[32], resting[32];

		name_block(engine, one->block_unit, who, sizeof(who));
		log_line("  in transit: %s (%s to the host, %s to the device, %s just gone to the host)", who,
			 log_bytes(out, sizeof(out), one->out), log_bytes(in, sizeof(in), one->in),
			 log_bytes(resting, sizeof(resting), one->resting));
	}
	if (blocks.n_more)
		log_line("  and %u pieces of further blocks", blocks.n_more);
}

/*
 * The driver reports no address, and no kernel: what was not mapped, and what ran as far as is known, is all that can be
 * told. The context is dead: nothing here asks the driver.
 */
static void tell_of_stop(const struct engine *engine)
{
	log_line("FAST MODE STOPPED THE JOB: the GPU accessed memory that was on its way and that no submission had "
		 "named, unless the program is at fault itself");
	tell_of_kernels();
	tell_of_blocks(engine);
	log_line("  ways out: spill.mode: exact, which never stops a job; or a rule for such memory with movable: no, "
		 "or with use: driver");
}

void engine_lost(struct engine *engine, CUresult result)
{
	if (atomic_load(&engine->dead))
		return;
	if (!engine->exact && result == CUDA_ERROR_ILLEGAL_ADDRESS && latest_transits(engine).n)
		tell_of_stop(engine);
	engine_die(engine, real_error_name(result));
}

void engine_doubt(struct engine *engine, CUresult result)
{
	if (++engine->doubts >= DOUBTS_MOST)
		engine_lost(engine, result);
}

static void *table(size_t n, size_t entry)
{
	void *at = mmap(NULL, n * entry, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* An engine lives as long as the process: submissions may look at it at any time. */
struct engine *engine_new(struct device *device, struct heap *heap, bool exact)
{
	struct engine *engine = calloc(1, sizeof(*engine));

	if (!engine)
		return NULL;
	engine->device = device;
	engine->heap = heap;
	engine->arena = heap_arena(heap);
	engine->exact = exact;
	engine->log = table(LOG_WORDS, sizeof(*engine->log));
	engine->stamps = table(engine->arena->n_units, sizeof(*engine->stamps));
	engine->before = calloc(1, sizeof(*engine->before));
	engine->plan = plan_new();
	engine->extents = extent_new();
	engine->governor_allows = true;
	engine->gap_patience = 50000000;
	governor_init(&engine->governor);
	trial_init(&engine->trial);
	pthread_mutex_init(&engine->log_lock, NULL);
	pthread_mutex_init(&engine->wake_lock, NULL);
	lock_init(&engine->lock, LOCK_SPILL);
	pthread_cond_init(&engine->answered, NULL);
	pthread_cond_init(&engine->wake, NULL);
	if (engine->log && engine->stamps && engine->before && engine->plan && engine->extents)
		return engine;
	extent_free(engine->extents);
	plan_free(engine->plan);
	free(engine->before);
	free(engine);
	return NULL;
}
