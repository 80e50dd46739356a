#include "shim/spill/use.h"
#include "shim/ahead.h"
#include "shim/capture.h"
#include "shim/clock.h"
#include "shim/device.h"
#include "shim/enter.h"
#include "shim/heap/arena.h"
#include "shim/heap/transit.h"
#include "shim/ledger.h"
#include "shim/spill/done.h"
#include "shim/spill/engine.h"
#include "shim/stats.h"
#include "shim/trace.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Addresses of one submission kept at first; parameters of a kernel are at most 4 KiB (32 KiB on newer devices). */
#define NAMED_LEAST 512
/* More than any graph should have; beyond, the submission counts as one that may touch anything. */
#define NAMED_MOST (1u << 20)
/* Managed memory that one launch brings: so many pointers are looked at, the rest is left to the driver. */
#define AHEAD_MOST 32
/* Among so many blocks a repeated one is looked for in a row, beyond they are sorted. */
#define FEW 24

struct held {
	struct engine *engine;
	struct mark *mark;
};

/* One a thread, so that it is there without memory. What has no room left for its names may touch anything. */
struct use {
	bool busy, unknown, per_thread, has_key;
	bool tracked; /* tracking was on before anything was named */
	bool traced;  /* its names go into a record of the trace, up to its admission */
	bool holding; /* it is going to hold what it names, so each block is listed once, as far as that is cheap */
	bool holds;   /* it does */
	bool only_traced;
	int device; /* of the first heap address it named, for the trace; -1: none */
	CUstream stream;
	uint64_t id, function;
	const CUDA_LAUNCH_PARAMS *launches; /* n_launches of them where there are several */
	unsigned n_launches;
	unsigned n_named, n_held, room;
	unsigned n_ahead;
	CUdeviceptr ahead[AHEAD_MOST];
	unsigned n_all;    /* engines of which everything is held: the first so many arenas */
	unsigned n_arenas; /* that were there before anything was named */
	struct named *named;
	struct held *held; /* as much room as named */
};

struct use_stripe use_stripes[USE_STRIPES];
__thread struct use_stripe *use_my_stripe __attribute__((tls_model("initial-exec")));

static struct {
	const struct arena *arena;
	struct engine *engine;
} arenas[DEVICE_MOST];
static atomic_uint n_arenas;

static __thread struct use mine __attribute__((tls_model("initial-exec")));
static pthread_key_t key;
static bool has_key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

struct use_stripe *use_take_stripe(void)
{
	static atomic_uint next;

	/* Asked here, where each thread comes once: the launch path looks at what came of it alone. */
	life_is_off();
	return use_my_stripe = &use_stripes[atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % USE_STRIPES];
}

/* ---- the submission of this thread ---- */

static void use_free(void *argument)
{
	struct use *use = argument;

	free(use->named);
	free(use->held);
	use->named = NULL;
	use->held = NULL;
	use->room = use->n_named = use->n_held = 0;
	use->has_key = false;
}

static void make_key(void)
{
	has_key = pthread_key_create(&key, use_free) == 0;
}

/* False: no memory, and nothing has changed. Without a key the room of a thread that ends is lost. */
static bool make_room(struct use *use)
{
	unsigned room = use->room ? 2 * use->room : NAMED_LEAST;
	int saved = errno;

	if (use->room >= NAMED_MOST)
		return false;
	struct named *named = realloc(use->named, room * sizeof(*named));
	if (named)
		use->named = named;
	struct held *held = named ? realloc(use->held, room * sizeof(*held)) : NULL;
	if (held) {
		use->held = held;
		use->room = room;
	}
	if (held && !use->has_key) {
		pthread_once(&key_once, make_key);
		use->has_key = has_key && pthread_setspecific(key, use) == 0;
	}
	errno = saved;
	return held != NULL;
}

struct use *use_open(uint64_t id)
{
	struct use *use = &mine;

	if (enter_depth || use->busy)
		return NULL;
	use->busy = true;
	use->unknown = use->per_thread = use->only_traced = false;
	use->stream = NULL;
	use->device = -1;
	uint32_t state = atomic_load(&use_state);
	use->tracked = state & USE_TRACKING;
	use->holding = state & USE_HOLDING;
	use->n_arenas = atomic_load(&n_arenas);
	use->holds = false;
	use->traced = state & USE_TRACE && trace_submit_begin();
	use->id = use->function = id;
	use->n_launches = use->n_named = use->n_held = use->n_all = use->n_ahead = 0;
	return use;
}

void use_stream(struct use *use, CUstream stream, bool per_thread)
{
	use->stream = stream;
	use->per_thread = per_thread;
}

