/* make_room.c: the givers, in their order (make_room.h). */
#include "shim/serve/make_room.h"
#include "shim/accounting/quota.h"
#include "shim/base/clock.h"
#include "shim/device/device.h"
#include "shim/mover/spill.h"
#include "shim/process/process.h"
#include "shim/serve/control.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/segments.h"
#include "shim/serve/types.h"
#include "shim/stats/stats.h"
#include "shim/submit/submission.h"

#include <pthread.h>

/* ---- what frees and the mover are about to give ---- */

/* For a few milliseconds at most, since what they wait for may need the calling thread. */
static bool give_deferred_frees(struct room *room)
{
	return deferred_free_wait(room->device);
}

/* Lets a request that was tried at one place only go on to all that it may use. */
static bool give_next_place(struct room *room)
{
	bool more = room->place != room->from;

	room->place = room->from;
	return more;
}

/* How long (ms) a request that finds no memory at all waits for memory that the mover holds for a moment. */
#define SOON_LOOKS 50

static bool give_soon(struct room *room)
{
	if (!room->soon || room->looks++ == SOON_LOOKS)
		return false;
	clock_sleep(1000000);
	return true;
}

/* ---- what others do not use ---- */

/* What other heaps keep for their next blocks is host memory of the same budget. */
static bool give_other_heaps(struct room *room)
{
	return device_make_host_room(room->device);
}

/* If other processes of the user have the host memory, they are asked for what they do not use. */
static bool give_other_processes(struct room *room)
{
	uint64_t before = room->refusals, here = room->place == HEAP_HOST ? 0 : budget_left(&room->device->budget);

	room->refusals = atomic_load(&host_budget.refusals);
	return room->refusals != before && quota_wait(room->bytes > here ? room->bytes - here : 0, &room->asked);
}

static bool give_segments(struct room *room)
{
	return segments_wait(room->device);
}

static bool give_idle_to_driver(struct room *room)
{
	return device_make_room(room->device);
}

static bool give_pools(struct room *room)
{
	return pool_give_back(room->device);
}

/* ---- live memory of the heap, for the driver ---- */

/* Evicted for a request of unknown size: a library's workspace, as a rule. */
#define UNKNOWN_BYTES ((uint64_t)512 << 20)
/*
 * Evictions that a request may have: other allocations, or the mover, may take what was freed. A request of unknown
 * size may need any amount, so it gets one only.
 */
#define SPILLS_KNOWN   2
#define SPILLS_UNKNOWN 1
/* Longest wait for the turns of others, in all. */
#define WAIT_NS 30000000000ull
/* Time to retry. A turn then ends by itself: its request may be stuck in the driver, or gone. */
#define RETRY_NS 200000000u
#define LOOK_NS  100000

/* Takes the turn for `ns` from now. Returns false if another request has it. */
static bool take_turn(struct room *room, uint64_t ns)
{
	_Atomic uint64_t *end = &serve_state.make_room.turns[room->device->ordinal];
	uint64_t now = clock_now(), until = now + ns, before = atomic_load(end);

	if ((before > now && before != room->turn) || !atomic_compare_exchange_strong(end, &before, until))
		return false;
	room->turn = until;
	return true;
}

static bool give_eviction(struct room *room)
{
	uint64_t most = room->bytes > UNKNOWN_BYTES ? room->bytes : UNKNOWN_BYTES;
	bool waited = false, made = false;

	if (room->spills == (room->bytes ? SPILLS_KNOWN : SPILLS_UNKNOWN))
		return false;
	while (!take_turn(room, spill_room_ns(most) + RETRY_NS)) {
		room->turn = 0;
		if (clock_now() >= room->until)
			return false;
		waited = true;
		clock_sleep(LOOK_NS);
	}
	if (!waited) {
		room->spills++;
		made = spill_make_room(room->device, most);
	}
	take_turn(room, RETRY_NS);
	return made || waited;
}

/* ---- the turn ---- */

/* A try counts if the process was not away at its beginning, nor at its end; or if so many were cut. */
#define CUT_TRIES 20
/*
 * For so long (ms) a request waits with an open gate until the process has left for another's turn, or others have for
 * its own. It gives up when it cannot be stopped (TURN_TRIES), which takes about two seconds.
 */
#define TURN_PATIENCE_MS 10000

/* What a request lacks now it may have later. */
static bool is_away(const struct device *device)
{
	return spill_residence(device) != RESIDENCE_RUNS || atomic_load(&device->out_of_turn);
}

uint64_t make_room_most(const struct device *device, const struct heap *heap, enum heap_from from)
{
	uint64_t used, left, shared = atomic_load(&device->shared_total);
	uint64_t most = atomic_load(&device->follows) ? device->total : atomic_load(&device->own_limit);

	if (from == HEAP_HOST)
		most = 0;
	else if (shared && shared < most)
		most = shared;
	if (from == HEAP_DEVICE_FIRST)
		most += heap_lent(heap, &used, &left);
	return most + (from != HEAP_DEVICE && heap_has_host(heap) ? atomic_load(&host_budget.limit) : 0);
}

