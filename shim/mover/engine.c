/*
 * What submissions tell the mover and what they wait for; the device budget; and how the engine dies.
 */
#include "shim/base/log.h"
#include "shim/driver/real.h"
#include "shim/mover/inside.h"
#include "shim/submit/use.h"
#include "shim/stats/waiting.h"

#include <sched.h>

/* A submission that nobody answers goes on after this long: the mover may have ended. */
#define ANSWER_MS 2000
/* Errors in a row before an event is believed, and for how long: they may be microseconds apart. */
#define DOUBTS_MOST 8
#define DOUBTS_NS   20000000

bool engine_log(struct engine *engine, uint64_t function, const struct named *named, unsigned n, struct ticket ticket)
{
	return tape_write(&engine->tape, function, named, n, ticket) || atomic_load(&engine->dead);
}

bool engine_read_log(struct engine *engine, uint64_t *ret_function, struct named *ret_named, unsigned most,
		     unsigned *ret_n)
{
	return (!engine->claims || claims_hear_oldest(engine->claims)) &&
	       tape_read(&engine->tape, ret_function, ret_named, most, ret_n);
}

/* ---- waiting ---- */

struct mark *engine_everything(struct engine *engine)
{
	return &engine->everything;
}

uint64_t engine_device(const struct engine *engine)
{
	return UINT64_C(1) << engine->device->ordinal;
}

bool engine_is_hungry(const struct engine *engine)
{
	return atomic_load_explicit(&engine->hungry, memory_order_relaxed);
}

bool engine_hears_all(struct engine *engine)
{
	if (!engine->claims)
		return true;
	use_see_inside();
	return claims_hear(engine->claims);
}

void engine_wake(struct engine *engine)
{
	if (!atomic_load(&engine->asleep))
		return;
	pthread_mutex_lock(&engine->wake_lock);
	clock_wake_one(&engine->wake);
	pthread_mutex_unlock(&engine->wake_lock);
}

static void unlink_waiter(struct engine *engine, const struct waiter *waiter)
{
	struct waiter **at = &engine->waiters;

	while (*at != waiter)
		at = &(*at)->next;
	*at = waiter->next;
	atomic_fetch_sub(&engine->n_waiters, 1);
}

/* Whose memory a submission waits for, each once; the first few of many. */
#define WAIT_SITES 16

static unsigned missing_sites(const struct engine *engine, const struct named *named, unsigned n,
			      unsigned ret_sites[WAIT_SITES])
{
	const struct arena *arena = engine->arena;
	unsigned found = 0;

	for (unsigned i = 0; i < n && found < WAIT_SITES; i++) {
		if (!arena_contains(arena, named[i].address))
			continue;
		uint32_t word = arena_look(arena, named[i].address);
		uint32_t block = !word || word & ARENA_SLAB ? arena_unit(arena, named[i].address) : word - 1;
		const struct mark *mark = &arena->marks[block];
		unsigned site = arena_site(arena, block), seen = 0;

		if (!atomic_load(&mark->away) && !atomic_load(&mark->unmapped))
			continue;
		while (seen < found && ret_sites[seen] != site)
			seen++;
		if (seen == found)
			ret_sites[found++] = site;
	}
	return found;
}

/*
 * Wait for the answer in steps, each of which counts for itself: what the process was stopped for is neither a wait nor
 * time in which somebody failed to answer. Locking: the caller holds the engine's lock.
 */
static void wait_for_answer(struct engine *engine, const struct waiter *waiter, struct waiting *waiting)
{
	while (!waiter->answered && !atomic_load(&engine->dead) && use_is_tracking() &&
	       waiting->ns < ANSWER_MS * 1000000ull) {
		struct timespec until = clock_in(WAITING_LOOK_NS);

		clock_wait(&engine->answered, &engine->lock.mutex, &until);
		waiting_look(waiting);
	}
}

uint64_t engine_wait(struct engine *engine, const struct named *named, unsigned n, bool unknown)
{
	unsigned sites[WAIT_SITES], n_sites;
	struct waiter waiter = {.named = named, .n = n, .unknown = unknown};
	struct waiting waiting;

	if (atomic_load(&engine->dead)) {
		sched_yield();
		return 0;
	}
	waiting_begin(&waiting);
	waiter.since = waiting.began;
	n_sites = missing_sites(engine, named, n, sites);
	lock_take(&engine->lock);
	waiter.next = engine->waiters;
	engine->waiters = &waiter;
	atomic_fetch_add(&engine->n_waiters, 1);
	engine_wake(engine);
	wait_for_answer(engine, &waiter, &waiting);
	unlink_waiter(engine, &waiter);
	lock_drop(&engine->lock);
	return waiting_end(&waiting, sites, n_sites);
}