void use_launches(struct use *use, const CUDA_LAUNCH_PARAMS *launches, unsigned n)
{
	use->launches = launches;
	use->n_launches = n;
}

void use_function(struct use *use, uint64_t function)
{
	use->function = function;
}

uint64_t use_what(const struct use *use)
{
	return use->function;
}

void use_unknown(struct use *use)
{
	use->unknown = true;
}

static bool is_held(const struct use *use, const struct mark *mark)
{
	unsigned first = use->n_held > FEW ? use->n_held - FEW : 0;

	for (unsigned i = use->n_held; i > first; i--)
		if (use->held[i - 1].mark == mark)
			return true;
	return false;
}

/* Outside the arenas, so it costs the arenas' names nothing but a look. */
static void name_ahead(struct use *use, CUdeviceptr address)
{
	if (use->n_ahead < AHEAD_MOST && ledger_may_span(address))
		use->ahead[use->n_ahead++] = address;
}

/* Every heap's, also where no engine runs that would ask for it. */
static void name_traced(struct use *use, CUdeviceptr address, size_t bytes)
{
	const struct device *device = device_of(address);

	if (!device || !arena_look(heap_arena(atomic_load(&device->heap)), address))
		return;
	if (use->device < 0)
		use->device = device->ordinal;
	trace_submit_name(address, bytes);
}

bool use_is_heap(CUdeviceptr address)
{
	unsigned n = atomic_load_explicit(&n_arenas, memory_order_acquire);

	for (unsigned i = 0; i < n; i++)
		if (arena_contains(arenas[i].arena, address))
			return arena_look(arenas[i].arena, address) != 0;
	return false;
}

void use_name(struct use *use, CUdeviceptr address, size_t bytes)
{
	unsigned n = atomic_load_explicit(&n_arenas, memory_order_acquire);

	if (use->traced)
		name_traced(use, address, bytes);

	if (atomic_load_explicit(&use_state, memory_order_relaxed) & USE_AHEAD)
		name_ahead(use, address);
	for (unsigned i = 0; i < n; i++) {
		const struct arena *arena = arenas[i].arena;

		if (!arena_contains(arena, address))
			continue;
		uint32_t word = arena_look(arena, address);
		if (!word)
			return;
		uint32_t unit = word & ARENA_SLAB ? arena_unit(arena, address) : word - 1;
		struct mark *mark = &arena->marks[unit];
		if (__builtin_expect(use->n_named == use->room, 0) && !make_room(use)) {
			use->unknown = true;
			return;
		}
		use->named[use->n_named++] = (struct named){address, bytes};
		if (!use->holding || !is_held(use, mark))
			use->held[use->n_held++] = (struct held){arenas[i].engine, mark};
		return;
	}
}

/* ---- admission ---- */

static int by_mark(const void *a, const void *b)
{
	const struct held *x = a, *y = b;

	return x->mark < y->mark ? -1 : x->mark > y->mark;
}

/* The marks that a submission holds: of its blocks, then, if it may touch anything, of everything there is. */
static unsigned n_marks(const struct use *use)
{
	return use->n_held + use->n_all;
}

static struct mark *mark_at(const struct use *use, unsigned i)
{
	return i < use->n_held ? use->held[i].mark : engine_everything(arenas[i - use->n_held].engine);
}

/* Each block once, or a few of them a few times. Before anything is raised of them. */
static void list_once(struct use *use)
{
	unsigned n = 0;

	if (use->n_held <= FEW)
		return;
	qsort(use->held, use->n_held, sizeof(use->held[0]), by_mark);
	for (unsigned i = 0; i < use->n_held; i++)
		if (!n || use->held[n - 1].mark != use->held[i].mark)
			use->held[n++] = use->held[i];
	use->n_held = n;
}

static void let_go(struct use *use)
{
	for (unsigned i = 0; use->holds && i < n_marks(use); i++)
		mark_let_go(mark_at(use, i));
	use->holds = false;
}

static void hold(struct use *use)
{
	if (use->holds)
		return;
	list_once(use);
	for (unsigned i = 0; i < n_marks(use); i++)
		mark_hold(mark_at(use, i));
	use->holds = true;
}

bool use_holds(const struct use *use)
{
	return use->holds;
}

/* Bits of what look() says. Not three bools: put together for the return they cost more than all of the looking. */
#define SEEN_UNMAPPED  1u /* some of what it names is not mapped */
#define SEEN_AWAY      2u /* some is on the host, and worth waiting for */
#define SEEN_DISCARDED 4u

