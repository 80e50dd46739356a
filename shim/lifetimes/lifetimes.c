// SPDX-License-Identifier: Apache-2.0
/*
 * Who reports what: how blocks of a reporting allocator are told from others, and what is written into the ring
 * (lifetimes_ring.c).
 */
#include "shim/base/call_site.h"
#include "shim/base/log.h"
#include "shim/lifetimes/types.h"
#include "shim/trace/trace.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* What the room keeps for the process. */
struct lifetimes_state lifetimes_state;

/* ---- creation ---- */

static size_t teller_bytes(uint64_t bytes)
{
	return (size_t)(bytes / LIVE_MAP_UNIT + 1) * sizeof(_Atomic uint8_t);
}

static void drop_memory(struct lifetimes *lifetimes)
{
	lazy_memory_free(lifetimes->ring, LIFETIMES_RING * sizeof(lifetimes->ring[0]));
	lazy_memory_free(lifetimes->tellers, teller_bytes(lifetimes->bytes));
	live_map_free(lifetimes->map);
	crossings_free(lifetimes->crossings);
	free(lifetimes);
}

struct lifetimes *lifetimes_new(int device, uint64_t base, uint64_t bytes)
{
	struct lifetimes *lifetimes = aligned_alloc(64, sizeof(*lifetimes));

	if (!lifetimes)
		return NULL;
	memset(lifetimes, 0, sizeof(*lifetimes));
	lifetimes->device = device;
	lifetimes->base = base;
	lifetimes->bytes = bytes;
	lifetimes->map = live_map_new(bytes);
	lifetimes->crossings = crossings_new(bytes);
	lifetimes->ring = lazy_memory_new(LIFETIMES_RING * sizeof(lifetimes->ring[0]));
	lifetimes->tellers = lazy_memory_new(teller_bytes(bytes));
	if (!lifetimes->map || !lifetimes->crossings || !lifetimes->ring || !lifetimes->tellers) {
		drop_memory(lifetimes);
		return NULL;
	}
	atomic_store(&lifetimes_state.all[device], lifetimes);
	if (atomic_load(&lifetimes_state.n) <= (unsigned)device)
		atomic_store(&lifetimes_state.n, (unsigned)device + 1);
	return lifetimes;
}

void lifetimes_free(struct lifetimes *lifetimes)
{
	if (!lifetimes)
		return;
	atomic_store(&lifetimes_state.all[lifetimes->device], NULL);
	memset(&lifetimes_state.sums[lifetimes->device], 0, sizeof(lifetimes_state.sums[0]));
	drop_memory(lifetimes);
}

/* Returns the heap that has this address; NULL: none. */
static struct lifetimes *lifetimes_of(uint64_t address)
{
	unsigned n = atomic_load_explicit(&lifetimes_state.n, memory_order_acquire);

	for (unsigned i = 0; i < n; i++) {
		struct lifetimes *one = atomic_load_explicit(&lifetimes_state.all[i], memory_order_acquire);

		if (one && address - one->base < one->bytes)
			return one;
	}
	return NULL;
}

/* ---- which blocks are reported ---- */

/*
 * What this thread has allocated last, since its last event; parts that the program places in one space count as one:
 * PyTorch maps what is missing on both sides of what it has.
 */
#define PARTS_MOST 8
static __thread struct {
	struct lifetimes *lifetimes; /* NULL: nothing */
	unsigned n;
	struct live_range part[PARTS_MOST];
	uint64_t bytes;     /* of all parts */
	uint64_t space;     /* that the program has reserved; 0: none, the library has placed it */
	uint64_t submitted; /* by then, by all threads (stats_submitted) */
	const void *object; /* that has asked for it */
} latest __attribute__((tls_model("initial-exec")));
static __thread uint32_t my_number __attribute__((tls_model("initial-exec"))); /* of this thread; 0: none yet */
static __thread unsigned my_stripe __attribute__((tls_model("initial-exec"))); /* its own (stats.h); 0: none */

