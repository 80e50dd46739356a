// SPDX-License-Identifier: Apache-2.0
/*
 * The spill engine as the rest of the library sees it: starts the engine of a device, and forwards requests as orders
 * to its mover; ends of contexts and of the process; suspension; changes of spill.mode; discards.
 */
#include "shim/context/context.h"
#include "shim/mover/mover.h"
#include "shim/plan/governor.h"
#include "shim/process/process.h"
#include "shim/submit/arguments.h"

#include <time.h>

/* ms: how long an order may take: the time to empty a large device, or to fill it, over a slow link. */
#define MOVE_MS 120000
/*
 * The end of a context asks the mover up to PARK_TRIES times to leave it, and waits PARK_MS each time. Answers are
 * counted rather than time: a process that was stopped (SIGSTOP), or whose mover the system did not run, loses only one
 * of them.
 */
#define PARK_TRIES 120
#define PARK_MS    1000
/*
 * ms: how long a safe point is sought. One attempt ends when the device makes no progress for as long as a gap may
 * wait.
 */
#define SAFE_POINT_MS 3000
/* ns: submissions proceed between attempts, because the device may wait for one of them */
#define BETWEEN_NS   50000000
#define ROOM_MS      2000      /* ms: for a safe point, and for other orders */
#define BACK_NS      500000000 /* ns: for other heaps to begin giving back what they borrowed */
#define BACK_LOOK_NS 200000
#define NEW_MS       500
/* ms: at the end of the process. An engine in the middle of a move is asked up to STOP_TRIES times. */
#define STOP_MS    500
#define STOP_TRIES 20
#define TELL_MS    2000 /* ms: at the end of the process, for a report that is being written, on a loaded machine */

/* Returns the engine of the device; NULL: none was started. */
static struct engine *engine_of(const struct device *device)
{
	return atomic_load_explicit(&mover_state.spill.engines[device->ordinal], memory_order_acquire);
}

/* Returns the first engine whose device is *at or a later one, and sets *at behind it; NULL: there is none. */
static struct engine *next_engine(unsigned *at)
{
	struct engine *engine = NULL;

	while (*at < DEVICE_MOST && !engine)
		engine = atomic_load(&mover_state.spill.engines[(*at)++]);
	return engine;
}

/* Locking: the caller must hold ENGINE_START. */
static void spill_start(struct device *device, enum policy_spill mode, bool to_suspend)
{
	struct heap *heap = atomic_load(&device->heap);
	struct engine *engine = mover_new(device, heap, mode == POLICY_SPILL_EXACT);

	if (engine)
		mover_keep(engine, process_settings()->contents, !to_suspend);
	/* From now on memory may leave the device, even if nothing was placed outside of it (suspend). */
	pdl_spilled();
	bool runs = engine && submission_add_arena(heap_arena(heap), &engine->channel) && mover_start(engine);
	if (!runs)
		log_once("no memory to move memory with; what is spilled stays on the host");
	if (!engine)
		return;
	if (!runs)
		atomic_store(&engine->channel.dead, true);
	/*
	 * Runs before the driver's own handlers, which were registered first: the driver must not be called while it
	 * shuts down.
	 */
	if (!mover_state.spill.registered)
		mover_state.spill.registered = atexit(spill_end) == 0;
	atomic_store_explicit(&mover_state.spill.engines[device->ordinal], engine, memory_order_release);
}

/* A device that has not spilled knows from the program's allocator what is alive (alive.c). */
void spill_prepare(struct device *device, bool to_suspend)
{
	if (engine_of(device) || !atomic_load(&device->heap))
		return;
	enum policy_spill mode = process_spill_mode();
	if (mode != POLICY_SPILL_EXACT && mode != POLICY_SPILL_FAST)
		return;
	if (!real_has(HOOK_cuCtxRecordEvent) || !real_has(HOOK_cuFuncGetParamInfo)) {
		log_once("this driver is older than CUDA 12.5: what is spilled does not move");
		return;
	}
	lock_take(&mover_state.spill.lock);
	/* Who changes the mode takes the lock for it, and asks the engines that are there then. */
	if (!engine_of(device))
		spill_start(device, process_spill_mode(), to_suspend);
	lock_drop(&mover_state.spill.lock);
}

