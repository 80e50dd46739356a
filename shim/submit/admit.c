// SPDX-License-Identifier: Apache-2.0
/*
 * admit.c: admission of submissions: between naming memory and the driver, a submission gets a ticket or pins its
 * blocks, waits for nonresident memory, and passes the gate. After the driver it gets its number. At the
 * end stand the bodies of the entry points for copies and hints (submit_body.h).
 */
#include "shim/accounting/ledger.h"
#include "shim/base/log.h"
#include "shim/submit/types.h"
#include "shim/trace/trace.h"
#include "shim/submit/submit_body.h"

#include <errno.h>
#include <stdlib.h>

/*
 * The blocks of a submission, as far as they are kept and looked at: those that it names, then, if it may touch
 * anything, the `everything` of each device.
 */
static unsigned n_blocks(const struct submission *submission)
{
	return submission->n_held + submission->n_all;
}

static struct block_state *block_at(const struct submission *submission, unsigned i)
{
	return i < submission->n_held ? submission->held[i].block
				      : &submit_state.submission.arenas[i - submission->n_held].channel->everything;
}

/* Those that are waited for come before the same ones aside. */
static int by_block(const void *a, const void *b)
{
	const struct held *x = a, *y = b;

	return x->block != y->block ? (x->block < y->block ? -1 : 1) : !x->awaited - !y->awaited;
}

/*
 * Removes repeated blocks; a short list may keep a few. Must run before any pin or `waits` is raised, so that they are
 * taken back from the same list.
 */
static void list_once(struct submission *submission)
{
	unsigned n = 0;

	if (submission->n_held <= SUBMISSION_FEW)
		return;
	qsort(submission->held, submission->n_held, sizeof(submission->held[0]), by_block);
	for (unsigned i = 0; i < submission->n_held; i++)
		if (!n || submission->held[n - 1].block != submission->held[i].block)
			submission->held[n++] = submission->held[i];
	submission->n_held = n;
}

/* For a submission that has not been submitted: its blocks may migrate again. */
static void let_go(struct submission *submission)
{
	for (unsigned i = 0; submission->kept == KEPT_BY_PINS && i < n_blocks(submission); i++)
		block_state_unpin(block_at(submission, i));
	if (submission->kept == KEPT_BY_TICKET)
		inflight_ticket_give_back(submission->place, 0);
	submission->kept = KEPT_BY_GATE;
}

/* Gives a ticket back after the blocks are pinned, so that they are kept all the time. */
static void pin(struct submission *submission)
{
	if (submission->kept == KEPT_BY_PINS)
		return;
	list_once(submission);
	for (unsigned i = 0; i < n_blocks(submission); i++)
		block_state_pin(block_at(submission, i));
	let_go(submission);
	submission->kept = KEPT_BY_PINS;
}

bool submission_pins(const struct submission *submission)
{
	return submission->kept == KEPT_BY_PINS;
}

/* Result of look(). Not three bools, because packing them for the return costs more than all the looking. */
#define SEEN_UNMAPPED  1u /* a part of its blocks is not mapped */
#define SEEN_AWAY      2u /* a part is nonresident, and worth waiting for */
#define SEEN_DISCARDED 4u

static unsigned look(const struct submission *submission)
{
	uint64_t unmapped = 0, away = 0, discarded = 0;

	/* Not by block_at(), because this loop is a good part of the cost of a launch. */
	for (unsigned i = 0; i < submission->n_held; i++) {
		const struct block_state *block = submission->held[i].block;

		unmapped |= atomic_load(&block->unmapped);
		away |= atomic_load_explicit(&block->away, memory_order_relaxed) & submission->held[i].awaited;
		discarded |= atomic_load_explicit(&block->discarded, memory_order_relaxed);
	}
	for (unsigned i = 0; i < submission->n_all; i++) {
		const struct block_state *everything = &submit_state.submission.arenas[i].channel->everything;

		unmapped |= atomic_load(&everything->unmapped);
		away |= atomic_load_explicit(&everything->away, memory_order_relaxed);
		discarded |= atomic_load_explicit(&everything->discarded, memory_order_relaxed);
	}
	return (unmapped ? SEEN_UNMAPPED : 0) | (away ? SEEN_AWAY : 0) | (discarded ? SEEN_DISCARDED : 0);
}

