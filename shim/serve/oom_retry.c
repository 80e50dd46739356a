/*
 * oom_retry.c: makes device memory free for calls outside the heap, one request at a time for each device. See
 * oom_retry.h.
 */
#include "shim/serve/oom_retry.h"
#include "shim/serve/types.h"
#include "shim/base/clock.h"
#include "shim/device/device.h"
#include "shim/process/process.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/segments.h"
#include "shim/mover/spill.h"
#include "shim/stats/stats.h"

#include <pthread.h>
#include <stdatomic.h>

/* Spilled for a request of unknown size: a library's workspace, as a rule. */
#define OOM_RETRY_BYTES ((uint64_t)512 << 20)
/*
 * Spills that a request may have: other allocations, or the mover, may take what was freed. A request of unknown size
 * may need any amount, so it gets one spill only.
 */
#define SPILLS_KNOWN   2
#define SPILLS_UNKNOWN 1
/* Longest wait for the turns of others, in all. */
#define WAIT_NS 30000000000ull
/* Time to retry. A turn then ends by itself: its request may be stuck in the driver, or gone. */
#define RETRY_NS 200000000u
#define LOOK_NS  100000

static void end_turn(struct oom_retry *room)
{
	uint64_t mine = room->turn;

	if (mine)
		atomic_compare_exchange_strong(&serve_state.oom_retry.turns[room->device], &mine, 0);
	room->turn = 0;
}

/* Takes the turn for `ns` from now. Returns false if another request has it. */
static bool take_turn(struct oom_retry *room, int device, uint64_t ns)
{
	uint64_t now = clock_now(), until = now + ns, before = atomic_load(&serve_state.oom_retry.turns[device]);

	if ((before > now && before != room->turn) ||
	    !atomic_compare_exchange_strong(&serve_state.oom_retry.turns[device], &before, until))
		return false;
	room->turn = until;
	room->device = device;
	return true;
}

enum turn { TURN_TAKEN, TURN_WAITED, TURN_NONE };

static enum turn wait_for_turn(struct oom_retry *room, int device, uint64_t ns)
{
	enum turn turn = TURN_TAKEN;

	while (!take_turn(room, device, ns)) {
		room->turn = 0;
		if (clock_now() >= room->until)
			return TURN_NONE;
		turn = TURN_WAITED;
		clock_sleep(LOOK_NS);
	}
	return turn;
}

static bool oom_retry_spill(struct oom_retry *room, struct device *device, uint64_t bytes)
{
	uint64_t most = bytes > OOM_RETRY_BYTES ? bytes : OOM_RETRY_BYTES;
	bool made = false;
	int before;

	if (room->spills == (bytes ? SPILLS_KNOWN : SPILLS_UNKNOWN))
		return false;
	/* Sleeping is a cancellation point, and the program's call that called us must not be cancelled half-way. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	enum turn turn = wait_for_turn(room, device->ordinal, spill_room_ns(most) + RETRY_NS);
	if (turn == TURN_TAKEN) {
		room->spills++;
		made = spill_make_room(device, most);
	}
	if (turn != TURN_NONE)
		take_turn(room, device->ordinal, RETRY_NS);
	pthread_setcancelstate(before, NULL);
	return made || turn == TURN_WAITED;
}

bool oom_retry_make(struct oom_retry *room, int ordinal, uint64_t bytes)
{
	struct device *device = ordinal < 0 ? device_current(NULL) : device_get(ordinal);

	/* No request can get more than the device has, whatever is spilled. */
	if (!device || bytes > device->total)
		return false;
	if (!room->until)
		room->until = clock_now() + WAIT_NS;
	else if (clock_now() > room->until)
		return false;
	bool made = deferred_free_wait(device->ordinal);
	/* Before idle memory goes back, because that is what an unused segment becomes. */
	made |= segments_wait(device);
	made |= device_make_room(device);
	made = made || oom_retry_spill(room, device, bytes);
	room->made |= made;
	return made;
}

bool oom_retry_make_outside(struct oom_retry *room, int device)
{
	struct enter_scope scope;

	if (!enter_serve(&scope))
		return false;
	bool made = oom_retry_make(room, device, 0);
	enter_leave(&scope, CUDA_SUCCESS);
	return made;
}

void oom_retry_end(struct oom_retry *room, CUresult result)
{
	end_turn(room);
	if (room->made && result == CUDA_SUCCESS)
		stats_add(STAT_rescues, 1);
}