/* Builds with a sanitizer copy this many times more slowly on the simulated GPU. The root CMakeLists.txt defines it. */
#ifndef SPILLWAY_SLOWNESS
#define SPILLWAY_SLOWNESS 1
#endif

/* Returns how many ms a move of `bytes` may take: one for each 128 KiB, as host memory may have to be pinned. */
static unsigned moving_ms(uint64_t bytes)
{
	return ROOM_MS + (unsigned)(bytes >> 17) * SPILLWAY_SLOWNESS;
}

uint64_t spill_room_ns(uint64_t bytes)
{
	return (ROOM_MS + 2 * moving_ms(bytes)) * 1000000ull;
}

/* An order found no safe point: waits a moment before it is given again. Returns false if it is not to be. */
static bool is_to_be_repeated(enum sw_status status, uint64_t until)
{
	if (status != SW_BUSY || clock_now() >= until)
		return false;
	clock_sleep(BETWEEN_NS);
	return true;
}

/* Returns whether memory of other heaps can move, so that what they have on this device can leave it. */
static bool others_move(const struct device *device)
{
	const struct engine *engine;

	for (unsigned i = 0; (engine = next_engine(&i));)
		if (engine->device != device && !engine_is_dead(engine))
			return true;
	return false;
}

/* Takes back what other heaps have borrowed, which goes first. Returns the bytes that came back in time. */
static uint64_t take_back_lent(struct device *device, uint64_t bytes, bool of_budget)
{
	struct lender *lender = &device->lender;
	const _Atomic uint64_t *lent = of_budget ? &lender->of_own : &lender->lent.used;
	uint64_t before = atomic_load(lent), last = before, began = clock_now(), since = began;
	uint64_t wanted = bytes < before ? bytes : before;

	while (wanted && others_move(device) && clock_now() - since < BACK_NS &&
	       clock_now() - began < moving_ms(bytes) * 1000000ull) {
		uint64_t used = atomic_load(lent), back = before > used ? before - used : 0;

		if (back >= wanted)
			return back;
		if (used < last)
			since = clock_now();
		last = used;
		lender_want(lender, wanted - back);
		clock_sleep(BACK_LOOK_NS);
	}
	return before > last ? before - last : 0;
}

bool spill_make_room(struct device *device, uint64_t bytes, bool of_budget)
{
	uint64_t moved = 0, back;

	/* Nothing moves during a capture. */
	if (capture_is_open())
		return false;
	back = take_back_lent(device, bytes, of_budget);
	if (back >= bytes)
		return true;
	spill_prepare(device, false);
	struct engine *engine = engine_of(device);
	if (!engine)
		return back;
	const struct order order = {.what = ORDER_ROOM, .bytes = bytes - back};
	uint64_t until = clock_now() + ROOM_MS * 1000000ull;
	enum sw_status status;
	do
		status = engine_ask(engine, &order, moving_ms(bytes), NULL, &moved);
	while (is_to_be_repeated(status, until));
	return (status == SW_OK && moved) || back;
}

void spill_room_for_new(struct device *device, uint64_t bytes)
{
	struct engine *engine = engine_of(device);

	/* Launches are checked also where nothing has spilled. */
	if (!engine && check_is_on())
		spill_prepare(device, true);
	if (!engine || !atomic_load_explicit(&engine->new_blocks.makes_room, memory_order_relaxed) ||
	    engine_is_dead(engine) || bytes > move_limits_new(atomic_load(&device->budget.limit)) ||
	    heap_free_bytes(engine->heap, CHUNK_DEVICE) >= bytes)
		return;
	if (engine->exact)
		engine_ask(engine, &(struct order){.what = ORDER_NEW, .bytes = bytes}, NEW_MS, NULL, NULL);
	else
		engine_wait_for_room(engine, bytes);
}

enum sw_status spill_bring(struct device *device, CUdeviceptr address, uint64_t bytes)
{
	struct engine *engine = engine_of(device);