/* Returns the devices (bits) whose heaps the submission names; nearly always one. n: number of arenas. */
static uint64_t named_devices(const struct submission *submission, unsigned n)
{
	uint64_t devices = 0;

	if (n == 1)
		return submission->n_held ? submit_state.submission.arenas[0].device : 0;
	for (unsigned i = 0; i < submission->n_held; i++)
		devices |= submit_state.submission.arenas[submission->held[i].arena].device;
	return devices;
}

/*
 * Logs the submission for the movers whose memory it names, and for no other. A ticket is valid only if every one of
 * these logs had room.
 */
static void log_it(struct submission *submission, bool with_ticket)
{
	unsigned n = atomic_load(&submit_state.submission.n_arenas);
	struct inflight_ticket ticket = {0};
	bool heard = true;

	if (!submission->n_named)
		return;
	if (with_ticket)
		ticket = inflight_ticket_take(submission->place);
	uint64_t devices = named_devices(submission, n);
	for (unsigned i = 0; i < n; i++) {
		struct channel *channel = submit_state.submission.arenas[i].channel;

		/* A mover that is dead evicts nothing, so it need not know of the ticket. */
		if (devices & channel->device)
			heard &= submission_log_write(&channel->log, submission->function, submission->named,
						      submission->n_named, ticket) ||
				 atomic_load(&channel->dead);
	}
	if (with_ticket && heard)
		submission->kept = KEPT_BY_TICKET;
	else if (with_ticket)
		inflight_ticket_give_back(submission->place, 0);
}

/* Returns for how long the process was stopped during the wait, in ns. */
static uint64_t wait_for_it(const struct submission *submission)
{
	unsigned n = atomic_load(&submit_state.submission.n_arenas);
	uint64_t devices = submission->reach == REACH_ALL ? UINT64_MAX : named_devices(submission, n), stopped = 0;

	for (unsigned i = 0; i < n; i++)
		if (devices & submit_state.submission.arenas[i].device)
			stopped += channel_wait(submit_state.submission.arenas[i].channel, submission->named,
						submission->n_named, submission->reach == REACH_ALL, submission->graph);
	return stopped;
}

/*
 * Records in the trace the wait since *since: when it has ended, and every TELL_NS while it lasts. Not after every
 * answer, because a dead mover's channel answers at once, and may do so for ever. *stopped: ns since *since for which
 * the process was stopped.
 */
#define TELL_NS UINT64_C(1000000000)
static void tell_wait(const struct submission *submission, bool ended, uint64_t *since, uint64_t *stopped)
{
	uint64_t now = *since ? clock_now() : 0;

	if (!*since || (!ended && now - *since < TELL_NS))
		return;
	trace_event_at(wait, *since, submission->device < 0 ? 0 : (uint64_t)submission->device, now - *since - *stopped,
		       trace_function(submission->function, (uint32_t)submission->id));
	*since = now;
	*stopped = 0;
}

/* What need only be mapped may be evicted while the submission waits for other memory. */
static void count_waits(const struct submission *submission, uint32_t by)
{
	for (unsigned i = 0; i < n_blocks(submission); i++)
		if (i >= submission->n_held || submission->held[i].awaited)
			atomic_fetch_add(&block_at(submission, i)->waits, by);
}

/*
 * The slow path, if a block is nonresident or migrating. `waits` of the blocks is raised (they may be fetched, but not
 * evicted) while the mover does what it can; then they are pinned. After the mover has answered, only unmapped blocks
 * are waited for. Returns what was seen last.
 */
