// SPDX-License-Identifier: Apache-2.0
/*
 * submission.c: submissions: the one of each thread, which collects the addresses that a call names; the stripes that
 * count submissions inside the driver; and the arenas whose addresses count.
 */
#include "shim/submit/submission.h"
#include "shim/accounting/ledger.h"
#include "shim/base/array.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/process/process.h"
#include "shim/submit/arguments.h"
#include "shim/submit/graph.h"
#include "shim/submit/pointer_arrays.h"
#include "shim/submit/types.h"
#include "shim/trace/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Limit of the list, more than any graph should need; beyond it, the submission counts as one that may touch anything.
 */
#define NAMED_MOST (1u << 20)

/*
 * A kernel may be given where its memory ends, and go backwards (reverse iterators), or a little before where it begins
 * (arrays that are counted from 1). So a pointer also means what lies this close to it. Tensors are multiples of this.
 */
#define NEAR 512

__thread struct submission_stripe *submission_my_stripe __attribute__((tls_model("initial-exec")));

static __thread struct submission mine __attribute__((tls_model("initial-exec")));

struct submission_stripe *submission_take_stripe(void)
{
	/* Asked here, once per thread, because the launch path only reads the outcome. */
	process_is_off();
	return submission_my_stripe =
		   &submission_stripes[atomic_fetch_add_explicit(&submit_state.submission.next_stripe, 1,
								 memory_order_relaxed) %
				       SUBMISSION_STRIPES];
}

/* ---- names in allocations that are backed on use ---- */

/*
 * What a submission names of allocations that are backed on use. It is only listed while names are
 * read, for locks may be held then; submission_back() has memory taken for it before the submission is admitted, and
 * then names it anew, because blocks are there now.
 */

/* Limit of the list; beyond it, the submission counts as one that may touch anything. */
#define WANTED_MOST (1u << 16)

/* Stores where it is. Returns false if the address is in no such allocation. */
static bool find(CUdeviceptr address, struct heap **ret_heap, uint32_t *ret_first)
{
	const struct device *device = device_of(address);

	if (!device)
		return false;
	*ret_heap = atomic_load_explicit(&device->heap, memory_order_acquire);
	return arena_is_on_use(heap_arena(*ret_heap), address, ret_first);
}

bool submission_is_graph(const struct submission *submission)
{
	return submission->id == HOOK_cuGraphLaunch || submission->id == HOOK_cuGraphLaunch_ptsz;
}

/*
 * Returns whether some of what a name means may have no memory. If all has, which stays so while the allocation lives,
 * its blocks are named now, and it need not be listed: what is listed counts for the mover as named twice.
 */
static bool may_be_missing(const struct submission *submission, struct heap *heap, uint32_t first, CUdeviceptr address,
			   uint64_t bytes)
{
	const struct arena *arena = heap_arena(heap);
	CUdeviceptr low = arena_address(arena, first), begin = address;

	/* Its contents have to come, whether or not there is memory for them. */
	if (arena_on_use_is_cpus(arena, first))
		return true;
	if (!atomic_load_explicit(&arena->states[first].on_use_left, memory_order_relaxed))
		return false;
	if (submission_is_graph(submission) || capture_is_open())
		return true;
	if (!bytes) {
		if (!arena_on_use_extent(arena, first, address, &begin, &bytes))
			return true;
		uint64_t before = begin - low < ON_USE_NEAR ? begin - low : ON_USE_NEAR;
		begin -= before;
		bytes += before + ON_USE_NEAR;
	}
	return heap_on_use_missing(heap, false, &begin, &bytes);
}

/*
 * Also finds a pointer just beside an allocation: *address becomes the allocation's byte next to it, undefined if
 * false.
 */
static bool find_near(CUdeviceptr *address, size_t bytes, struct heap **ret_heap, uint32_t *ret_first)
{
	if (find(*address, ret_heap, ret_first))
		return true;
	CUdeviceptr behind = *address + ON_USE_NEAR - 1, border = behind / HEAP_UNIT * HEAP_UNIT;
	*address = border > *address ? border : border - 1;
	return !bytes && behind % HEAP_UNIT < 2 * ON_USE_NEAR - 1 && find(*address, ret_heap, ret_first);
}