void lifetimes_allocated(struct lifetimes *lifetimes, uint64_t address, uint64_t bytes, uint64_t space,
			 const void *asker)
{
	if (!lifetimes || address % LIVE_MAP_UNIT)
		return;
	bool more = space && latest.space == space && latest.lifetimes == lifetimes && latest.object == asker;
	if (more && latest.part[latest.n - 1].end == address) {
		latest.part[latest.n - 1].end += bytes;
		latest.bytes += bytes;
		return;
	}
	more = more && latest.n < PARTS_MOST;
	latest.n = more ? latest.n : 0;
	latest.bytes = more ? latest.bytes + bytes : bytes;
	latest.part[latest.n++] = (struct live_range){address, address + bytes};
	if (more)
		return;
	latest.lifetimes = lifetimes;
	latest.space = space;
	latest.object = asker;
	latest.submitted = stats_submitted();
}

/* Returns how many parts of it have some of these bytes. */
static unsigned latest_parts_in(uint64_t begin, uint64_t end)
{
	unsigned n = 0;

	for (unsigned i = 0; i < latest.n; i++)
		n += latest.part[i].begin < end && latest.part[i].end > begin;
	return n;
}

static uint64_t whole_units(uint64_t bytes)
{
	return (bytes + LIVE_MAP_UNIT - 1) / LIVE_MAP_UNIT * LIVE_MAP_UNIT;
}

/*
 * Called by the thread that reports, not by the reader of the ring: before something spills, nobody reads it, and a
 * trace of that time must have its births, too. site: as in struct live_report.
 */
static void lifetimes_trace(int on, enum lifetimes_kind kind, uint64_t address, uint64_t bytes, unsigned site)
{
	uint64_t device = (uint64_t)on;

	switch (kind) {
	case LIFETIMES_REPORTED:
		trace_event(kept, device, address, bytes);
		break;
	case LIFETIMES_ADOPTED:
		trace_event(kept, device, address, bytes);
		trace_event(born, device, address, bytes, 0);
		break;
	case LIFETIMES_BORN:
		trace_event(born, device, address, bytes, trace_site(call_site_numbered(site)));
		break;
	case LIFETIMES_DIED:
		trace_event(died, device, address, bytes);
		break;
	case LIFETIMES_DISTRUSTED:
		trace_event(doubted, device, address, bytes);
		break;
	case LIFETIMES_DISTRUSTED_ALL:
		trace_event(doubted, device, 0, 0);
		break;
	case LIFETIMES_FREED: /* the trace has the end of the allocation */
	case LIFETIMES_LOST:  /* it has those */
		break;
	}
}

/*
 * Always inlined, for births and deaths: their report goes from registers into the record, where a copy on the stack
 * that has just been written would hold the next reads up.
 */
static inline __attribute__((always_inline)) void write_range(struct lifetimes *lifetimes, enum lifetimes_kind kind,
							      uint64_t address, uint64_t bytes,
							      struct live_report report)
{
	uint64_t begin = address - lifetimes->base, at;

	if (trace_is_on())
		lifetimes_trace(lifetimes->device, kind, address, bytes, report.site);
	struct lifetimes_record *record = lifetimes_begin_write(lifetimes, &at);
	if (__builtin_expect(!record, 0)) {
		lifetimes_lose(lifetimes, kind);
		return;
	}
	record->kind = kind;
	record->begin = begin;
	record->end = begin + bytes;
	record->report = report;
	lifetimes_end_write(lifetimes, record, at);
}

/* Returns whose block has this byte of the address space. */
static enum teller teller_at(const struct lifetimes *lifetimes, uint64_t address)
{
	return atomic_load(&lifetimes->tellers[(address - lifetimes->base) / LIVE_MAP_UNIT]);
}

static const struct live_report no_report;

/* Sets whose these units are. Returns how many of the bytes were the reporting allocator's. */
static uint64_t set_teller(struct lifetimes *lifetimes, uint64_t address, uint64_t bytes, enum teller teller)
{
	uint64_t begin = address - lifetimes->base, had = 0;

	for (uint64_t at = begin; at < begin + bytes; at += LIVE_MAP_UNIT) {
		uint8_t was = atomic_exchange_explicit(&lifetimes->tellers[at / LIVE_MAP_UNIT], (uint8_t)teller,
						       memory_order_relaxed);

		if (was == TELLER_ALLOCATOR || was == TELLER_ALLOCATOR_DISTRUSTED || was == TELLER_ALLOCATOR_UNTRUSTED)
			had += begin + bytes - at < LIVE_MAP_UNIT ? begin + bytes - at : LIVE_MAP_UNIT;
	}
	return had;
}