static unsigned wait_and_pin(struct submission *submission)
{
	uint64_t since = trace_is_on() ? clock_now() : 0, stopped = 0;
	unsigned seen;

	let_go(submission);
	list_once(submission);
	count_waits(submission, 1);
	completion_flush();
	do {
		let_go(submission);
		stopped += wait_for_it(submission);
		pin(submission);
		seen = look(submission);
		if (!submission_is_tracking())
			seen &= ~SEEN_UNMAPPED;
		tell_wait(submission, !(seen & SEEN_UNMAPPED), &since, &stopped);
	} while (seen & SEEN_UNMAPPED);
	count_waits(submission, -1u);
	return seen;
}

/*
 * Waits for memory if the submission must. Voids the discards of the blocks that it names: before it is inside the
 * driver (spill.c), but after it has waited, because discarded pieces that are fetched meanwhile need not be copied.
 */
static void wait_if(struct submission *submission, bool must, unsigned seen)
{
	if (__builtin_expect(must, 0))
		seen = wait_and_pin(submission);
	for (unsigned i = 0; __builtin_expect(seen & SEEN_DISCARDED, 0) && i < n_blocks(submission); i++)
		if (atomic_load_explicit(&block_at(submission, i)->discarded, memory_order_relaxed))
			atomic_store(&block_at(submission, i)->discarded, 0);
}

/*
 * Logs the submission, and pins its blocks if pins are requested or if it must wait. It waits for blocks that are not
 * mapped, and for nonresident ones that are worth it; not for the latter while a capture is open, because a captured
 * call runs nothing and must not wait for the library.
 */
static void pin_named(struct submission *submission)
{
	int saved = errno;

	if ((!submission->n_named && submission->reach != REACH_ALL) || !atomic_load(&submit_state.submission.n_arenas))
		return;
	submission->n_all = submission->reach == REACH_ALL ? atomic_load(&submit_state.submission.n_arenas) : 0;
	uint32_t state = atomic_load(&submission_state);
	if (state & SUBMISSION_PINNING)
		pin(submission);
	unsigned seen = look(submission);
	bool must_wait = seen & SEEN_UNMAPPED || (seen & SEEN_AWAY && !capture_is_open());
	/* One that waits pins its blocks afterwards. */
	log_it(submission, !must_wait && state & SUBMISSION_TICKETS && submission->kept == KEPT_BY_GATE &&
			       submission->reach != REACH_ALL && submission->place &&
			       submission->n_named <= INFLIGHT_TICKET_NAMES);
	wait_if(submission, must_wait, seen);
	errno = saved;
}

/*
 * Returns whether tracking was switched on, an arena was added, or memory began to move beside submissions (only then
 * all blocks that a name means are listed, name_others()), while the names of this submission were read, so that they
 * may be incomplete. It was outside the driver, where a mover does not see it and may already move memory; so it must
 * count as one that may touch anything.
 */
static bool is_late(const struct submission *submission, uint32_t state)
{
	return state & SUBMISSION_TRACKING &&
	       (!(submission->state & SUBMISSION_TRACKING) ||
		submission->n_arenas != atomic_load(&submit_state.submission.n_arenas) ||
		(state & SUBMISSION_TICKETS &&
		 submission->n_besides != atomic_load(&submit_state.submission.n_besides)));
}

static void pin_late(struct submission *submission)
{
	let_go(submission);
	submission->n_arenas = atomic_load(&submit_state.submission.n_arenas);
	submission->n_besides = atomic_load(&submit_state.submission.n_besides);
	submission->state |= SUBMISSION_TRACKING;
	submission->reach = REACH_ALL;
	pin_named(submission);
}

/*
 * Called when the submission counts as inside the driver. Returns whether it must pin its blocks after all: because
 * pins were requested after it last looked; because it will wait at the gate, during which its blocks must stay; or
 * because memory moves beside it and it has no ticket, or has one that the mover may not have read, since a block is
 * now unmapped (channel.h).
 */