static void on_use_names_add(struct submission *submission, CUdeviceptr address, size_t bytes)
{
	const struct named *last = submission->n_wanted ? &submission->wanted[submission->n_wanted - 1] : NULL;
	struct heap *heap;
	uint32_t first;

	if (!find_near(&address, bytes, &heap, &first) || (last && last->address == address && last->bytes == bytes) ||
	    !may_be_missing(submission, heap, first, address, bytes))
		return;
	int saved = errno;
	/* What has no memory yet has no block that could be named, so the submission may touch anything. */
	if (!ARRAY_ROOM(submission->wanted, submission->n_wanted, submission->room_wanted, WANTED_MOST))
		submission->reach = REACH_ALL;
	else
		submission->wanted[submission->n_wanted++] = (struct named){address, bytes};
	errno = saved;
}

void submission_stores(struct submission *submission, CUdeviceptr address)
{
	if (!(atomic_load_explicit(&submission_state, memory_order_relaxed) & SUBMISSION_ON_USE))
		return;
	if (address)
		on_use_names_add(submission, address, 0);
	else
		submission->stores_any = true;
}

/* Most words are no address in the range in which such allocations are; the table decides about the others. */
static inline void glance_at(void *is_clear, const char *at)
{
	CUdeviceptr low = atomic_load(&submit_state.submission.on_use_low), word;
	uint64_t span = atomic_load(&submit_state.submission.on_use_span);
	struct heap *heap;
	uint32_t first;

	if (!at)
		return;
	memcpy(&word, at, sizeof(word));
	word = submission_pointer(word);
	if (__builtin_expect(word - low < span, 0) && find_near(&word, 0, &heap, &first))
		*(bool *)is_clear = false;
}

static __attribute__((noinline)) bool glance_slowly(CUfunction function, void *const *params)
{
	struct kernel_params layout;
	bool is_clear = kernel_params_cached(function, &layout);

	for (unsigned i = 0; is_clear && i < layout.n; i++)
		kernel_params_look(layout.run[i], params, glance_at, &is_clear);
	return is_clear;
}

/*
 * The slot is read like the runs in copy_slot() (arguments.c), before a parameter is looked at. This is what a launch
 * costs more while something lacks memory: one function without a frame. If arrays of pointers are known, a launch may
 * name what they lead to, too, which no glance can tell.
 */
bool submission_glance(CUfunction function, void *const *params, void *const *extra)
{
	const struct submissions_state *state = &submit_state.submission;
	struct kernel_params_slot *slot = kernel_params_slot_of((uintptr_t)function, 0);
	uint32_t sequence = atomic_load_explicit(&slot->sequence, memory_order_acquire);
	uint64_t plain = atomic_load_explicit(&slot->plain, memory_order_acquire), value;
	/* In this order: a wider span is stored before the lower bound. */
	CUdeviceptr low = atomic_load_explicit(&state->on_use_low, memory_order_acquire);
	uint64_t span = atomic_load_explicit(&state->on_use_span, memory_order_relaxed);
	const struct arena *arena = atomic_load_explicit(&state->on_use_arena, memory_order_acquire);

	if (extra || !params || atomic_load_explicit(&pointer_arrays_any, memory_order_relaxed))
		return false;
	if (!plain || sequence & 1 ||
	    atomic_load_explicit(&slot->function, memory_order_acquire) != (uintptr_t)function ||
	    atomic_load_explicit(&slot->generation, memory_order_acquire) !=
		atomic_load_explicit(&submit_state.kernel_params_generation, memory_order_acquire) ||
	    atomic_load_explicit(&slot->sequence, memory_order_relaxed) != sequence)
		return glance_slowly(function, params);
	for (; plain; plain &= plain - 1) {
		const void *param = params[__builtin_ctzll(plain)];

		if (!param)
			return false;
		memcpy(&value, param, sizeof(value));
		value = submission_pointer(value);
		if (value - low >= span)
			continue;
		/* Other memory lies between, as a rule: neither what is NEAR before nor behind is backed on use. */
		if (!arena || value - arena->base - NEAR >= arena->bytes - 2 * NEAR ||
		    atomic_load_explicit(&arena->on_use[arena_unit(arena, value - NEAR)], memory_order_acquire) |
			atomic_load_explicit(&arena->on_use[arena_unit(arena, value + NEAR - 1)], memory_order_acquire))
			return glance_slowly(function, params);
	}
	return true;
}