void lifetimes_freed(struct lifetimes *lifetimes, uint64_t address, uint64_t bytes)
{
	if (!lifetimes)
		return;
	if (atomic_load_explicit(&lifetimes->any_on_use, memory_order_relaxed))
		crossings_unwatch(lifetimes->crossings, address - lifetimes->base, address - lifetimes->base + bytes);
	if (latest.lifetimes == lifetimes && latest_parts_in(address, address + bytes))
		latest.lifetimes = NULL;
	bool any = atomic_load_explicit(&lifetimes->any, memory_order_relaxed);
	if (!any && !atomic_load_explicit(&lifetimes->any_graph, memory_order_relaxed))
		return;
	atomic_fetch_add_explicit(&lifetimes_state.sums[lifetimes->device].freed,
				  set_teller(lifetimes, address, bytes, TELLER_NONE), memory_order_relaxed);
	if (any)
		write_range(lifetimes, LIFETIMES_FREED, address, whole_units(bytes), no_report);
}

/* What a unit becomes that a graph names. */
static const uint8_t named_by_graph[] = {
    [TELLER_NONE] = TELLER_NONE_GRAPH,
    [TELLER_ALLOCATOR] = TELLER_ALLOCATOR_DISTRUSTED,
    [TELLER_ALLOCATOR_DISTRUSTED] = TELLER_ALLOCATOR_DISTRUSTED,
    [TELLER_ALLOCATOR_UNTRUSTED] = TELLER_ALLOCATOR_DISTRUSTED,
    [TELLER_PROGRAM] = TELLER_PROGRAM_DISTRUSTED,
    [TELLER_PROGRAM_DISTRUSTED] = TELLER_PROGRAM_DISTRUSTED,
    [TELLER_LIBRARY] = TELLER_LIBRARY_DISTRUSTED,
    [TELLER_LIBRARY_DISTRUSTED] = TELLER_LIBRARY_DISTRUSTED,
    [TELLER_NONE_GRAPH] = TELLER_NONE_GRAPH,
};

/* Returns whether any of these units was reported and not marked. */
static bool mark_distrusted(struct lifetimes *lifetimes, uint64_t address, uint64_t bytes)
{
	uint64_t begin = address - lifetimes->base;
	bool any = false;

	atomic_store_explicit(&lifetimes->any_graph, true, memory_order_relaxed);
	for (uint64_t at = begin; at < begin + bytes; at += LIVE_MAP_UNIT) {
		_Atomic uint8_t *teller = &lifetimes->tellers[at / LIVE_MAP_UNIT];
		uint8_t was = atomic_load(teller);

		while (was != named_by_graph[was] && !atomic_compare_exchange_weak(teller, &was, named_by_graph[was]))
			;
		any |= was == TELLER_ALLOCATOR || was == TELLER_PROGRAM || was == TELLER_LIBRARY;
	}
	return any;
}

void lifetimes_distrust(struct lifetimes *lifetimes, uint64_t named, uint64_t address, uint64_t bytes)
{
	if (!lifetimes)
		return;
	if (atomic_load_explicit(&lifetimes->any_reserved, memory_order_relaxed))
		crossings_doubt(lifetimes->crossings, address - lifetimes->base);
	/*
	 * A graph names a block once for each parameter. Whoever marks a unit is counted before, and until its event is
	 * in the ring: who sees the mark and no count has the event before whatever it submits.
	 */
	uint8_t teller = teller_at(lifetimes, named);
	if (teller == named_by_graph[teller] && !atomic_load(&lifetimes->n_marking))
		return;
	atomic_fetch_add(&lifetimes->n_marking, 1);
	if (mark_distrusted(lifetimes, address, bytes) || atomic_load(&lifetimes->n_marking) > 1)
		write_range(lifetimes, LIFETIMES_DISTRUSTED, address, whole_units(bytes), no_report);
	atomic_fetch_sub(&lifetimes->n_marking, 1);
}

void lifetimes_reserved(struct lifetimes *lifetimes, uint64_t address)
{
	if (!lifetimes)
		return;
	atomic_store(&lifetimes->any_reserved, true);
	crossings_renew(lifetimes->crossings, address - lifetimes->base);
}