	if (!engine || capture_is_open())
		return SW_BUSY;
	uint32_t unit = arena_unit(engine->arena, address);
	uint32_t n = arena_unit(engine->arena, address + bytes - 1) + 1 - unit;
	const struct order order = {.what = ORDER_BRING, .bytes = (uint64_t)unit << 32 | n};
	uint64_t until = clock_now() + SAFE_POINT_MS * 1000000ull;
	enum sw_status status;
	do {
		if (spill_any_held())
			gate_wait();
		status = engine_ask(engine, &order, MOVE_MS, NULL, NULL);
	} while (is_to_be_repeated(status, until));
	return status;
}

bool spill_moves_alive(const struct device *device)
{
	const struct engine *engine = engine_of(device);

	return engine && !engine_is_dead(engine) && engine->lifetimes;
}

enum residence spill_residence(const struct device *device)
{
	const struct engine *engine = engine_of(device);

	return engine ? (enum residence)atomic_load_explicit(&engine->quiesce.residence, memory_order_relaxed)
		      : RESIDENCE_RUNS;
}

unsigned spill_held_by(const struct device *device)
{
	const struct engine *engine;
	unsigned reasons = 0;

	for (unsigned i = 0; (engine = next_engine(&i));)
		if (!device || engine->device == device)
			reasons |= atomic_load(&engine->quiesce.reasons);
	return reasons;
}

/*
 * Makes an engine leave the context, which holds the link's streams and events. Returns whether it has. Only
 * `link.context`, which link_close() changes last, shows that: an order may be answered too late because another thread
 * held the slot, or not at all by an engine that has died and is still being taken down. The engine does not return to
 * the context while it ends (link_open). An order whose wait was given up is still carried out; then moving goes on in
 * another context, or in this one if it did not end.
 */
static bool has_let_go(struct engine *engine, CUcontext context)
{
	const struct order order = {.what = ORDER_PARK, .context = context};

	for (unsigned i = 0; i < PARK_TRIES && engine->link.context == context; i++) {
		if (engine_ask(engine, &order, PARK_MS, NULL, NULL) != SW_NOT_SUPPORTED)
			continue;
		for (unsigned ms = 0; ms < PARK_MS && engine->link.context == context; ms++)
			clock_sleep(1000000);
	}
	return engine->link.context != context;
}

bool spill_context_ending(CUcontext context)
{
	struct engine *engine;
	int before;

	/* Waits are cancellation points. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	/* First, so that the library begins nothing more in the context; then what is in flight completes. */
	bool may = context_ending(context);
	may = completion_context_ending(context) && may;
	for (unsigned i = 0; may && (engine = next_engine(&i));)
		may = has_let_go(engine, context);
	pthread_setcancelstate(before, NULL);
	if (!may)
		log_once("a context is not ended yet, which the driver still works in for us: the call answered "
			 "CUDA_ERROR_NOT_READY");
	return may;
}

void spill_context_ended(CUcontext context, bool ended)
{
	completion_context_ended(context, ended);
	context_ended(context, ended);
}

/*
 * Returns whether memory is where no submission may find it: suspended, or about to be, so that it may have no address;
 * copied in a gap; or unmapped. Neither may the gate open meanwhile, nor may the driver shut down. Once the process has
 * said that it ends, nothing of this begins any more (quiesce_close, take_away).
 */
static bool is_in_between(const struct engine *engine)
{
	return quiesce_is_held(engine) || atomic_load(&submission_state) & SUBMISSION_CLOSED ||
	       atomic_load(&engine->channel.everything.unmapped);
}

/* Returns whether the engine has ended. One that has died may still put in their places what was in between. */
static bool has_ended(const struct engine *engine)
{
	return engine_is_dead(engine) && (atomic_load(&engine->loop.left) || !engine->loop.has_thread);
}