/*
 * When the process ends, nothing is taken any more, and the driver is not asked for the device of a stream. Before
 * that, kernels alone are bound to the heaps of their device and its peers. A graph may have nodes on any device,
 * copies name memory that the stream's device has no access to, and stored pointers may be read anywhere.
 */
uint64_t on_use_names_devices(const struct submission *submission)
{
	uint64_t owners = 0;

	if (submission->stores_any || submission_is_graph(submission) ||
	    submission_is_no_kernel(submission->function) || process_stage() != STAGE_RUNNING)
		return UINT64_MAX;
	CUdevice device = completion_device(submission->stream, submission->per_thread);
	if (device < 0)
		return UINT64_MAX;
	for (CUdevice owner = 0; owner < DEVICE_MOST; owner++)
		if (peer_may_reach(owner) >> device & 1)
			owners |= UINT64_C(1) << owner;
	return owners;
}

/* ---- the submission of this thread ---- */

static void thread_ends(void *unused)
{
	struct submission *submission = &mine;

	(void)unused;
	free(submission->named);
	free(submission->held);
	free(submission->wanted);
	/* If the thread was ended inside the driver, its ticket stays out for good, and so does its place. */
	bool inside = submission->phase == PHASE_OPEN;
	if (!inside)
		inflight_ticket_give_place(submission->place);
	*submission = (struct submission){.phase = submission->phase, .place = inside ? submission->place : NULL};
	completion_thread_ends();
}

__attribute__((constructor)) static void make_key(void)
{
	submit_state.has_thread_key = pthread_key_create(&submit_state.thread_key, thread_ends) == 0;
}

/* Has the lists freed when the thread ends. */
static void free_at_end(struct submission *submission)
{
	if (!submission->has_key)
		submission->has_key =
		    submit_state.has_thread_key && pthread_setspecific(submit_state.thread_key, submission) == 0;
}

/*
 * Returns false, with the size unchanged, if memory is short or the limit is reached. Without a key, the lists of a
 * thread that ends are leaked.
 */
static bool make_room(struct submission *submission)
{
	uint32_t room = submission->room; /* of `held`, which never has more than `named` */
	int saved = errno;
	bool more = ARRAY_ROOM(submission->held, submission->n_named, room, NAMED_MOST) &&
		    ARRAY_ROOM(submission->named, submission->n_named, submission->room, NAMED_MOST);

	if (more)
		free_at_end(submission);
	/* Without a key, the place would not be given back when the thread ends. */
	if (submission->has_key && !submission->place)
		submission->place = inflight_ticket_take_place();
	errno = saved;
	return more;
}

/* It may go on into memory that it does not name, or may be more than one call. */
static void follow_pointers(struct submission *submission)
{
	if (submission->reach == REACH_NAMED)
		submission->reach = REACH_POINTERS;
}

struct submission *submission_open(uint64_t id)
{
	struct submission *submission = &mine;

	if (submission->phase == PHASE_OPEN) /* what is submitted inside counts with it */
		follow_pointers(submission);
	if (enter_depth || submission->phase == PHASE_OPEN)
		return NULL;
	/* A forked child has no mover: the gate would never open, and the locks are as they were at the fork. */
	if (__builtin_expect(!*process_fork_page, 0)) {
		process_cloned();
		return NULL;
	}
	submission->phase = PHASE_OPEN;
	submission->reach = REACH_POINTERS;
	submission->kept = KEPT_BY_GATE;
	submission->stream = NULL;
	submission->per_thread = submission->stores_any = false;
	submission->graph = NULL;
	submission->device = -1;
	submission->state = atomic_load(&submission_state);
	submission->n_arenas = atomic_load(&submit_state.submission.n_arenas);
	submission->n_besides = atomic_load(&submit_state.submission.n_besides);
	if (submission->state & SUBMISSION_TRACE && !trace_submit_begin())
		submission->state &= ~SUBMISSION_TRACE;
	submission->id = submission->function = id;
	submission->n_named = submission->n_held = submission->n_all = submission->n_wanted = 0;
	return submission;
}