/* Returns whether all units of the range are in this state. */
static bool is_all(const struct lifetimes *lifetimes, uint64_t address, uint64_t bytes, enum teller teller)
{
	for (uint64_t at = 0; at < bytes; at += LIVE_MAP_UNIT)
		if (teller_at(lifetimes, address + at) != teller)
			return false;
	return true;
}

bool lifetimes_is_reported(const struct lifetimes *lifetimes, uint64_t address, uint64_t bytes)
{
	return is_all(lifetimes, address, bytes, TELLER_ALLOCATOR);
}

bool lifetimes_is_declared(const struct lifetimes *lifetimes, uint64_t address)
{
	enum teller teller = teller_at(lifetimes, address);

	return teller == TELLER_PROGRAM || teller == TELLER_PROGRAM_DISTRUSTED;
}

struct crossings *lifetimes_crossings(struct lifetimes *lifetimes)
{
	return lifetimes->crossings;
}

void lifetimes_on_use(struct lifetimes *lifetimes, uint64_t address, uint64_t bytes)
{
	if (!lifetimes)
		return;
	atomic_store(&lifetimes->any_on_use, true);
	crossings_watch(lifetimes->crossings, address - lifetimes->base,
			address - lifetimes->base + whole_units(bytes));
}

bool lifetimes_reach(struct lifetimes *lifetimes, uint64_t address, uint64_t *ret_begin, uint64_t *ret_bytes)
{
	struct live_range range;

	if (!lifetimes || !crossings_reach(lifetimes->crossings, address - lifetimes->base, &range))
		return false;
	*ret_begin = lifetimes->base + range.begin;
	*ret_bytes = range.end - range.begin;
	return true;
}

/* Keeps how far pointers reach, where somebody asks for it. */
static void tell_crossings(struct lifetimes *lifetimes, const struct lifetimes_report *report)
{
	bool on_use = atomic_load_explicit(&lifetimes->any_on_use, memory_order_relaxed);
	uint64_t begin = report->address - lifetimes->base;

	if (report->born && (on_use || atomic_load_explicit(&lifetimes->any_reserved, memory_order_relaxed)))
		crossings_born(lifetimes->crossings, begin, begin + report->bytes);
	else if (on_use)
		crossings_died(lifetimes->crossings, begin, begin + report->bytes);
}

/* All that is reported so far is alive as a whole. device: of this one, whose allocator is doubted; -1: of all. */
static void distrust_reported(int device)
{
	unsigned n = atomic_load_explicit(&lifetimes_state.n, memory_order_acquire);

	for (unsigned i = 0; i < n; i++) {
		struct lifetimes *one = atomic_load_explicit(&lifetimes_state.all[i], memory_order_acquire);

		if (!one || (device >= 0 && one->device != device) ||
		    !atomic_load_explicit(&one->any, memory_order_relaxed))
			continue;
		if (device >= 0)
			crossings_doubt_all(one->crossings);
		write_range(one, LIFETIMES_DISTRUSTED_ALL, one->base, one->bytes, no_report);
	}
}

void lifetimes_distrust_all(void)
{
	atomic_store(&lifetimes_state.any_graph_unread, true);
	distrust_reported(-1);
}

/*
 * What this thread has allocated last is the allocator's. filled: it may hold something, and is alive as a whole. So is
 * what was placed in address space that a graph has named: the graph may use all of it.
 */
static void take_latest(struct lifetimes *lifetimes, bool filled)
{
	atomic_store_explicit(&lifetimes->any, true, memory_order_relaxed);
	for (unsigned i = 0; i < latest.n; i++) {
		uint64_t at = latest.part[i].begin, bytes = latest.part[i].end - at;

		set_teller(lifetimes, at, bytes, TELLER_ALLOCATOR);
		/* Who doubts the space after this finds the units, and writes an event (lifetimes_distrust). */
		atomic_thread_fence(memory_order_seq_cst);
		if (filled ||
		    (latest.space && crossings_is_doubted(lifetimes->crossings, latest.space - lifetimes->base)))
			set_teller(lifetimes, at, bytes, TELLER_ALLOCATOR_UNTRUSTED);
		else /* whoever made it may have filled it */
			write_range(lifetimes, LIFETIMES_REPORTED, at, whole_units(bytes),
				    (struct live_report){.empty = stats_submitted() == latest.submitted});
	}
}

