/*
 * The gate, and the flag word that says where submissions go (use.h). Bits are cleared under the gate's lock, so that who
 * sleeps at the gate is woken; they are set without.
 */
#include "shim/base/clock.h"
#include "shim/base/lock.h"
#include "shim/submit/done.h"
#include "shim/submit/use.h"

#include <pthread.h>

_Atomic uint32_t use_state;
_Atomic uint64_t use_gate_devices = UINT64_MAX;

/* The gate is rarely closed; those who wait sleep here. */
static struct lock gate_lock = LOCK_INIT(LOCK_GATE);
static struct clock_cond gate_opened;

void use_wait_at_gate(void)
{
	int before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	done_flush();
	struct timespec until = clock_in(USE_GATE_PATIENCE_MS * 1000000ull);
	lock_take(&gate_lock);
	while (atomic_load(&use_state) & (USE_DRAINING | USE_CLOSED)) {
		if (lock_wait(&gate_lock, &gate_opened, &until) == 0)
			continue;
		/* A gate that is only being closed may wait for what this thread does next: it stays open then. */
		uint32_t state = atomic_load(&use_state);
		if (state & USE_CLOSED)
			until.tv_sec += 1;
		else if (state & USE_DRAINING &&
			 atomic_compare_exchange_strong(&use_state, &state, state & ~USE_DRAINING))
			clock_wake_all(&gate_opened);
	}
	lock_drop(&gate_lock);
	pthread_setcancelstate(before, NULL);
}

static void clear_gate(uint32_t bits)
{
	lock_take(&gate_lock);
	atomic_fetch_and(&use_state, ~bits);
	clock_wake_all(&gate_opened);
	lock_drop(&gate_lock);
}

void use_set_tracking(bool on, bool beside)
{
	if (on)
		atomic_fetch_or(&use_state, USE_TRACKING | (beside ? USE_TICKETS : 0));
	else
		clear_gate(~(USE_AHEAD | USE_TRACE));
}

bool use_ask_to_hold(void)
{
	uint32_t state = atomic_load(&use_state);

	/* When tracking has just ended nobody would take it back. */
	while (state & USE_TRACKING && !(state & USE_HOLDING))
		if (atomic_compare_exchange_weak(&use_state, &state, state | USE_HOLDING))
			return true;
	return !(state & USE_HOLDING);
}

void use_set_trace(bool on)
{
	if (on)
		atomic_fetch_or(&use_state, USE_TRACE);
	else
		atomic_fetch_and(&use_state, ~USE_TRACE);
}

void use_set_ahead(void)
{
	if (!(atomic_load(&use_state) & USE_AHEAD))
		atomic_fetch_or(&use_state, USE_AHEAD);
}

void use_gate_for(uint64_t devices)
{
	atomic_store(&use_gate_devices, devices);
}

void use_gate_drain(void)
{
	atomic_fetch_or(&use_state, USE_DRAINING);
}

bool use_gate_close(void)
{
	uint32_t state = atomic_load(&use_state);

	while (state & USE_DRAINING)
		if (atomic_compare_exchange_weak(&use_state, &state, (state & ~USE_DRAINING) | USE_CLOSED))
			return true;
	return false;
}

void use_gate_open(void)
{
	clear_gate(USE_DRAINING | USE_CLOSED);
}

void use_gate_undrain(void)
{
	clear_gate(USE_DRAINING);
}

void use_stop(void)
{
	/* Without the lock: in the child of a fork somebody else may have held it. Sleepers look again within a second. */
	atomic_store(&use_state, 0);
	clock_wake_all(&gate_opened);
}