bool submission_stream_now(CUstream *ret_stream, bool *ret_per_thread)
{
	*ret_stream = mine.stream;
	*ret_per_thread = mine.per_thread;
	return mine.phase == PHASE_OPEN && mine.stream != COMPLETION_ANY_STREAM;
}

bool submission_was_refused(void)
{
	return mine.phase == PHASE_REFUSED;
}

void submission_stream(struct submission *submission, CUstream stream, bool per_thread)
{
	submission->stream = stream;
	submission->per_thread = per_thread;
}

void submission_function(struct submission *submission, uint64_t function)
{
	submission->function = function;
}

uint64_t submission_what(const struct submission *submission)
{
	return submission->function;
}

void submission_graph(struct submission *submission, struct graph_names *names)
{
	submission->graph = names;
}

void submission_drop_graph(struct submission *submission)
{
	graph_names_drop(submission->graph);
	submission->graph = NULL;
}

void submission_named_only(struct submission *submission)
{
	if (submission->reach == REACH_POINTERS)
		submission->reach = REACH_NAMED;
}

void submission_unknown(struct submission *submission)
{
	submission->reach = REACH_ALL;
}

/* Returns whether the block is among the latest ones: aside, or to be waited for. */
static bool is_listed(const struct submission *submission, const struct block_state *block, bool aside)
{
	unsigned first = submission->n_held > SUBMISSION_FEW ? submission->n_held - SUBMISSION_FEW : 0;

	for (unsigned i = submission->n_held; i > first; i--)
		if (submission->held[i - 1].block == block && (aside || submission->held[i - 1].awaited))
			return true;
	return false;
}

/* The trace names addresses in all heaps, also of devices without a mover. */
static void name_traced(struct submission *submission, CUdeviceptr address, size_t bytes)
{
	const struct device *device = device_of(address);

	uint32_t first;

	if (!device || (!arena_look(heap_arena(atomic_load(&device->heap)), address) &&
			!arena_is_on_use(heap_arena(atomic_load(&device->heap)), address, &first)))
		return;
	if (submission->device < 0)
		submission->device = device->ordinal;
	trace_submit_name(address, bytes);
}

bool submission_is_heap(CUdeviceptr address)
{
	unsigned n = atomic_load_explicit(&submit_state.submission.n_arenas, memory_order_acquire);
	struct heap *heap;
	uint32_t first;

	for (unsigned i = 0; i < n; i++)
		if (arena_contains(submit_state.submission.arenas[i].arena, address) &&
		    arena_look(submit_state.submission.arenas[i].arena, address))
			return true;
	return atomic_load_explicit(&submission_state, memory_order_relaxed) & SUBMISSION_ON_USE &&
	       find(address, &heap, &first);
}

bool submission_means_heap(CUdeviceptr address)
{
	return submission_is_heap(address) || submission_is_heap(address - NEAR) ||
	       submission_is_heap(address + NEAR - 1);
}

static void extend_span(const struct arena *arena, CUdeviceptr *first, CUdeviceptr *end)
{
	if (arena->base < *first)
		*first = arena->base;
	if (arena->base + arena->bytes > *end)
		*end = arena->base + arena->bytes;
}

void submission_heap_span(CUdeviceptr *ret_first, CUdeviceptr *ret_bytes)
{
	unsigned n = atomic_load_explicit(&submit_state.submission.n_arenas, memory_order_acquire);
	CUdeviceptr first = UINT64_MAX, end = 0;

	for (unsigned i = 0; i < n; i++)
		extend_span(submit_state.submission.arenas[i].arena, &first, &end);
	/* Also where nothing moves, and there is no channel. */
	for (CUdevice i = 0; atomic_load(&submission_state) & SUBMISSION_ON_USE && i < DEVICE_MOST; i++) {
		struct heap *heap = device_heap_there(i);

		if (heap)
			extend_span(heap_arena(heap), &first, &end);
	}
	*ret_first = first - NEAR;
	*ret_bytes = end ? end - first + 2 * NEAR : 0;
}

