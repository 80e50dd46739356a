// SPDX-License-Identifier: Apache-2.0
/*
 * Services of an engine for the mover's files: reading the submission log, orders from other threads, the device
 * budget, and declaring the engine dead. Also defines what the room keeps for the process.
 */
#include "shim/mover/mover.h"

struct mover_state mover_state = {
    .alive.lock = LOCK_INIT(LOCK_MOVERS),
    .discard.lock = LOCK_INIT(LOCK_DISCARD),
    .quiescing.lock = LOCK_INIT(LOCK_QUIESCE),
    .spill.lock = LOCK_INIT(LOCK_ENGINE_START),
};

/*
 * The context counts as dead after this many consecutive errors that span at least this long; errors may be
 * microseconds apart.
 */
#define DOUBTS_MOST 8
#define DOUBTS_NS   20000000

bool engine_read_log(struct engine *engine, uint64_t *ret_function, struct named *ret_named, unsigned most,
		     unsigned *ret_n)
{
	return (!engine->inflight || inflight_hear_oldest(engine->inflight)) &&
	       submission_log_read(&engine->channel.log, ret_function, ret_named, most, ret_n);
}

bool engine_hears_all(struct engine *engine)
{
	if (!engine->inflight)
		return true;
	submission_empty_stripes();
	return inflight_hear(engine->inflight);
}

#define WATCH_NS 1000000

/*
 * Waits for the answer of the order in the slot, until the deadline at most. Locking: the caller must hold SPILL, which
 * is dropped while the watch is called.
 */
static void wait_for_answer(struct engine *engine, const struct timespec *until, const struct order_watch *watch)
{
	uint64_t end = (uint64_t)until->tv_sec * 1000000000 + (uint64_t)until->tv_nsec;

	while (!engine->orders.done && !engine_is_dead(engine)) {
		struct timespec soon = clock_in(WATCH_NS);

		if (!lock_wait(&engine->channel.lock, &engine->channel.answered, watch ? &soon : until))
			continue;
		if (!watch || clock_now() >= end)
			return;
		lock_drop(&engine->channel.lock);
		atomic_store(&engine->orders.room, watch->look(watch->argument));
		lock_take(&engine->channel.lock);
	}
}

enum sw_status engine_give(struct engine *engine, const struct order *order, const struct timespec *until,
			   const struct order_watch *watch)
{
	enum sw_status status = SW_OK;

	lock_take(&engine->channel.lock);
	/* Until no other order is in the slot any more. */
	while (engine->orders.order.what != ORDER_NONE && !engine_is_dead(engine) && status == SW_OK)
		if (lock_wait(&engine->channel.lock, &engine->channel.answered, until))
			status = SW_BUSY;
	if (status == SW_OK && engine_is_dead(engine))
		status = SW_NOT_SUPPORTED;
	if (status == SW_OK) {
		engine->orders.order = *order;
		engine->orders.done = false;
		atomic_store(&engine->orders.room, watch ? watch->begins : ORDER_ROOM_IS_ALL);
		atomic_store(&engine->orders.pending, true);
		channel_wake(&engine->channel);
	}
	lock_drop(&engine->channel.lock);
	return status;
}

enum sw_status engine_take_answer(struct engine *engine, const struct timespec *until, const struct order_watch *watch,
				  uint64_t *ret_bytes)
{
	enum sw_status status = SW_BUSY;

	lock_take(&engine->channel.lock);
	wait_for_answer(engine, until, watch);
	/* A thread that gave up waiting takes the order for failed, so the mover must give the order up, too. */
	atomic_store(&engine->orders.room, watch && !engine->orders.done ? ORDER_ROOM_LOST : ORDER_ROOM_IS_ALL);
	if (engine->orders.done) {
		status = engine->orders.status;
		if (ret_bytes)
			*ret_bytes = engine->orders.order.bytes;
	}
	/* An order is carried out even if the wait for it was given up; its answer is then dropped. */
	if (engine->orders.done || engine_is_dead(engine))
		engine->orders.order.what = ORDER_NONE;
	else
		engine->orders.left = true;
	engine->orders.left_away = engine->orders.left && quiesce_is_held(engine);
	clock_wake_all(&engine->channel.answered);
	lock_drop(&engine->channel.lock);
	return status;
}

enum sw_status engine_ask(struct engine *engine, const struct order *order, unsigned patience_ms,
			  const struct order_watch *watch, uint64_t *ret_bytes)
{
	struct timespec until = clock_in(patience_ms * 1000000ull);
	int before;

	/* A thread that ended between the two would leave the order for good. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	enum sw_status status = engine_give(engine, order, &until, watch);
	if (status == SW_OK)
		status = engine_take_answer(engine, &until, watch, ret_bytes);
	pthread_setcancelstate(before, NULL);
	return status;
}

/* Copies of 50 MiB each way take 1 ms. A wait longer than NEW_PATIENCE_NS is for something else. */
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
	/* nanosleep is a cancellation point, and the thread is in the middle of an allocation. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	atomic_fetch_add(&engine->new_blocks.wanted, bytes);
	while (heap_free_bytes(engine->heap, CHUNK_DEVICE) < bytes && !engine_is_dead(engine) &&
	       atomic_load(&engine->new_blocks.hopeless) == hopeless) {
		if (clock_now() - since > NEW_PATIENCE_NS) {
			atomic_store(&engine->new_blocks.not_before, clock_now() + NEW_BACKOFF_NS);
			break;
		}
		channel_wake(&engine->channel);
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
	/* The plan counts pieces that are waiting to be fetched in a gap as moving. */
	uint64_t away = (plan_units(engine->plan, PLAN_HOST) + plan_units(engine->plan, PLAN_MOVING)) * HEAP_UNIT, lent;

	if (device_take_back(engine->device, units * HEAP_UNIT))
		return true;
	/* If the driver has no memory left, everything lent is in the way of the budget. */
	lent = atomic_load(heap_is_full(engine->heap) ? &lender->lent.used : &lender->of_own);
	if (lent)
		lender_want(lender, lent < away ? lent : away);
	return false;
}

int mover_by_number(const void *one, const void *two)
{
	uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)two;

	return (a > b) - (a < b);
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
	if (atomic_exchange(&engine->channel.dead, true))
		return;
	/* Submissions are still held back from unmapped blocks until the mover has mapped what it can (mover.c). */
	log_line("memory does not move any more: %s", why);
}

void engine_lost(struct engine *engine, CUresult result)
{
	if (engine_is_dead(engine))
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

bool spill_is_ending(void)
{
	return atomic_load(&mover_state.spill.ending);
}

bool engine_is_over(const struct engine *engine)
{
	return engine_is_dead(engine) || spill_is_ending();
}
