/*
 * gate.c: the gate, which holds submissions back during a quiesce, and submission_state, the flags that every
 * submission reads (submission.h). Bits that hold submissions back are cleared under GATE, so that sleepers are woken;
 * bits are set without it.
 */
#include "shim/base/clock.h"
#include "shim/base/lock.h"
#include "shim/submit/completion.h"
#include "shim/submit/submission.h"
#include "shim/submit/submit_state.h"

#include <pthread.h>

static void wait_until_open(void)
{
	struct timespec until = clock_in(GATE_PATIENCE_MS * 1000000ull);

	lock_take(&submit_state.gate.lock);
	while (atomic_load(&submission_state) & (SUBMISSION_DRAINING | SUBMISSION_CLOSED)) {
		if (lock_wait(&submit_state.gate.lock, &submit_state.gate.opened, &until) == 0)
			continue;
		/* A gate that is being closed may be waiting for what this thread does next; so reopen it. */
		uint32_t state = atomic_load(&submission_state);
		if (state & SUBMISSION_CLOSED)
			until.tv_sec += 1;
		else if (state & SUBMISSION_DRAINING &&
			 atomic_compare_exchange_strong(&submission_state, &state, state & ~SUBMISSION_DRAINING))
			clock_wake_all(&submit_state.gate.opened);
	}
	lock_drop(&submit_state.gate.lock);
}

bool gate_wait_while(const _Atomic bool *held, unsigned ms)
{
	int before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	completion_flush();
	atomic_fetch_add(&submit_state.gate.n_waiting, 1);
	wait_until_open();
	for (; atomic_load(held) && ms; ms--) {
		clock_sleep(1000000);
		wait_until_open();
	}
	atomic_fetch_sub(&submit_state.gate.n_waiting, 1);
	pthread_setcancelstate(before, NULL);
	return ms || !atomic_load(held);
}

void gate_wait(void)
{
	static const _Atomic bool never;

	gate_wait_while(&never, 0);
}

unsigned gate_n_waiting(void)
{
	return atomic_load(&submit_state.gate.n_waiting);
}

static void clear_gate(uint32_t bits)
{
	lock_take(&submit_state.gate.lock);
	atomic_fetch_and(&submission_state, ~bits);
	clock_wake_all(&submit_state.gate.opened);
	lock_drop(&submit_state.gate.lock);
}

/*
 * Must come before the bit is set: who was opened before sees another number then (admit.c). Also where it is set for
 * another device: the mover of this one may have read records before it heard tickets.
 */
static void count_beside(void)
{
	atomic_fetch_add(&submit_state.submission.n_besides, 1);
}

void submission_set_beside(bool on)
{
	uint32_t state = atomic_load(&submission_state);

	if (!on) {
		atomic_fetch_and(&submission_state, ~SUBMISSION_TICKETS);
		return;
	}
	count_beside();
	/* Not if tracking has just ended. */
	while (state & SUBMISSION_TRACKING &&
	       !atomic_compare_exchange_weak(&submission_state, &state, state | SUBMISSION_TICKETS))
		;
}

bool submission_is_beside(void)
{
	return atomic_load(&submission_state) & SUBMISSION_TICKETS;
}

void submission_set_tracking(bool on, bool beside)
{
	if (on && beside)
		count_beside();
	if (on)
		atomic_fetch_or(&submission_state, SUBMISSION_TRACKING | (beside ? SUBMISSION_TICKETS : 0));
	else
		clear_gate(~(SUBMISSION_TRACE | SUBMISSION_ON_USE));
}

bool submission_ask_to_pin(void)
{
	uint32_t state = atomic_load(&submission_state);

	/* Not if tracking has just ended, because the bit would not be cleared again. */
	while (state & SUBMISSION_TRACKING && !(state & SUBMISSION_PINNING))
		if (atomic_compare_exchange_weak(&submission_state, &state, state | SUBMISSION_PINNING))
			return true;
	return !(state & SUBMISSION_PINNING);
}

void submission_set_trace(bool on)
{
	if (on)
		atomic_fetch_or(&submission_state, SUBMISSION_TRACE);
	else
		atomic_fetch_and(&submission_state, ~SUBMISSION_TRACE);
}

void submission_set_on_use(void)
{
	if (!(atomic_load(&submission_state) & SUBMISSION_ON_USE))
		atomic_fetch_or(&submission_state, SUBMISSION_ON_USE);
}

void gate_for(uint64_t devices)
{
	atomic_store(&submit_state.gate.devices, devices);
}

void gate_drain(void)
{
	atomic_fetch_or(&submission_state, SUBMISSION_DRAINING);
}

bool gate_close(void)
{
	uint32_t state = atomic_load(&submission_state);

	while (state & SUBMISSION_DRAINING)
		if (atomic_compare_exchange_weak(&submission_state, &state,
						 (state & ~SUBMISSION_DRAINING) | SUBMISSION_CLOSED))
			return true;
	return false;
}

void gate_open(void)
{
	clear_gate(SUBMISSION_DRAINING | SUBMISSION_CLOSED);
}

void gate_undrain(void)
{
	clear_gate(SUBMISSION_DRAINING);
}

void submission_stop(void)
{
	/* Without the lock, which another thread may have held at the fork. Sleepers look again within a second. */
	atomic_fetch_and(&submission_state, SUBMISSION_ON_USE);
	clock_wake_all(&submit_state.gate.opened);
}