/* Adds a name, and the block that begins at a unit, or the slab there. Inlined, because it is most of a name's cost. */
static inline __attribute__((always_inline)) void name_block(struct submission *submission,
							     const struct submission_arena *in, uint32_t unit,
							     CUdeviceptr address, size_t bytes, bool aside)
{
	struct block_state *block = &in->arena->block_states[unit];

	if (__builtin_expect(submission->n_named == submission->room, 0) && !make_room(submission)) {
		submission->reach = REACH_ALL;
		return;
	}
	submission->named[submission->n_named++] = (struct named){address, bytes};
	if (!(submission->state & SUBMISSION_PINNING) || !is_listed(submission, block, aside))
		submission->held[submission->n_held++] = (struct held){block, in->number, aside ? 0 : UINT32_MAX};
}

/* ---- memory that the program has placed itself, in `fast`: a pointer may mean several blocks ---- */

/*
 * Returns whether a pointer may reach further than what was born around it, and memory of the address space may move.
 * A pointer reaches further in a graph, which uses memory without births, and where all is doubted.
 */
static bool is_beyond(const struct submission *submission, const struct arena *arena, CUdeviceptr address,
		      uint32_t block_unit)
{
	uint32_t units, space = arena_reach(arena, block_unit, &units);

	if (!arena->lifetimes)
		return false;
	struct crossings *reach = lifetimes_crossings(arena->lifetimes);
	if (submission_is_graph(submission)) {
		/* First the doubt, then the count: heap_follow_reports() counts first. */
		if (!crossings_is_doubted(reach, space * HEAP_UNIT))
			lifetimes_distrust(arena->lifetimes, address, arena_address(arena, space), units * HEAP_UNIT);
	} else if (!crossings_is_all_doubted(reach)) {
		return false;
	}
	return atomic_load(&arena->states[space].n_bounded) != 0;
}

/* Names each block that the range touches. */
static void name_range(struct submission *submission, const struct submission_arena *in, CUdeviceptr begin,
		       uint64_t length, bool aside)
{
	const struct arena *arena = in->arena;

	if (length > arena->base + arena->bytes - begin)
		length = arena->base + arena->bytes - begin;
	uint32_t unit = arena_unit(arena, begin), end = arena_unit(arena, begin + length - 1) + 1;
	while (unit < end) {
		uint32_t word = arena_look(arena, arena_address(arena, unit)), next = unit + 1;

		if (word && !(word & ARENA_SLAB)) {
			uint32_t past =
			    word - 1 + atomic_load_explicit(&arena->states[word - 1].units, memory_order_relaxed);

			if (!is_listed(submission, &arena->block_states[word - 1], aside))
				name_block(submission, in, word - 1, arena_address(arena, unit),
					   aside ? NAMED_ASIDE : 1, aside);
			if (past > next)
				next = past;
		}
		unit = next;
	}
}

/* Names the blocks that a pointer to this address means, if the program has placed them or they are backed on use. */
static void name_extent(struct submission *submission, const struct submission_arena *in, CUdeviceptr address,
			bool aside)
{
	uint32_t word = arena_contains(in->arena, address) ? arena_look(in->arena, address) : 0, first;
	CUdeviceptr begin;
	uint64_t length;

	if (word && arena_is_on_use(in->arena, address, &first)) {
		bool known = arena_on_use_extent(in->arena, first, address, &begin, &length);

		if (!known && aside) {
			/* Only near the pointer. */
			begin = address;
			length = 1;
		} else if (submission_is_graph(submission)) {
			known = false;
			begin = arena_address(in->arena, first);
			length = atomic_load(&in->arena->states[first].on_use_units) * HEAP_UNIT;
		}
		/* What is not known to be used need only be mapped. */
		name_range(submission, in, begin, length, aside || !known);
		return;
	}
	if (!word || word & ARENA_SLAB ||
	    !atomic_load_explicit(&in->arena->states[word - 1].space_units, memory_order_relaxed))
		return;
	if (is_beyond(submission, in->arena, address, word - 1)) {
		submission->reach = REACH_ALL;
		return;
	}
	arena_extent(in->arena, address, &begin, &length);
	name_range(submission, in, begin, length, aside);
}