/* A dead engine takes no order, but ends by itself. */
static void ask_to_stop(struct engine *engine)
{
	if (!engine_is_dead(engine))
		engine_ask(engine, &(struct order){.what = ORDER_STOP}, STOP_MS, NULL, NULL);
	else
		for (unsigned ms = 0; ms < STOP_MS && !has_ended(engine); ms++)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Makes the engine end. Its mover may be in the driver for some time, but if it hangs there, the process still ends. */
static void stop(struct engine *engine)
{
	bool between = false;

	for (unsigned i = 0; i < STOP_TRIES && !has_ended(engine); i++) {
		between |= is_in_between(engine);
		ask_to_stop(engine);
		between |= is_in_between(engine);
		if (!between)
			return;
	}
}

void spill_end(void)
{
	struct engine *engine;

	/* The child of a fork inherits the handlers, but has no mover. */
	if (process_stage() == STAGE_FORKED)
		return;
	atomic_store(&mover_state.spill.ending, true);
	for (unsigned i = 0; (engine = next_engine(&i));) {
		stop(engine);
		for (unsigned ms = 0; ms < TELL_MS && atomic_load(&engine->health.telling); ms++)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	submission_stop();
}

void spill_child(void)
{
	atomic_store(&submission_state, 0);
}

/* ---- suspend and resume ---- */

static bool may_suspend(void)
{
	return process_stage() == STAGE_RUNNING && !spill_is_ending();
}

static enum sw_status ask_one(struct engine *engine, const struct order *order, const struct order_watch *watch,
			      uint64_t *ret_bytes)
{
	uint64_t bytes = 0;

	if (!engine)
		return SW_NOT_SUPPORTED;
	/* A dead engine answers only that it does nothing. */
	if (engine_is_dead(engine))
		return SW_DRIVER;
	enum sw_status status = engine_ask(engine, order, MOVE_MS, watch, &bytes);
	if (status == SW_OK && ret_bytes)
		*ret_bytes = bytes;
	return status;
}

/* For the user. to: RESIDENCE_AWAY or RESIDENCE_RUNS. */
static enum sw_status ask_all(enum residence to, const struct order_watch *watch, uint64_t *ret_bytes)
{
	const struct order order = {.what = ORDER_RESIDE, .to = to, .reason = RESIDENCE_USER};
	enum sw_status status = SW_NOT_SUPPORTED;
	struct engine *engine;
	uint64_t sum = 0;
	bool stays = false;

	for (unsigned i = 0; (engine = next_engine(&i));) {
		uint64_t bytes = 0;
		enum sw_status one = ask_one(engine, &order, watch, &bytes);
		if (one != SW_OK && to == RESIDENCE_AWAY)
			return one;
		/* If one engine is held on, the gate stays closed. */
		stays |= one == SW_NO_MEMORY;
		status = status == SW_OK ? SW_OK : one;
		sum += bytes;
	}
	if (stays)
		return SW_NO_MEMORY;
	if (status == SW_OK && ret_bytes)
		*ret_bytes = sum;
	return status;
}

void spill_leaves_soon(const struct device *device, uint64_t bytes)
{
	struct engine *engine = engine_of(device);

	if (engine)
		atomic_store_explicit(&engine->reserve.leaving, bytes, memory_order_relaxed);
}

/* ns: if the last one began longer ago, the mover may be busy with other things. */
#define PINS_NS 500000000

bool spill_pins_ahead(const struct device *device)
{
	struct engine *engine = engine_of(device);
	uint64_t since = engine ? atomic_load_explicit(&engine->reserve.pinned, memory_order_relaxed) : 0;

	return since && clock_now() - since < PINS_NS;
}

enum sw_status spill_suspend(const struct order_watch *watch, uint64_t *ret_bytes)
{
	if (!may_suspend())
		return SW_NOT_SUPPORTED;
	for (struct device *device = device_next(NULL); device; device = device_next(device))
		spill_prepare(device, true);
	uint64_t until = clock_now() + SAFE_POINT_MS * 1000000ull;
	enum sw_status status;
	do {
		status = ask_all(RESIDENCE_AWAY, watch, ret_bytes);
		/* Nothing is suspended then, unless it was not the process's turn before. */
		if (status != SW_OK)
			ask_all(RESIDENCE_RUNS, NULL, NULL);
	} while (is_to_be_repeated(status, until));
	return status;
}

enum sw_status spill_resume(uint64_t *ret_bytes)
{
	return may_suspend() ? ask_all(RESIDENCE_RUNS, NULL, ret_bytes) : SW_NOT_SUPPORTED;
}

/* ---- of one device, for turns ---- */

static struct order for_turn(enum residence to, uint64_t keep)
{
	return (struct order){.what = ORDER_RESIDE, .to = to, .reason = RESIDENCE_TURN, .bytes = keep};
}

enum sw_status spill_stop(struct device *device, const struct order_watch *watch)
{
	const struct order order = for_turn(RESIDENCE_STOPPED, 0);

	if (!may_suspend())
		return SW_NOT_SUPPORTED;
	spill_prepare(device, true);
	enum sw_status status = ask_one(engine_of(device), &order, watch, NULL);
	/* It may stop after all, when nobody waits for that any more. */
	if (status != SW_OK && spill_residence(device) == RESIDENCE_RUNS)
		spill_release(device, NULL);
	return status;
}

enum sw_status spill_release(struct device *device, uint64_t *ret_bytes)
{
	const struct order order = for_turn(RESIDENCE_RUNS, 0);

	return may_suspend() ? ask_one(engine_of(device), &order, NULL, ret_bytes) : SW_NOT_SUPPORTED;
}

bool spill_begin(struct device *device, enum residence to, uint64_t keep, const struct order_watch *watch)
{
	const struct order order = for_turn(to, keep);
	struct timespec until = clock_in(MOVE_MS * 1000000ull);
	struct engine *engine = engine_of(device);

	return may_suspend() && engine && engine_give(engine, &order, &until, watch) == SW_OK;
}

enum sw_status spill_finish(struct device *device, const struct order_watch *watch)
{
	struct engine *engine = engine_of(device);
	struct timespec until = clock_in(MOVE_MS * 1000000ull);
	enum sw_status status = engine_take_answer(engine, &until, watch, NULL);
	int stopped = RESIDENCE_STOPPED;

	/* Nobody waits for what does not leave. */
	if (status == SW_BUSY)
		atomic_compare_exchange_strong(&engine->quiesce.residence, &stopped, RESIDENCE_AWAY);
	return status;
}

bool spill_any_held(void)
{
	const struct engine *engine;

	for (unsigned i = 0; (engine = next_engine(&i));)
		if (quiesce_is_held(engine))
			return true;
	return false;
}

bool spill_is_idle(const struct device *device)
{
	const struct engine *engine = engine_of(device);

	/* In this order: what completes after `done` was read was not idle then. */
	return engine && !atomic_load(&engine->channel.n_waiters) && submission_is_quiet(CONTEXT_ALL_DEVICES) &&
	       atomic_load(&engine->progress.done) >= completion_newest();
}

/*
 * ---- changes of spill.mode ----
 *
 * All engines change, one after the other, or none. Until the last one has left `fast`, everything that `fast` needs is
 * kept for all of them: heaps pin what may be reached without being named, and submissions have tickets. So while
 * engines differ, and if they go on to differ because one could not be brought back, each of them moves memory as
 * safely as in its own mode.
 */

static enum sw_status ask_to_change(struct engine *engine, bool exact, const struct order_watch *watch, uint64_t *bytes)
{
	const struct order order = {.what = exact ? ORDER_EXACT : ORDER_FAST};
	uint64_t until = clock_now() + SAFE_POINT_MS * UINT64_C(1000000);
	enum sw_status status;

	do {
		uint64_t moved = 0;

		status = engine_ask(engine, &order, MOVE_MS, watch, &moved);
		*bytes += moved;
	} while (!engine_is_over(engine) && is_to_be_repeated(status, until));
	/* Memory of a dead engine moves in no mode. */
	return status != SW_OK && engine_is_dead(engine) ? SW_DRIVER : status;
}

/* Asks all engines, up to the first that cannot, or `every` one. Returns the first obstacle. */
static enum sw_status ask_all_to_change(bool exact, bool every, const struct order_watch *watch, uint64_t *bytes)
{
	enum sw_status status = SW_OK;
	struct engine *engine;

	for (unsigned i = 0; (every || status == SW_OK) && (engine = next_engine(&i));) {
		if (engine_is_dead(engine))
			continue;
		enum sw_status one = ask_to_change(engine, exact, watch, bytes);
		status = status == SW_OK ? one : status;
	}
	return status;
}

static bool any_is(bool exact)
{
	const struct engine *engine;

	for (unsigned i = 0; (engine = next_engine(&i));)
		if (!engine_is_dead(engine) && engine->exact == exact)
			return true;
	return false;
}

/* Engines that are started later begin in this mode. */
static void set_mode(bool exact)
{
	lock_take(&mover_state.spill.lock);
	process_set_spill_mode(exact ? POLICY_SPILL_EXACT : POLICY_SPILL_FAST);
	lock_drop(&mover_state.spill.lock);
}

enum sw_status spill_change_mode(enum policy_spill mode, const struct order_watch *watch, uint64_t *ret_bytes,
				 bool *ret_mixed)
{
	bool exact = mode == POLICY_SPILL_EXACT, was_exact = process_spill_mode() == POLICY_SPILL_EXACT;

	*ret_bytes = 0;
	*ret_mixed = false;
	if (process_stage() != STAGE_RUNNING || spill_is_ending())
		return SW_NOT_SUPPORTED;
	/* Also on the way to `exact`: heaps that are made until then may have to stay in `fast`. */
	if (!exact || !was_exact)
		device_set_beside(true);
	set_mode(exact);
	enum sw_status status = ask_all_to_change(exact, false, watch, ret_bytes), last = status;
	if (status != SW_OK) {
		set_mode(was_exact);
		last = ask_all_to_change(was_exact, true, watch, ret_bytes);
	}
	/* One that has not answered the last order may do as it was told before, later. */
	*ret_mixed = last != SW_OK || (any_is(true) && any_is(false));
	if (*ret_mixed)
		set_mode(false);
	else if (process_spill_mode() == POLICY_SPILL_EXACT)
		device_set_beside(false);
	return status;
}

/* ---- discards ---- */

/*
 * Discards: contents that the program no longer needs (spillway_discard). A piece that is wholly discarded migrates
 * without being copied, until a submission names its block again.
 *
 * Each discard has a number. A piece is discarded if it carries the number that its block shows, and the block's number
 * is not below the one in the engine's state for everything. Storing 0 into the block's state thus ends the discard for
 * all pieces of the block, and storing 0 into the state for everything ends it for all blocks. Submissions do so when
 * they pin their blocks (admit):
 *
 *   fast        The mover raises `unmapped` first, then sees that no submission uses the block, and only then asks. A
 *               submission that comes later waits, and clears the number when the piece has arrived.
 *   in a gap    Submissions clear it before they pass the gate. One that has not done so is not inside the driver, and
 *               what it will write is written after the gap.
 *
 * Submissions are examined only while they are tracked. Before that no copy need be avoided, because nothing moves. A
 * kernel that finds the address in memory names nothing; spillway.h says so.
 *
 * A discard in the order of a stream is made by a submission to that stream that names the block and pins it, so
 * nothing of the block moves before the stream has got there. Work that was submitted to another stream before and has
 * not completed may be held back until after the discard (by a value in memory that this stream writes), and then write
 * what must be kept. That cannot be detected, so nothing is discarded while such work may use the block. A submission
 * that names the block during this check is either seen by it, or comes after the number was stored and clears it. For
 * that, submissions must pin what they name, which they do only on request (submission_ask_to_pin); everything
 * submitted before the request must have completed, too.
 */

/* Returns the number for discards of this block: a new one, unless the last one is still valid. */
static uint64_t number_of(struct engine *engine, struct block_state *block)
{
	struct discard_state *const state = &mover_state.discard;
	uint64_t of_all = atomic_load(&engine->channel.everything.discarded), of_block = atomic_load(&block->discarded);

	if (of_block && of_all && of_block >= of_all)
		return of_block;
	atomic_store_explicit(&state->any, true, memory_order_relaxed);
	state->last++;
	if (!of_all)
		atomic_store(&engine->channel.everything.discarded, state->last);
	atomic_store(&block->discarded, state->last);
	return state->last;
}

/*
 * Returns the unit behind the block, or, in a divided block, behind the part that has the address: what follows belongs
 * to others. The part stays where it is as long as the program may discard it.
 */
static uint32_t end_of(const struct arena *arena, uint32_t block, CUdeviceptr address)
{
	const struct unit_state *state = &arena->states[block];

	if (!atomic_load_explicit(&state->divided, memory_order_acquire))
		return block + atomic_load_explicit(&state->units, memory_order_relaxed);
	uint32_t end = arena_unit(arena, address), part = atomic_load_explicit(&arena->part[end], memory_order_acquire);
	while (part && end < arena->n_units && atomic_load_explicit(&arena->part[end], memory_order_acquire) == part)
		end++;
	return end;
}

void spill_discard(struct device *device, CUdeviceptr address, uint64_t bytes)
{
	struct engine *engine = engine_of(device);

	if (!engine || engine_is_dead(engine))
		return;
	struct arena *arena = engine->arena;
	uint32_t word = arena_look(arena, address);
	/* Before tracking begins, no submission would clear the discard when it uses the block again. */
	if (!word || word & ARENA_SLAB || !submission_is_tracking())
		return;
	struct block_state *block = &arena->block_states[word - 1];
	uint64_t begin = address - arena->base, room = arena->bytes - begin;
	uint64_t end = begin + (bytes < room ? bytes : room);
	uint32_t unit = (uint32_t)((begin + HEAP_UNIT - 1) / HEAP_UNIT), last = (uint32_t)(end / HEAP_UNIT);
	uint32_t most = end_of(arena, word - 1, address);
	if (last > most)
		last = most;

	lock_take(&mover_state.discard.lock);
	uint64_t number = number_of(engine, block);
	for (uint32_t piece, past; unit < last && piece_at_unit(engine, unit, &piece, &past); unit = past)
		if (piece >= unit && past <= last)
			atomic_store(&arena->states[piece].discard, number);
	lock_drop(&mover_state.discard.lock);
}

void spill_reused(CUdeviceptr address, uint64_t bytes)
{
	/* The caller has seen the discard, if there was one. */
	bool any = atomic_load_explicit(&mover_state.discard.any, memory_order_relaxed);
	struct device *device = any ? device_of(address) : NULL;

	if (device)
		heap_reused(atomic_load(&device->heap), address, bytes);
}

/*
 * Returns whether every submission that has not completed, except in the stream of this one, has pinned its blocks. The
 * first calls return false, because a submission inside the driver at that time may have no number yet. A submission
 * that entered without pinning keeps its stripe nonempty until it has its number.
 */
static bool are_all_pinned(uint64_t oldest)
{
	struct discard_state *const state = &mover_state.discard;
	bool held = false;

	lock_take(&state->lock);
	if (submission_ask_to_pin())
		state->since = state->empty = 0;
	else if (state->since)
		held = oldest >= state->since;
	else if ((state->empty |= submission_empty_stripes()) == UINT64_MAX)
		state->since = completion_newest() + 1;
	lock_drop(&state->lock);
	return held;
}

/*
 * Returns whether a submission that may not have completed may use the block, except the one that pins it now
 * (own_holds: number of its pins).
 */
static bool is_named_elsewhere(const struct block_state *block, unsigned own_holds, uint64_t oldest)
{
	return block_state_pins(block) != own_holds || block_state_last(block) >= oldest;
}

void spill_discard_behind(struct device *device, CUdeviceptr address, uint64_t bytes, CUstream stream, bool per_thread,
			  bool held)
{
	struct engine *engine = engine_of(device);

	if (!engine || engine_is_dead(engine))
		return;
	uint32_t word = arena_look(engine->arena, address);
	/* In this order: a submission that gets its number in between is not below the limit. */
	uint64_t limit = completion_newest() + 1, oldest = completion_oldest_elsewhere(stream, per_thread);

	if (!word || word & ARENA_SLAB || !are_all_pinned(oldest) || !held)
		return;
	struct block_state *block = &engine->arena->block_states[word - 1];
	if (oldest > limit)
		oldest = limit;
	spill_discard(device, address, bytes);
	if (is_named_elsewhere(block, 1, oldest) || is_named_elsewhere(&engine->channel.everything, 0, oldest))
		atomic_store(&block->discarded, 0);
}