static unsigned look(const struct use *use)
{
	uint64_t unmapped = 0, away = 0, discarded = 0;

	for (unsigned i = 0; i < n_marks(use); i++) {
		const struct mark *mark = mark_at(use, i);

		unmapped |= atomic_load(&mark->unmapped);
		away |= atomic_load_explicit(&mark->away, memory_order_relaxed);
		discarded |= atomic_load_explicit(&mark->discarded, memory_order_relaxed);
	}
	return (unmapped ? SEEN_UNMAPPED : 0) | (away ? SEEN_AWAY : 0) | (discarded ? SEEN_DISCARDED : 0);
}

/*
 * What was discarded of what this submission names is of use again: before it is inside the driver (discard.c), but not
 * before it has waited, for what has come in by then need not be copied.
 */
static void undiscard(struct use *use)
{
	for (unsigned i = 0; i < n_marks(use); i++)
		if (atomic_load_explicit(&mark_at(use, i)->discarded, memory_order_relaxed))
			atomic_store(&mark_at(use, i)->discarded, 0);
}

/* Each engine takes what lies in its heap; nearly always there is one. */
static void log_it(const struct use *use)
{
	unsigned n = atomic_load(&n_arenas);

	for (unsigned i = 0; i < n && use->n_named; i++)
		engine_log(arenas[i].engine, use->function, use->named, use->n_named);
}

static void wait_for_it(const struct use *use)
{
	unsigned n = atomic_load(&n_arenas);

	for (unsigned i = 0; i < n; i++)
		engine_wait(arenas[i].engine, use->named, use->n_named, use->unknown);
}

/*
 * Tell the trace of the wait since *since: once it has ended, and every so often while it lasts. Not each time that was
 * asked: of an engine that is dead the answer comes at once, and may be the same for ever.
 */
#define TELL_NS UINT64_C(1000000000)
static void tell_wait(const struct use *use, bool ended, uint64_t *since)
{
	uint64_t now = *since ? clock_now() : 0;

	if (!*since || (!ended && now - *since < TELL_NS))
		return;
	trace_event_at(wait, *since, use->device < 0 ? 0 : (uint64_t)use->device, now - *since,
		       trace_function(use->function, (uint32_t)use->id));
	*since = now;
}

/*
 * The slow path: something is on the host or on its way. The blocks wait (they may come in, but not go out) while the
 * mover does what it can; then they are held. Once the mover has had its say only what is not mapped at all is waited
 * for.
 */
static unsigned wait_and_hold(struct use *use)
{
	uint64_t since = trace_is_on() ? clock_now() : 0;
	unsigned seen;

	let_go(use);
	list_once(use);
	for (unsigned i = 0; i < n_marks(use); i++)
		atomic_fetch_add(&mark_at(use, i)->waits, 1);
	done_flush();
	do {
		wait_for_it(use);
		hold(use);
		seen = look(use);
		if (!use_is_tracking())
			seen &= ~SEEN_UNMAPPED;
		tell_wait(use, !(seen & SEEN_UNMAPPED), &since);
		if (seen & SEEN_UNMAPPED)
			let_go(use);
	} while (seen & SEEN_UNMAPPED);
	for (unsigned i = 0; i < n_marks(use); i++)
		atomic_fetch_sub(&mark_at(use, i)->waits, 1);
	return seen;
}

/* What is run by a launch, of a kernel or a graph, is a handle; the numbers of copies and sets have the highest bit. */
static void bring_ahead(const struct use *use)
{
	int saved = errno;

	if (!(use->function >> 63))
		ahead_launch(use->ahead, use->n_ahead, use->stream, use->per_thread);
	errno = saved;
}

/* Hold what it names, if that is asked for or it has to wait for some of it, until it has been submitted; and log it. */
static void hold_named(struct use *use)
{
	int saved = errno;

	if ((!use->n_named && !use->unknown) || !atomic_load(&n_arenas))
		return;
	use->n_all = use->unknown ? atomic_load(&n_arenas) : 0;
	if (atomic_load(&use_state) & USE_HOLDING)
		hold(use);
	log_it(use);
	unsigned seen = look(use);
	/* Inside a capture nothing is run, and nothing of ours may wait. */
	if (__builtin_expect(seen & SEEN_UNMAPPED || (seen & SEEN_AWAY && !capture_is_open()), 0))
		seen = wait_and_hold(use);
	if (__builtin_expect(seen & SEEN_DISCARDED, 0))
		undiscard(use);
	errno = saved;
}

/*
 * Tracking was switched on, or another device's engine came, while this submission was read: what it has named may be a
 * part. From outside the driver nobody saw it, so the mover may be moving already; it counts as one that may touch
 * anything.
 */
static bool is_late(const struct use *use, uint32_t state)
{
	return state & USE_TRACKING && (!use->tracked || use->n_arenas != atomic_load(&n_arenas));
}