/*
 * What it lacks while it is away it may have in its turn, or when it is resumed, for which it waits as a submission
 * does.
 */
static bool give_turn(struct room *room)
{
	struct device *device = room->device;

	if (!(room->away || is_away(device)) || room->late || room->cuts++ == CUT_TRIES ||
	    room->bytes > make_room_most(device, atomic_load(&device->heap), room->from))
		return false;
	control_start();
	room->late = !gate_wait_while(&device->out_of_turn, TURN_PATIENCE_MS);
	if (spill_is_ending())
		return false;
	room->away = is_away(device);
	room->asked = 0;
	return true;
}

/* ---- the table ---- */

#define LACK_HEAP (LACK_DEVICE | LACK_HOST | LACK_ADDRESS)

static const struct giver {
	unsigned lack; /* bits of enum lack: for what it is asked */
	bool to_heap;  /* what it gives is warm in the heap: who lacks the driver's memory needs those behind it, too */
	bool renews;   /* it may take long, so those before it may have something again */
	bool
	    once; /* it is asked again only after one behind it has given, even if it gave: others go on to use memory */
	bool (*give)(struct room *room);
} givers[] = {
    {LACK_HEAP | LACK_DRIVER, true, false, false, give_deferred_frees},
    /* What was to stay on the device if a free came in time. */
    {LACK_DEVICE | LACK_ADDRESS, false, false, false, give_next_place},
    {LACK_HEAP, false, false, false, give_soon},
    {LACK_HOST, false, false, true, give_other_heaps},
    {LACK_HOST, false, true, false, give_other_processes},
    /* What was to leave the device to others. */
    {LACK_HOST | LACK_ADDRESS, false, true, false, give_next_place},
    /* Before idle memory goes back, because that is what an unused segment becomes. */
    {LACK_HEAP | LACK_DRIVER, true, true, false, give_segments},
    {LACK_DRIVER, false, false, false, give_idle_to_driver},
    {LACK_DEVICE, false, false, true, give_pools},
    {LACK_DRIVER, false, true, false, give_eviction},
    {LACK_HEAP, false, true, false, give_turn},
};

/*
 * Before anything goes to the host, deferred frees are awaited. While the process is suspended, the device is left to
 * other processes, unless the host has nothing left.
 */
static enum heap_from place_of(const struct room *room)
{
	if (room->from != HEAP_DEVICE_FIRST)
		return room->from;
	if (room->kind == CHUNK_MOVABLE && spill_residence(room->device) != RESIDENCE_RUNS)
		return HEAP_HOST;
	return atomic_load(&serve_state.deferred_free.n_pending) ? HEAP_DEVICE : HEAP_DEVICE_FIRST;
}

void make_room_begin(struct room *room)
{
	room->away = is_away(room->device);
	room->refusals = atomic_load(&host_budget.refusals);
	room->place = place_of(room);
}

/* The givers before this one may have something again. */
static void renew(struct room *room, unsigned giver)
{
	room->spent &= ~0u << giver;
	room->looks = 0;
	if (givers[giver].give != give_next_place)
		room->place = place_of(room);
}

/* Sleeping is a cancellation point, and the program's call that called us must not be cancelled half-way. */
bool make_room(struct room *room)
{
	bool made = false;
	int before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	for (unsigned i = 0; i < sizeof(givers) / sizeof(givers[0]); i++) {
		const struct giver *giver = &givers[i];

		if (!(giver->lack & room->lack) || room->spent & 1u << i)
			continue;
		bool gave = giver->give(room);

		made |= gave;
		if (!gave || giver->once)
			room->spent |= 1u << i;
		if (gave && giver->renews)
			renew(room, i);
		if (made && !(giver->to_heap && room->lack == LACK_DRIVER))
			break;
	}
	pthread_setcancelstate(before, NULL);
	room->made |= made;
	return made;
}

/* ---- calls of the driver ---- */

bool make_room_for_driver(struct room *room, int ordinal, uint64_t bytes)
{
	struct device *device = ordinal < 0 ? device_current(NULL) : device_get(ordinal);

	room->bytes = bytes;
	room->lack = LACK_DRIVER;
	room->spent = 0;
	/* No request can get more than the device has, whatever is evicted. */
	if (!device || bytes > device->total)
		return false;
	room->device = device;
	if (!room->until)
		room->until = clock_now() + WAIT_NS;
	return clock_now() <= room->until && make_room(room);
}

bool make_room_outside(struct room *room, int device)
{
	struct enter_scope scope;

	if (!enter_serve(&scope))
		return false;
	bool made = make_room_for_driver(room, device, 0);
	enter_leave(&scope, CUDA_SUCCESS);
	return made;
}

void make_room_end(struct room *room, CUresult result)
{
	uint64_t mine = room->turn;

	if (mine)
		atomic_compare_exchange_strong(&serve_state.make_room.turns[room->device->ordinal], &mine, 0);
	room->turn = 0;
	if (room->made && result == CUDA_SUCCESS)
		stats_add(STAT_rescues, 1);
}