static bool is_loose(const struct submission *submission, uint32_t state, bool stop)
{
	uint32_t unmapped = 0;

	switch (submission->kept) {
	case KEPT_BY_GATE:
		return n_blocks(submission) && (stop || state & (SUBMISSION_PINNING | SUBMISSION_TICKETS));
	case KEPT_BY_TICKET: /* its own blocks count: it does not reach all */
		for (unsigned i = 0; state & SUBMISSION_TICKETS && i < submission->n_held; i++)
			unmapped |= atomic_load(&submission->held[i].block->unmapped);
		return state & SUBMISSION_PINNING || unmapped;
	case KEPT_BY_PINS:
		break;
	}
	return false;
}

static void pin_now(struct submission *submission)
{
	int saved = errno;

	pin(submission);
	unsigned seen = look(submission);
	wait_if(submission, seen & SEEN_UNMAPPED, seen);
	errno = saved;
}

/*
 * Returns the devices (bits) whose heaps the submission may touch (completion.h). These are all if that is unknown,
 * and, in exact mode, for a graph, whose nodes may run on any device and follow pointers there.
 */
static uint64_t owners_of(const struct submission *submission)
{
	bool is_graph = submission_is_graph(submission);
	unsigned n = atomic_load(&submit_state.submission.n_arenas);
	uint64_t devices = 0;

	if (submission->reach != REACH_ALL && (!is_graph || atomic_load(&submission_state) & SUBMISSION_TICKETS))
		return named_devices(submission, n);
	for (unsigned i = 0; i < n; i++)
		devices |= submit_state.submission.arenas[i].device;
	return devices;
}

/*
 * Returns the devices (bits) whose quiesce need not wait for this submission, nor it for them (struct
 * submission_stripe). None if there are tickets, because a quiesce then happens only by order (orders.c).
 */
static uint64_t apart_of(const struct submission *submission, uint32_t state)
{
	int saved = errno;

	if (!submission || !(state & SUBMISSION_TRACKING) || state & SUBMISSION_TICKETS || !peer_is_any())
		return 0;
	CUdevice device = completion_device(submission->stream, submission->per_thread);
	errno = saved;
	return device < 0 ? 0 : ~(owners_of(submission) | UINT64_C(1) << device);
}

/* ---- allocations that are backed on use ---- */

void submission_on_take(const struct submission_takes *takes)
{
	atomic_store(&submit_state.submission.takes, takes);
}

CUresult submission_back_slowly(struct submission *submission)
{
	const struct submission_takes *takes = atomic_load(&submit_state.submission.takes);
	/* What a graph uses, it uses at each launch, whatever is born there meanwhile. */
	bool whole = submission_is_graph(submission) || capture_is_open();
	bool all = submission->reach == REACH_ALL || submission->stores_any;
	uint64_t devices = 0;
	unsigned n = submission->n_wanted;
	CUresult result = CUDA_SUCCESS;
	int saved = errno;

	if (!takes || (!n && !all && !(atomic_load(&submission_state) & SUBMISSION_TOUCHED)))
		return CUDA_SUCCESS;
	if (all)
		result = takes->all(devices = on_use_names_devices(submission));
	for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++)
		result = takes->named(submission->wanted[i].address, submission->wanted[i].bytes, whole);
	if (result == CUDA_SUCCESS)
		result = takes->bring(submission->wanted, n, devices);
	for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++)
		submission_name_in_heaps(submission, submission->wanted[i].address, submission->wanted[i].bytes);
	if (result != CUDA_SUCCESS) {
		/* It counts in the trace, like one that the driver refuses. */
		if (submission->state & SUBMISSION_TRACE)
			trace_submit_commit(submission->function, (uint32_t)submission->id, submission->device);
		submission_drop_graph(submission);
		submission->phase = PHASE_REFUSED;
	}
	errno = saved;
	return result;
}