/*
 * Returns whether something is born in each part of what this thread has allocated last, and the allocator itself asked
 * for that.
 */
static bool is_in_latest(const struct lifetimes *lifetimes, const struct lifetimes_report *report)
{
	return report->born && lifetimes && latest.lifetimes == lifetimes && lifetimes->device == report->device &&
	       latest_parts_in(report->address, report->address + report->bytes) == latest.n && latest.object &&
	       latest.object == report->reporter;
}

/*
 * Compares what the allocator says that it has reserved with what is known. If it has grown by what it has allocated
 * last, and what is born lies there, that is its block. If it has shrunk and none of its blocks were freed, or has
 * another sum with its new block, it has given some away.
 *
 * Memory that the program has placed where its own was unmapped since the last event may be filled with what was there.
 *
 * lifetimes: of the heap that has the range; NULL: none.
 */
static __attribute__((noinline, cold)) void compare_reserved(struct lifetimes *lifetimes,
							     const struct lifetimes_report *report)
{
	struct lifetimes_sums *sums = &lifetimes_state.sums[report->device];
	uint64_t before = atomic_exchange_explicit(&sums->reserved, report->reserved, memory_order_relaxed);
	uint64_t freed = atomic_exchange_explicit(&sums->freed, 0, memory_order_relaxed);
	uint64_t left = before > freed ? before - freed : 0;
	bool in_latest = is_in_latest(lifetimes, report);

	if (report->reserved < left || (in_latest && report->reserved != left + latest.bytes))
		distrust_reported(report->device);
	else if (in_latest)
		take_latest(lifetimes,
			    (latest.space && freed) || atomic_load_explicit(&sums->incomplete, memory_order_relaxed));
}

/*
 * What is born unseen looks dead, so what the allocator says that is in use must be the sum of what it has reported. It
 * is noticed at the next report; a version that leaves some out does so from the start, before anything has died.
 */
static __attribute__((noinline, cold)) void note_incomplete(struct lifetimes_sums *sums, int device)
{
	if (atomic_exchange(&sums->incomplete, true))
		return;
	log_once("PyTorch does not report all births and deaths of tensors; all of its memory is taken to be alive");
	distrust_reported(device);
}

static void compare_sums(struct lifetimes *lifetimes, const struct lifetimes_report *report)
{
	struct lifetimes_sums *sums = &lifetimes_state.sums[report->device];
	uint64_t in_use = atomic_load_explicit(&sums->allocated, memory_order_relaxed);

	atomic_store_explicit(&sums->allocated, report->allocated, memory_order_relaxed);
	if (in_use + (report->born ? report->bytes : -report->bytes) != report->allocated)
		note_incomplete(sums, report->device);
	/* Nearly always nothing has changed. To write what is there already would cost a third of a report. */
	if (latest.lifetimes || atomic_load_explicit(&sums->freed, memory_order_relaxed) ||
	    atomic_load_explicit(&sums->reserved, memory_order_relaxed) != report->reserved)
		compare_reserved(lifetimes, report);
	latest.lifetimes = NULL;
}

static void begin_to_report(void)
{
	if (my_number)
		return;
	my_number = atomic_fetch_add_explicit(&lifetimes_state.n_threads, 1, memory_order_relaxed) + 1;
	my_stripe = stats_own_stripe();
	if (!my_stripe)
		return;
	struct lifetimes_reporter *reporter = &lifetimes_state.reporters[my_stripe - STATS_SHARED - 1];
	reporter->thread = my_number;
	atomic_store_explicit(&reporter->stripe, my_stripe, memory_order_release);
}

/* empty: of a birth, as in live_map.h. ours: it is about memory that the library divides. */
static void write_report(struct lifetimes *lifetimes, const struct lifetimes_report *report, bool empty, bool ours)
{
	unsigned site = report->born && !ours ? birth_lines_name(report->address, report->bytes) : 0;
	/* How many submissions this thread has made, as far as it is known. */
	uint64_t own = my_stripe ? stats_submissions(my_stripe) : report->own;

	/* It counts as a death before the thread's first submission, so no submission since then need be known. */
	if (ours && !report->born)
		own = 0;
	write_range(lifetimes, report->born ? LIFETIMES_BORN : LIFETIMES_DIED, report->address, report->bytes,
		    (struct live_report){report->number, own, my_number, empty, (uint16_t)site});
	atomic_thread_fence(memory_order_release); /* see lifetimes_hear() */
}