static void hold_late(struct use *use)
{
	let_go(use);
	use->n_arenas = atomic_load(&n_arenas);
	use->tracked = use->unknown = true;
	hold_named(use);
}

/* It has held nothing so far, and is asked to; or it is to wait at the gate: what it names stays where it is meanwhile. */
static void hold_now(struct use *use)
{
	int saved = errno;

	hold(use);
	unsigned seen = look(use);
	if (seen & SEEN_UNMAPPED)
		seen = wait_and_hold(use);
	if (seen & SEEN_DISCARDED)
		undiscard(use);
	errno = saved;
}

/* Raised before it is looked: what is inside the driver now, tracking that begins later waits for (use_is_quiet). */
static struct use_stripe *enter_as(const struct use *use, uint32_t *ret_state)
{
	struct use_stripe *stripe = use_enter();

	if (use) {
		atomic_store_explicit(&stripe->id, (uint32_t)use->id, memory_order_relaxed);
		atomic_store_explicit(&stripe->function, use->function, memory_order_relaxed);
	}
	*ret_state = atomic_load(&use_state);
	return stripe;
}

struct use_stripe *use_admit(struct use *use)
{
	uint32_t state;

	if (use && use->traced)
		trace_submit_commit(use->function, (uint32_t)use->id, use->device);
	if (use && use->n_ahead)
		bring_ahead(use);
	if (use)
		hold_named(use);
	for (;;) {
		struct use_stripe *stripe = enter_as(use, &state);
		bool late = use && is_late(use, state);
		bool stop = state & (USE_DRAINING | USE_CLOSED) && !enter_depth;
		bool loose = use && !use->holds && (stop || state & USE_HOLDING) && n_marks(use);

		if (__builtin_expect(!late && !stop && !loose, 1)) {
			if (use)
				use->only_traced = !n_marks(use) && !(state & ~USE_TRACE);
			if (use && (use->tracked || use->traced))
				stats_add(STAT_submissions, 1);
			return stripe;
		}
		use_leave(stripe);
		if (late)
			hold_late(use);
		else if (loose)
			hold_now(use);
		else
			use_wait_at_gate();
	}
}

/* The number by which all of it is counted: the last one, where each launch of several has its own. */
static uint64_t count(const struct use *use, bool hurry)
{
	struct done_what what = {use->function, (uint32_t)use->id};
	uint64_t number = done_submitted(use->stream, use->per_thread, &what, hurry);

	for (unsigned i = 1; i < use->n_launches; i++) {
		what.function = (uintptr_t)use->launches[i].function;
		number = done_submitted(use->launches[i].hStream, use->per_thread, &what, hurry);
	}
	return number;
}

void use_close(struct use *use, struct use_stripe *stripe)
{
	if (use) {
		const struct engine *engine = use->n_held ? use->held[0].engine : use->n_all ? arenas[0].engine : NULL;
		int saved = errno;
		uint64_t number = use->only_traced ? 0 : count(use, engine && engine_is_hungry(engine));

		errno = saved;
		for (unsigned i = 0; use->holds && i < n_marks(use); i++)
			mark_submitted(mark_at(use, i), number);
		use->busy = false;
	}
	use_leave(stripe);
}

/* ---- the mover's side ---- */

bool use_add_arena(const struct arena *arena, struct engine *engine)
{
	unsigned n = atomic_load(&n_arenas);

	if (n == DEVICE_MOST)
		return false;
	arenas[n].arena = arena;
	arenas[n].engine = engine;
	atomic_store_explicit(&n_arenas, n + 1, memory_order_release);
	return true;
}

bool use_is_quiet(void)
{
	for (unsigned i = 0; i < USE_STRIPES; i++)
		if (atomic_load(&use_stripes[i].inside))
			return false;
	return true;
}

uint64_t use_empty_stripes(void)
{
	uint64_t empty = 0;

	_Static_assert(USE_STRIPES == 64, "a bit each");
	for (unsigned i = 0; i < USE_STRIPES; i++)
		if (atomic_load(&use_stripes[i].inside) == (&use_stripes[i] == use_my_stripe))
			empty |= UINT64_C(1) << i;
	return empty;
}

void use_each_inside(void (*visit)(void *argument, const struct done_what *what), void *argument)
{
	for (unsigned i = 0; i < USE_STRIPES; i++) {
		struct done_what what = {atomic_load_explicit(&use_stripes[i].function, memory_order_relaxed),
					 atomic_load_explicit(&use_stripes[i].id, memory_order_relaxed)};

		if (atomic_load(&use_stripes[i].inside) && what.function)
			visit(argument, &what);
	}
}