void submission_faulted(void)
{
	int saved = errno;
	char text[32];

	if (!stats_live(PLACE_UNUSED))
		return;
	stats_add(STAT_on_use_faults, 1);
	log_once("AN ILLEGAL ACCESS: if it was to an allocation with place: on-use, or to managed memory on the heap "
		 "(%s have no memory), the GPU used an address that no call had named; a rule with place: auto, or "
		 "with use: driver for managed memory, avoids that",
		 log_bytes(text, sizeof(text), stats_live(PLACE_UNUSED)));
	errno = saved;
}

/* ---- admission ---- */

struct submission_stripe *admit(struct submission *submission)
{
	bool is_recorded = submission && submission->state & (SUBMISSION_TRACKING | SUBMISSION_TRACE);

	if (submission && submission->state & SUBMISSION_TRACE)
		trace_submit_commit(submission->function, (uint32_t)submission->id, submission->device);
	if (submission)
		pin_named(submission);
	if (__builtin_expect(submit_state.check != NULL, 0) && submission) {
		pin_now(submission);
		check_begin(submission);
	}
	for (;;) {
		struct submission_stripe *stripe = submission_enter();

		if (submission) {
			atomic_store_explicit(&stripe->id, (uint32_t)submission->id, memory_order_relaxed);
			atomic_store_explicit(&stripe->function, submission->function, memory_order_relaxed);
		}
		/* Second: tracking that begins later waits for submissions that are inside by then. */
		uint32_t state = atomic_load(&submission_state);
		bool late = submission && is_late(submission, state);
		bool touched = submission && state & SUBMISSION_TOUCHED;
		uint64_t apart = apart_of(submission, state);
		bool stop = state & (SUBMISSION_DRAINING | SUBMISSION_CLOSED) && !enter_depth &&
			    atomic_load(&submit_state.gate.devices) & ~apart;
		if (__builtin_expect(stop, 0) && submission && submission->checked)
			stop = !check_is_open(submission);
		bool loose = !late && submission && is_loose(submission, state, stop);

		if (__builtin_expect(!late && !loose && !stop && !touched, 1)) {
			if (submission)
				submission->state = state;
			if (apart)
				atomic_store(&stripe->apart, apart);
			if (is_recorded)
				stats_add(STAT_submissions, 1);
			return stripe;
		}
		submission_leave(stripe);
		is_recorded |= late;
		if (submission && submission->checked)
			check_drop(submission, late || touched);
		if (touched) {
			let_go(submission);
			/* The trace has it, and it counts once. */
			stats_add(STAT_submissions, is_recorded && !(submission->state & SUBMISSION_TRACKING));
			submission->state &= ~SUBMISSION_TRACE;
			return NULL;
		}
		if (late)
			pin_late(submission);
		else if (loose)
			pin_now(submission);
		else
			gate_wait();
	}
}

/* Returns the number of the submission. */
static uint64_t count(const struct submission *submission, bool hurry)
{
	struct completion_what what = {submission->function, (uint32_t)submission->id};
	uint64_t number =
	    completion_submitted(submission->stream, submission->per_thread, &what, owners_of(submission), hurry);

	if (submission->reach != REACH_NAMED)
		completion_is_wide(number);
	return number;
}

void submission_close(struct submission *submission, struct submission_stripe *stripe)
{
	if (submission) {
		if (__builtin_expect(submission->checked != NULL, 0))
			check_finish(submission);
		unsigned arena = submission->n_held ? submission->held[0].arena : 0;
		bool hurry =
		    n_blocks(submission) &&
		    atomic_load_explicit(&submit_state.submission.arenas[arena].channel->hungry, memory_order_relaxed);
		/* Where nothing moves, what names nothing is only traced, and not counted (completion.h). */
		bool counts = n_blocks(submission) || submission->state & ~SUBMISSION_NO_MOVER;
		int saved = errno;
		uint64_t number = counts ? count(submission, hurry) : 0;

		errno = saved;
		for (unsigned i = 0; submission->kept == KEPT_BY_PINS && i < n_blocks(submission); i++)
			block_state_submitted(block_at(submission, i), number);
		if (submission->kept == KEPT_BY_TICKET)
			inflight_ticket_give_back(submission->place, number);
		if (__builtin_expect(submission->graph != NULL, 0))
			submission_drop_graph(submission);
		submission->phase = PHASE_NONE;
	}
	if (atomic_load_explicit(&stripe->apart, memory_order_relaxed))
		atomic_store(&stripe->apart, 0);
	submission_leave(stripe);
}