enum sw_status engine_ask(struct engine *engine, enum engine_order order, CUcontext context, uint64_t bytes,
			  unsigned patience_ms, uint64_t *ret_bytes)
{
	enum sw_status status = SW_BUSY;
	struct timespec until = clock_in(patience_ms * 1000000ull);

	lock_take(&engine->lock);
	/* One at a time. */
	while (engine->orders.order != ORDER_NONE && !atomic_load(&engine->dead))
		if (clock_wait(&engine->answered, &engine->lock.mutex, &until))
			goto out;
	if (atomic_load(&engine->dead)) {
		status = SW_NOT_SUPPORTED;
		goto out;
	}
	engine->orders.order = order;
	engine->orders.context = context;
	engine->orders.bytes = bytes;
	engine->orders.done = false;
	atomic_store(&engine->orders.pending, true);
	engine_wake(engine);
	while (!engine->orders.done && !atomic_load(&engine->dead))
		if (clock_wait(&engine->answered, &engine->lock.mutex, &until))
			break;
	if (engine->orders.done) {
		status = engine->orders.status;
		if (ret_bytes)
			*ret_bytes = engine->orders.bytes;
	}
	/* An order that nobody waits for any more is still carried out; its answer is nobody's. */
	if (engine->orders.done || atomic_load(&engine->dead))
		engine->orders.order = ORDER_NONE;
	else
		engine->orders.left = true;
	clock_wake_all(&engine->answered);
out:
	lock_drop(&engine->lock);
	return status;
}

/* Copies of 50 MiB each way take 1 ms; what waits longer than that many waits for something else. */
#define NEW_PATIENCE_NS 50000000u
#define NEW_BACKOFF_NS  1000000000u
#define NEW_LOOK_NS     30000

void engine_wait_for_room(struct engine *engine, uint64_t bytes)
{
	const struct timespec step = {.tv_nsec = NEW_LOOK_NS};
	unsigned hopeless = atomic_load(&engine->new_blocks.hopeless);
	uint64_t since = clock_now();
	int before;

	if (since < atomic_load(&engine->new_blocks.not_before))
		return;
	/* nanosleep is a cancellation point, and we are in the middle of somebody's allocation. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	atomic_fetch_add(&engine->new_blocks.wanted, bytes);
	while (heap_free_bytes(engine->heap, CHUNK_DEVICE) < bytes && !atomic_load(&engine->dead) &&
	       atomic_load(&engine->new_blocks.hopeless) == hopeless) {
		if (clock_now() - since > NEW_PATIENCE_NS) {
			atomic_store(&engine->new_blocks.not_before, clock_now() + NEW_BACKOFF_NS);
			break;
		}
		engine_wake(engine);
		nanosleep(&step, NULL);
	}
	atomic_fetch_sub(&engine->new_blocks.wanted, bytes);
	pthread_setcancelstate(before, NULL);
}

/* ---- the device budget ---- */

uint64_t engine_budget(const struct engine *engine)
{
	uint64_t limit = atomic_load(&engine->device->budget.limit), used = atomic_load(&engine->device->budget.used);

	return used < limit && heap_is_full(engine->heap) ? used : limit;
}

bool engine_recall_lent(struct engine *engine, unsigned units)
{
	struct lender *lender = &engine->device->lender;
	/* What is wished for is said to be moving. */
	uint64_t away = (plan_units(engine->plan, PLAN_HOST) + plan_units(engine->plan, PLAN_MOVING)) * HEAP_UNIT, lent;

	if (device_take_back(engine->device, units * HEAP_UNIT))
		return true;
	/* Where the driver has none all that is lent is in the way of the budget. */
	lent = atomic_load(heap_is_full(engine->heap) ? &lender->lent.used : &lender->of_own);
	if (lent)
		lender_want(lender, lent < away ? lent : away);
	return false;
}

/* ---- what the driver refuses ---- */

#define TRIES         50
#define TRIES_AT_ONCE 8

bool engine_tries(unsigned *tries)
{
	if (*tries > TRIES_AT_ONCE && *tries < TRIES)
		clock_sleep(2000000);
	return (*tries)++ < TRIES;
}

/* ---- the end ---- */

void engine_die(struct engine *engine, const char *why)
{
	if (atomic_exchange(&engine->dead, true))
		return;
	/* Submissions go on being held back from what is not mapped until the mover has seen to it (mover.c). */
	log_line("memory does not move any more: %s", why);
}

void engine_lost(struct engine *engine, CUresult result)
{
	if (atomic_load(&engine->dead))
		return;
	if (!engine->exact && result == CUDA_ERROR_ILLEGAL_ADDRESS) {
		atomic_store(&engine->health.telling, true);
		engine->health.on_lost(engine);
		atomic_store(&engine->health.telling, false);
	}
	engine_die(engine, real_error_name(result));
}

void engine_doubt(struct engine *engine, CUresult result)
{
	uint64_t now = clock_now();

	if (!engine->health.doubts++)
		engine->health.doubted = now;
	if (engine->health.doubts >= DOUBTS_MOST && now - engine->health.doubted >= DOUBTS_NS)
		engine_lost(engine, result);
}