void lifetimes_tell(const struct lifetimes_report *report)
{
	struct lifetimes *lifetimes = lifetimes_of(report->address);

	if ((unsigned)report->device >= DEVICE_MOST)
		return;
	if (lifetimes)
		tell_crossings(lifetimes, report);
	compare_sums(lifetimes, report);
	if (!lifetimes)
		return;
	begin_to_report();
	if (!atomic_load_explicit(&lifetimes->any, memory_order_relaxed))
		return;
	if (report->block_bytes) {
		lifetimes_distrust(lifetimes, report->address, report->block, report->block_bytes);
		return;
	}
	/*
	 * What the program's allocator does inside an allocation of ours that it was given says nothing of who else
	 * does.
	 */
	enum teller teller = teller_at(lifetimes, report->address);
	if (teller != TELLER_LIBRARY && teller != TELLER_LIBRARY_DISTRUSTED)
		write_report(lifetimes, report, false, false);
}

/*
 * The program says from now on what is alive in a block, or in the part that the block has grown by, unless it may not;
 * a block of which it may for a part is distrusted. A graph that names it meanwhile has marked a unit, or finds it and
 * has it distrusted.
 */
static void adopt(struct lifetimes *lifetimes, uint64_t block, uint64_t bytes, bool born)
{
	uint64_t begin = block - lifetimes->base, end = begin + bytes, from = end;
	enum teller first = teller_at(lifetimes, block);
	bool others = false;

	if (first != TELLER_PROGRAM && (first != TELLER_NONE || !born))
		return;
	atomic_store_explicit(&lifetimes->any, true, memory_order_relaxed);
	for (uint64_t at = begin; at < end; at += LIVE_MAP_UNIT) {
		uint8_t was = TELLER_NONE;

		if (!atomic_compare_exchange_strong(&lifetimes->tellers[at / LIVE_MAP_UNIT], &was, TELLER_PROGRAM))
			others |= was != TELLER_PROGRAM;
		else if (from == end)
			from = at;
	}
	/* What another thread has adopted of it meanwhile is alive once more. */
	if (from < end)
		write_range(lifetimes, LIFETIMES_ADOPTED, lifetimes->base + from, whole_units(end - from), no_report);
	if (others)
		lifetimes_distrust(lifetimes, block, block, bytes);
}

void lifetimes_declare(const struct lifetimes_report *report, uint64_t block, uint64_t block_bytes)
{
	struct lifetimes *lifetimes = lifetimes_of(block);

	if (!lifetimes || !report->bytes || block % LIVE_MAP_UNIT)
		return;
	if (atomic_load_explicit(&lifetimes->any_on_use, memory_order_relaxed))
		tell_crossings(lifetimes, report);
	if (report->block_bytes || atomic_load(&lifetimes_state.any_graph_unread)) {
		lifetimes_distrust(lifetimes, report->address, block, block_bytes);
		return;
	}
	begin_to_report();
	if (!is_all(lifetimes, block, block_bytes, TELLER_PROGRAM))
		adopt(lifetimes, block, block_bytes, report->born);
	/* Also if a graph has named it, whose event may come later. */
	if (lifetimes_is_declared(lifetimes, block))
		write_report(lifetimes, report, report->born, false);
}

void lifetimes_own(struct lifetimes *lifetimes, uint64_t address, uint64_t bytes)
{
	latest.lifetimes = NULL;
	atomic_store_explicit(&lifetimes->any, true, memory_order_relaxed);
	set_teller(lifetimes, address, bytes, TELLER_LIBRARY);
	write_range(lifetimes, LIFETIMES_REPORTED, address, bytes, (struct live_report){.empty = true});
}

void lifetimes_own_tell(struct lifetimes *lifetimes, const struct lifetimes_report *report)
{
	begin_to_report();
	write_report(lifetimes, report, report->born, true);
}