/* ---- the gate ---- */

/*
 * The gate, which holds submissions back during a quiesce, and submission_state, the flags that every
 * submission reads (submission.h). Bits that hold submissions back are cleared under GATE, so that sleepers are woken;
 * bits are set without it.
 */

/* Changes flags while any of `need` is set. Returns whether it was. */
static bool change_if(uint32_t need, uint32_t off, uint32_t on)
{
	uint32_t state = atomic_load(&submission_state);

	while (state & need)
		if (atomic_compare_exchange_weak(&submission_state, &state, (state & ~off) | on))
			return true;
	return false;
}

static void wait_until_open(void)
{
	struct timespec until = clock_in(GATE_PATIENCE_MS * 1000000ull);

	lock_take(&submit_state.gate.lock);
	while (atomic_load(&submission_state) & (SUBMISSION_DRAINING | SUBMISSION_CLOSED)) {
		if (lock_wait(&submit_state.gate.lock, &submit_state.gate.opened, &until) == 0)
			continue;
		/* A gate that is being closed may be waiting for what this thread does next; so reopen it. */
		if (atomic_load(&submission_state) & SUBMISSION_CLOSED)
			until.tv_sec += 1;
		else if (change_if(SUBMISSION_DRAINING, SUBMISSION_DRAINING, 0))
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
 * n_besides must be counted before the bit is set, so that a submission opened earlier sees another number (is_late).
 * Also if the bit was set for another device: the mover of this one may have read records before it heard tickets.
 */
void submission_set_beside(bool on)
{
	if (on)
		atomic_fetch_add(&submit_state.submission.n_besides, 1);
	/* Not if tracking has just ended. */
	change_if(SUBMISSION_TRACKING, SUBMISSION_TICKETS, on ? SUBMISSION_TICKETS : 0);
}

bool submission_is_beside(void)
{
	return atomic_load(&submission_state) & SUBMISSION_TICKETS;
}

void submission_set_tracking(bool on, bool beside)
{
	if (on && beside)
		atomic_fetch_add(&submit_state.submission.n_besides, 1);
	if (on)
		atomic_fetch_or(&submission_state, SUBMISSION_TRACKING | (beside ? SUBMISSION_TICKETS : 0));
	else
		clear_gate(~SUBMISSION_NO_MOVER);
}

bool submission_ask_to_pin(void)
{
	bool already = atomic_load(&submission_state) & SUBMISSION_PINNING;

	/* Not if tracking has just ended, because the bit would not be cleared again. */
	change_if(SUBMISSION_TRACKING, 0, SUBMISSION_PINNING);
	return !already;
}

void submission_set_trace(bool on)
{
	if (on)
		atomic_fetch_or(&submission_state, SUBMISSION_TRACE);
	else
		atomic_fetch_and(&submission_state, ~SUBMISSION_TRACE);
}

/* The bounds first: who sees the state sees them. */
void submission_set_on_use(CUdeviceptr address, uint64_t bytes)
{
	struct submissions_state *const state = &submit_state.submission;
	const struct device *device = device_of(address);
	const struct arena *arena = device ? heap_arena(atomic_load(&device->heap)) : NULL;
	bool off = !(atomic_load(&submission_state) & SUBMISSION_ON_USE);
	CUdeviceptr low = off ? UINT64_MAX : atomic_load(&state->on_use_low);
	CUdeviceptr end = off ? 0 : low + atomic_load(&state->on_use_span);

	/* A pointer close to one means it, too. */
	low = address - ON_USE_NEAR < low ? address - ON_USE_NEAR : low;
	end = address + bytes + ON_USE_NEAR > end ? address + bytes + ON_USE_NEAR : end;
	/* First the wider span: a reader of both may see too much, never too little. */
	atomic_store(&state->on_use_span, UINT64_MAX);
	if (off || arena != atomic_load(&state->on_use_arena))
		atomic_store(&state->on_use_arena, off ? arena : NULL);
	atomic_store(&state->on_use_low, low);
	atomic_store(&state->on_use_span, end - low);
	atomic_fetch_or(&submission_state, SUBMISSION_ON_USE);
}

void submission_set_on_use_off(void)
{
	atomic_fetch_and(&submission_state, ~SUBMISSION_ON_USE);
}

void submission_set_touched(bool on)
{
	if (on)
		atomic_fetch_or(&submission_state, SUBMISSION_TOUCHED);
	else
		atomic_fetch_and(&submission_state, ~SUBMISSION_TOUCHED);
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
	return change_if(SUBMISSION_DRAINING, SUBMISSION_DRAINING, SUBMISSION_CLOSED);
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
	atomic_fetch_and(&submission_state, SUBMISSION_ON_USE | SUBMISSION_TOUCHED);
	clock_wake_all(&submit_state.gate.opened);
}

/* ---- bodies of copies and hints: submit_NAME(), from the rows of hooks.def ---- */

static __thread bool holds __attribute__((tls_model("initial-exec")));

void submit_let_go_access(void)
{
	if (holds)
		peer_let_go();
	holds = false;
}

void submit_hold_access(void)
{
	if (!holds)
		peer_hold();
	holds = true;
}

/*
 * CU_POINTER_ATTRIBUTE_SYNC_MEMOPS promises that synchronous copies and sets are synchronous even where they could
 * return early. The attribute cannot be set in the driver for heap memory, so while any heap block has it, all of them
 * wait. They wait only for the stream in which they run, because another stream may depend on what this thread does
 * next.
 */
CUresult submit_finish_memop(CUresult result, bool per_thread)
{
	struct enter_scope scope;

	if (result != CUDA_SUCCESS || !enter_serve(&scope))
		return result;
	result = context_wait_stream(NULL, per_thread);
	if (result == CUDA_ERROR_ILLEGAL_ADDRESS)
		submission_faulted();
	return enter_leave(&scope, result);
}

/* clang-format off */
#define SUBMIT(name, params, args) SUBMIT_BODY(REAL(name) args, name, params, args)
#define HOOK_HINT      SUBMIT
#define HOOK_COPY      SUBMIT
#define HOOK_COPY_SYNC SUBMIT
#include "shim/driver/hooks.def"

#define HOOK_HINT(name, params, args)                                                                                  \
	CUresult submit_##name params                                                                                  \
	{                                                                                                              \
		SUBMIT_BEGIN(name, args);                                                                              \
		return track_##name args;                                                                              \
	}
#define HOOK_COPY(name, params, args)                                                                                  \
	CUresult submit_##name params                                                                                  \
	{                                                                                                              \
		SUBMIT_BEGIN(name, args);                                                                              \
		if (!peer_is_any())                                                                                    \
			return track_##name args;                                                                      \
		CUresult result = track_##name args;                                                                   \
		submit_let_go_access();                                                                                \
		return result;                                                                                         \
	}
#define HOOK_COPY_SYNC(name, params, args)                                                                             \
	CUresult submit_##name params                                                                                  \
	{                                                                                                              \
		SUBMIT_BEGIN(name, args);                                                                              \
		bool any = peer_is_any();                                                                              \
		CUresult result = track_##name args;                                                                   \
		if (any)                                                                                               \
			submit_let_go_access();                                                                        \
		if (__builtin_expect(ledger_n_sync_memops() != 0, 0))                                                  \
			return submit_finish_memop(result, submit_is_per_thread(#name));                               \
		return result;                                                                                         \
	}
#include "shim/driver/hooks.def"
/* clang-format on */