static __attribute__((noinline)) void name_others(struct submission *submission, const struct submission_arena *in,
						  CUdeviceptr address, size_t bytes)
{
	if (bytes) {
		name_range(submission, in, address, bytes, false);
		return;
	}
	name_extent(submission, in, address, false);
	name_extent(submission, in, address - NEAR, true);
	name_extent(submission, in, address + NEAR - 1, true);
}

/* Returns the byte next to an address between blocks, if a block or a slab is near, else 0. */
static __attribute__((noinline)) CUdeviceptr nearest(const struct arena *arena, CUdeviceptr address)
{
	CUdeviceptr before = address - NEAR, behind = address + NEAR - 1;

	if (arena_contains(arena, before) && arena_look(arena, before))
		return arena_address(arena, arena_unit(arena, address)) - 1;
	return arena_contains(arena, behind) && arena_look(arena, behind)
		   ? arena_address(arena, arena_unit(arena, behind))
		   : 0;
}

void submission_name_in_heaps(struct submission *submission, CUdeviceptr address, size_t bytes)
{
	unsigned n = atomic_load_explicit(&submit_state.submission.n_arenas, memory_order_acquire);

	for (unsigned i = 0; i < n; i++) {
		const struct submission_arena *in = &submit_state.submission.arenas[i];

		if (!arena_contains(in->arena, address))
			continue;
		uint32_t word = arena_look(in->arena, address);
		CUdeviceptr at = address;
		if (__builtin_expect(!word, 0)) {
			follow_pointers(submission); /* it may go on into a block behind */
			at = bytes ? 0 : nearest(in->arena, address);
			word = at ? arena_look(in->arena, at) : 0;
		}
		if (word)
			name_block(submission, in, word & ARENA_SLAB ? arena_unit(in->arena, at) : word - 1, at, bytes,
				   false);
		if (atomic_load_explicit(&in->arena->any_unreported, memory_order_relaxed))
			name_others(submission, in, at ? at : address, bytes);
		return;
	}
}

void submission_name(struct submission *submission, CUdeviceptr address, size_t bytes)
{
	uint32_t state = atomic_load_explicit(&submission_state, memory_order_relaxed);

	if (submission->state & SUBMISSION_TRACE)
		name_traced(submission, address, bytes);
	if (__builtin_expect(state & SUBMISSION_ON_USE, 0)) {
		on_use_names_add(submission, address, bytes);
		/* Where nothing moves, no other list is made. */
		if (submission->room_wanted)
			free_at_end(submission);
	}
	submission_name_in_heaps(submission, address, bytes);
}

/* ---- called by the mover ---- */

bool submission_add_arena(const struct arena *arena, struct channel *channel)
{
	unsigned n = atomic_load(&submit_state.submission.n_arenas);

	if (n == DEVICE_MOST)
		return false;
	submit_state.submission.arenas[n] = (struct submission_arena){arena, channel, channel->device, n};
	atomic_store_explicit(&submit_state.submission.n_arenas, n + 1, memory_order_release);
	return true;
}

bool submission_is_quiet(uint64_t devices)
{
	for (unsigned i = 0; i < SUBMISSION_STRIPES; i++) {
		uint32_t inside = atomic_load(&submission_stripes[i].inside);

		if (inside > 1 || (inside && devices & ~atomic_load(&submission_stripes[i].apart)))
			return false;
	}
	return true;
}

uint64_t submission_empty_stripes(void)
{
	uint64_t empty = 0;

	_Static_assert(SUBMISSION_STRIPES == 64, "a bit each");
	for (unsigned i = 0; i < SUBMISSION_STRIPES; i++)
		if (atomic_load(&submission_stripes[i].inside) == (&submission_stripes[i] == submission_my_stripe))
			empty |= UINT64_C(1) << i;
	return empty;
}

void submission_each_inside(void (*visit)(void *argument, const struct completion_what *what), void *argument)
{
	for (unsigned i = 0; i < SUBMISSION_STRIPES; i++) {
		struct completion_what what = {
		    atomic_load_explicit(&submission_stripes[i].function, memory_order_relaxed),
		    atomic_load_explicit(&submission_stripes[i].id, memory_order_relaxed)};

		if (atomic_load(&submission_stripes[i].inside) && what.function)
			visit(argument, &what);
	}
}
