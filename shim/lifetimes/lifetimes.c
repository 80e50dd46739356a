/*
 * The ring of events and its reader, and how blocks of a reporting allocator are told from others.
 *
 * A writer reserves a place by advancing the head, fills it, and stores its sequence number last; the reader frees a
 * place by storing the number that the writer of the next round waits for. One word says who reads: nobody, a writer
 * that found the ring nearly full, or the mover, which keeps it for good.
 */
#include "shim/lifetimes/lifetimes.h"
#include "shim/base/lazy_memory.h"
#include "shim/base/log.h"
#include "shim/lifetimes/birth_lines.h"
#include "shim/lifetimes/lifetimes_state.h"
#include "shim/trace/trace.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* 24 steps of a GPT whose tensors are born and die 2,700 times a step. */
#define RING        (1u << 16)
#define NEARLY_FULL (RING / 4 * 3)

struct record {
	_Atomic uint64_t sequence; /* position + 1: filled; position + RING: free for the next round */
	uint64_t begin, end;
	struct live_report report;
	size_t position;
	enum lifetimes_kind kind;
};

enum reader { READER_NONE, READER_WRITER, READER_MOVER };

/* Of a unit: whose block is there. */
enum its {
	NOT_ITS,
	ITS,                 /* the reporting allocator's */
	ITS_DISTRUSTED,      /* and an event said that it is distrusted */
	PROGRAMS,            /* the program itself says what is alive in it */
	PROGRAMS_DISTRUSTED, /* the same as ITS_DISTRUSTED */
	GRAPHS,              /* nobody reports about it, and a graph has named it */
};

struct lifetimes {
	uint64_t base, bytes;
	int device;
	struct live_map *map;
	struct crossings *crossings;
	struct record *ring;
	_Atomic bool any;                       /* a block was reported */
	_Atomic bool any_graph;                 /* a graph has named something */
	_Atomic bool placed;                    /* the program has placed one itself */
	_Atomic bool lost;                      /* an event found no place: none is written or read any more */
	bool gave_up;                           /* everything was distrusted for it; only the reader touches it */
	_Atomic int reader;                     /* enum reader; the map belongs to it */
	const _Atomic size_t *_Atomic position; /* of the submission log; NULL: nothing is logged yet */
	_Atomic uint64_t reserved;              /* bytes that the allocator said last */
	_Atomic uint64_t freed;                 /* bytes of its blocks that were freed since its last event */
	_Atomic uint8_t *its;                   /* of each unit of the address space: enum its */
	_Atomic uint64_t head __attribute__((aligned(64)));
	uint64_t tail __attribute__((aligned(64))); /* only the reader touches it */
};

/* ---- creation ---- */

static size_t its_bytes(uint64_t bytes)
{
	return (size_t)(bytes / LIVE_MAP_UNIT + 1) * sizeof(_Atomic uint8_t);
}

static void drop_memory(struct lifetimes *lifetimes)
{
	lazy_memory_free(lifetimes->ring, RING * sizeof(lifetimes->ring[0]));
	lazy_memory_free(lifetimes->its, its_bytes(lifetimes->bytes));
	live_map_free(lifetimes->map);
	crossings_free(lifetimes->crossings);
	free(lifetimes);
}

/* Makes the heap known to those who write events. Returns false if there are too many. */
static bool add_heap(struct lifetimes *lifetimes)
{
	for (unsigned i = 0; i < LIFETIMES_HEAPS; i++) {
		struct lifetimes *none = NULL;

		if (atomic_compare_exchange_strong(&lifetimes_state.all[i], &none, lifetimes)) {
			unsigned n = atomic_load(&lifetimes_state.n);

			while (n <= i && !atomic_compare_exchange_weak(&lifetimes_state.n, &n, i + 1))
				;
			return true;
		}
	}
	return false;
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
	lifetimes->ring = lazy_memory_new(RING * sizeof(lifetimes->ring[0]));
	lifetimes->its = lazy_memory_new(its_bytes(bytes));
	if (lifetimes->map && lifetimes->crossings && lifetimes->ring && lifetimes->its && add_heap(lifetimes))
		return lifetimes;
	drop_memory(lifetimes);
	return NULL;
}

void lifetimes_free(struct lifetimes *lifetimes)
{
	if (!lifetimes)
		return;
	for (unsigned i = 0; i < LIFETIMES_HEAPS; i++)
		if (atomic_load(&lifetimes_state.all[i]) == lifetimes)
			atomic_store(&lifetimes_state.all[i], NULL);
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

/* ---- the ring ---- */

static struct record *record_at(const struct lifetimes *lifetimes, uint64_t at)
{
	return &lifetimes->ring[at % RING];
}

/* The sequence number of a place that a writer may fill: memory of the ring is zeroed at first. */
static uint64_t free_at(uint64_t at)
{
	return at < RING ? 0 : at;
}

static void apply(struct lifetimes *lifetimes, const struct lifetimes_event *event)
{
	switch (event->kind) {
	case LIFETIMES_REPORTED:
		live_map_report(lifetimes->map, event->begin, event->end);
		break;
	case LIFETIMES_ADOPTED:
		/* If a graph has named it meanwhile, the birth is of units that are not reported, and ignored. */
		live_map_report(lifetimes->map, event->begin, event->end);
		live_map_birth(lifetimes->map, event->begin, event->end, event->report);
		break;
	case LIFETIMES_BORN:
		live_map_birth(lifetimes->map, event->begin, event->end, event->report);
		break;
	case LIFETIMES_DIED:
		live_map_death(lifetimes->map, event->begin, event->end, event->report);
		break;
	case LIFETIMES_DISTRUSTED:
		live_map_distrust(lifetimes->map, event->begin, event->end);
		break;
	case LIFETIMES_DISTRUSTED_ALL:
		live_map_distrust_reported(lifetimes->map);
		break;
	case LIFETIMES_FREED:
		live_map_forget(lifetimes->map, event->begin, event->end);
		break;
	}
}

bool lifetimes_read(struct lifetimes *lifetimes, size_t position, struct lifetimes_event *ret)
{
	struct record *record = record_at(lifetimes, lifetimes->tail);

	if (atomic_load(&lifetimes->lost)) {
		if (lifetimes->gave_up)
			return false;
		lifetimes->gave_up = true;
		*ret = (struct lifetimes_event){.kind = LIFETIMES_DISTRUSTED_ALL, .end = lifetimes->bytes};
		apply(lifetimes, ret);
		return true;
	}
	if (atomic_load_explicit(&record->sequence, memory_order_acquire) != lifetimes->tail + 1 ||
	    (ptrdiff_t)(record->position - position) > 0)
		return false;
	*ret = (struct lifetimes_event){record->kind, record->begin, record->end, record->report};
	atomic_store_explicit(&record->sequence, lifetimes->tail + RING, memory_order_release);
	lifetimes->tail++;
	apply(lifetimes, ret);
	return true;
}

bool lifetimes_is_being_written(const struct lifetimes *lifetimes)
{
	return !lifetimes->gave_up && lifetimes->tail != atomic_load_explicit(&lifetimes->head, memory_order_acquire) &&
	       atomic_load_explicit(&record_at(lifetimes, lifetimes->tail)->sequence, memory_order_acquire) !=
		   lifetimes->tail + 1;
}

bool lifetimes_is_unread(const struct lifetimes *lifetimes, uint64_t begin, uint64_t end)
{
	uint64_t head = atomic_load_explicit(&lifetimes->head, memory_order_acquire);

	if (atomic_load(&lifetimes->lost))
		return !lifetimes->gave_up;
	for (uint64_t at = lifetimes->tail; at != head; at++) {
		const struct record *record = record_at(lifetimes, at);

		if (atomic_load_explicit(&record->sequence, memory_order_acquire) != at + 1)
			return true;
		if (record->kind != LIFETIMES_DIED && record->begin < end && record->end > begin)
			return true;
	}
	return false;
}

/* A writer found the ring nearly full, and no mover reads it. */
static void read_as_writer(struct lifetimes *lifetimes)
{
	struct lifetimes_event event;
	int nobody = READER_NONE;

	if (!atomic_compare_exchange_strong(&lifetimes->reader, &nobody, READER_WRITER))
		return;
	while (lifetimes_read(lifetimes, 0, &event))
		;
	atomic_store(&lifetimes->reader, READER_NONE);
}

static void write_record(struct lifetimes *lifetimes, struct lifetimes_event event)
{
	const _Atomic size_t *position = atomic_load_explicit(&lifetimes->position, memory_order_acquire);
	uint64_t head = atomic_load_explicit(&lifetimes->head, memory_order_relaxed);
	size_t at;

	if (atomic_load_explicit(&lifetimes->lost, memory_order_relaxed))
		return;
	do {
		/*
		 * Before the place is reserved: an event in a later place, and what was submitted after it, must not be
		 * read before this one.
		 */
		at = position ? atomic_load_explicit(position, memory_order_relaxed) : 0;
		uint64_t sequence = atomic_load_explicit(&record_at(lifetimes, head)->sequence, memory_order_acquire);

		if (sequence != free_at(head) && (int64_t)(sequence - head) <= 0) {
			atomic_store(&lifetimes->lost, true);
			trace_event(doubted, (uint64_t)lifetimes->device, 0, 0);
			log_once("births and deaths of tensors are not read in time; all memory is taken to be alive "
				 "from now on");
			return;
		}
	} while (!atomic_compare_exchange_weak_explicit(&lifetimes->head, &head, head + 1, memory_order_acq_rel,
							memory_order_acquire));
	struct record *record = record_at(lifetimes, head);
	record->kind = event.kind;
	record->begin = event.begin;
	record->end = event.end;
	record->report = event.report;
	record->position = at;
	atomic_store_explicit(&record->sequence, head + 1, memory_order_release);
	if (head % NEARLY_FULL == NEARLY_FULL - 1 && !position)
		read_as_writer(lifetimes);
}

/* ---- which blocks are reported ---- */

/*
 * What this thread has allocated last, since its last event; parts that the program places one behind the other count
 * as one.
 */
static __thread struct {
	struct lifetimes *lifetimes; /* NULL: nothing */
	uint64_t begin, end;
	bool placed;
} latest __attribute__((tls_model("initial-exec")));
static __thread uint32_t my_number __attribute__((tls_model("initial-exec"))); /* of this thread; 0: none yet */
static __thread unsigned my_stripe __attribute__((tls_model("initial-exec"))); /* its own (stats.h); 0: none */

void lifetimes_allocated(struct lifetimes *lifetimes, uint64_t address, uint64_t bytes, bool placed)
{
	if (!lifetimes || address % LIVE_MAP_UNIT)
		return;
	if (placed)
		atomic_store_explicit(&lifetimes->placed, true, memory_order_relaxed);
	if (placed && latest.placed && latest.lifetimes == lifetimes && latest.end == address) {
		latest.end += bytes;
		return;
	}
	latest.lifetimes = lifetimes;
	latest.begin = address;
	latest.end = address + bytes;
	latest.placed = placed;
}

static uint64_t whole_units(uint64_t bytes)
{
	return (bytes + LIVE_MAP_UNIT - 1) / LIVE_MAP_UNIT * LIVE_MAP_UNIT;
}

static void write_range(struct lifetimes *lifetimes, enum lifetimes_kind kind, uint64_t address, uint64_t bytes,
			struct live_report report)
{
	uint64_t begin = address - lifetimes->base;

	if (trace_is_on() && !atomic_load_explicit(&lifetimes->lost, memory_order_relaxed))
		lifetimes_trace(lifetimes->device, kind, address, bytes, report.site);
	write_record(lifetimes, (struct lifetimes_event){kind, begin, begin + bytes, report});
}

static const struct live_report no_report;

/* Sets whose these units are. Returns how many of the bytes were the reporting allocator's. */
static uint64_t set_its(struct lifetimes *lifetimes, uint64_t address, uint64_t bytes, enum its its)
{
	uint64_t begin = address - lifetimes->base, had = 0;

	for (uint64_t at = begin; at < begin + bytes; at += LIVE_MAP_UNIT) {
		uint8_t was =
		    atomic_exchange_explicit(&lifetimes->its[at / LIVE_MAP_UNIT], (uint8_t)its, memory_order_relaxed);

		if (was == ITS || was == ITS_DISTRUSTED)
			had += begin + bytes - at < LIVE_MAP_UNIT ? begin + bytes - at : LIVE_MAP_UNIT;
	}
	return had;
}

void lifetimes_freed(struct lifetimes *lifetimes, uint64_t address, uint64_t bytes)
{
	if (!lifetimes)
		return;
	if (latest.lifetimes == lifetimes && latest.begin < address + bytes && latest.end > address)
		latest.lifetimes = NULL;
	bool any = atomic_load_explicit(&lifetimes->any, memory_order_relaxed);
	if (!any && !atomic_load_explicit(&lifetimes->any_graph, memory_order_relaxed))
		return;
	atomic_fetch_add_explicit(&lifetimes->freed, set_its(lifetimes, address, bytes, NOT_ITS), memory_order_relaxed);
	if (any)
		write_range(lifetimes, LIFETIMES_FREED, address, whole_units(bytes), no_report);
}

/* What a unit becomes that a graph names. */
static const uint8_t named_by_graph[] = {
    [NOT_ITS] = GRAPHS,
    [ITS] = ITS_DISTRUSTED,
    [ITS_DISTRUSTED] = ITS_DISTRUSTED,
    [PROGRAMS] = PROGRAMS_DISTRUSTED,
    [PROGRAMS_DISTRUSTED] = PROGRAMS_DISTRUSTED,
    [GRAPHS] = GRAPHS,
};

/* Returns whether any of these units was reported and not marked. */
static bool mark_distrusted(struct lifetimes *lifetimes, uint64_t address, uint64_t bytes)
{
	uint64_t begin = address - lifetimes->base;
	bool any = false;

	atomic_store_explicit(&lifetimes->any_graph, true, memory_order_relaxed);
	for (uint64_t at = begin; at < begin + bytes; at += LIVE_MAP_UNIT) {
		_Atomic uint8_t *its = &lifetimes->its[at / LIVE_MAP_UNIT];
		uint8_t was = atomic_load(its);

		while (was != named_by_graph[was] && !atomic_compare_exchange_weak(its, &was, named_by_graph[was]))
			;
		any |= was == ITS || was == PROGRAMS;
	}
	return any;
}

void lifetimes_distrust(struct lifetimes *lifetimes, uint64_t named, uint64_t address, uint64_t bytes)
{
	if (!lifetimes)
		return;
	if (atomic_load_explicit(&lifetimes->placed, memory_order_relaxed))
		crossings_doubt(lifetimes->crossings, address - lifetimes->base);
	/* A graph names a block once for each parameter. */
	uint8_t its =
	    atomic_load_explicit(&lifetimes->its[(named - lifetimes->base) / LIVE_MAP_UNIT], memory_order_relaxed);
	if (its == named_by_graph[its])
		return;
	if (mark_distrusted(lifetimes, address, bytes))
		write_range(lifetimes, LIFETIMES_DISTRUSTED, address, whole_units(bytes), no_report);
}

void lifetimes_reserved(struct lifetimes *lifetimes, uint64_t address)
{
	if (lifetimes)
		crossings_renew(lifetimes->crossings, address - lifetimes->base);
}

bool lifetimes_is_reported(const struct lifetimes *lifetimes, uint64_t address, uint64_t bytes)
{
	uint64_t begin = address - lifetimes->base;

	for (uint64_t at = begin; at < begin + bytes; at += LIVE_MAP_UNIT)
		if (atomic_load_explicit(&lifetimes->its[at / LIVE_MAP_UNIT], memory_order_relaxed) != ITS)
			return false;
	return true;
}

struct crossings *lifetimes_crossings(struct lifetimes *lifetimes)
{
	return lifetimes->crossings;
}

void lifetimes_distrust_all(void)
{
	unsigned n = atomic_load_explicit(&lifetimes_state.n, memory_order_acquire);

	atomic_store(&lifetimes_state.any_graph_unread, true);
	for (unsigned i = 0; i < n; i++) {
		struct lifetimes *one = atomic_load_explicit(&lifetimes_state.all[i], memory_order_acquire);

		if (one && atomic_load_explicit(&one->any, memory_order_relaxed))
			write_range(one, LIFETIMES_DISTRUSTED_ALL, one->base, one->bytes, no_report);
	}
}

/*
 * Compares what the allocator says that it has reserved with what is known. If it has grown by what this thread has
 * allocated last, and what is born lies there, that is its block. If it has shrunk and none of its blocks were freed,
 * it has given some to somebody else, who reports nothing: all are distrusted.
 *
 * Memory that the program has placed where its own was unmapped since the last event may be filled with what was there:
 * it is not the allocator's.
 */
static void compare_reserved(struct lifetimes *lifetimes, const struct lifetimes_report *report)
{
	uint64_t before = atomic_exchange_explicit(&lifetimes->reserved, report->reserved, memory_order_relaxed);
	uint64_t freed = atomic_exchange_explicit(&lifetimes->freed, 0, memory_order_relaxed);
	uint64_t left = before > freed ? before - freed : 0;

	if (report->reserved < left && atomic_load_explicit(&lifetimes->any, memory_order_relaxed)) {
		crossings_doubt_all(lifetimes->crossings);
		write_range(lifetimes, LIFETIMES_DISTRUSTED_ALL, lifetimes->base, lifetimes->bytes, no_report);
	}
	if (!report->born || latest.lifetimes != lifetimes || lifetimes->device != report->device ||
	    report->address >= latest.end || report->address + report->bytes <= latest.begin ||
	    report->reserved != left + (latest.end - latest.begin) || (latest.placed && freed))
		return;
	atomic_store_explicit(&lifetimes->any, true, memory_order_relaxed);
	set_its(lifetimes, latest.begin, latest.end - latest.begin, ITS);
	write_range(lifetimes, LIFETIMES_REPORTED, latest.begin, whole_units(latest.end - latest.begin), no_report);
}

static void begin_to_report(void)
{
	my_number = atomic_fetch_add_explicit(&lifetimes_state.n_threads, 1, memory_order_relaxed) + 1;
	my_stripe = stats_own_stripe();
	if (!my_stripe)
		return;
	struct lifetimes_reporter *reporter = &lifetimes_state.reporters[my_stripe - STATS_SHARED - 1];
	reporter->thread = my_number;
	atomic_store_explicit(&reporter->stripe, my_stripe, memory_order_release);
}

/* empty: of a birth, as in live_map.h. */
static void write_report(struct lifetimes *lifetimes, const struct lifetimes_report *report, bool empty)
{
	uint64_t own = my_stripe ? stats_submissions(my_stripe) : report->own;
	unsigned site = report->born ? birth_lines_name(report->address, report->bytes) : 0;

	write_range(lifetimes, report->born ? LIFETIMES_BORN : LIFETIMES_DIED, report->address, report->bytes,
		    (struct live_report){report->number, own, my_number, empty, (uint16_t)site});
	atomic_thread_fence(memory_order_release); /* see lifetimes_hear() */
}

void lifetimes_tell(const struct lifetimes_report *report)
{
	struct lifetimes *lifetimes = lifetimes_of(report->address);

	if (!lifetimes)
		return;
	if (!my_number)
		begin_to_report();
	if (report->born && atomic_load_explicit(&lifetimes->placed, memory_order_relaxed))
		crossings_born(lifetimes->crossings, report->address - lifetimes->base,
			       report->address - lifetimes->base + report->bytes);
	compare_reserved(lifetimes, report);
	latest.lifetimes = NULL;
	if (!atomic_load_explicit(&lifetimes->any, memory_order_relaxed))
		return;
	if (report->block_bytes) {
		lifetimes_distrust(lifetimes, report->address, report->block, report->block_bytes);
		return;
	}
	write_report(lifetimes, report, false);
}

/* Returns whether all units of the block are in this state. */
static bool is_all(const struct lifetimes *lifetimes, uint64_t begin, uint64_t bytes, enum its its)
{
	for (uint64_t at = begin; at < begin + bytes; at += LIVE_MAP_UNIT)
		if (atomic_load(&lifetimes->its[at / LIVE_MAP_UNIT]) != its)
			return false;
	return true;
}

/*
 * The program begins to say what is alive in a block. Returns false if it may not. Of several threads only one adopts
 * it; a graph that names it meanwhile has marked a unit, or finds it and has it distrusted.
 */
static bool adopt(struct lifetimes *lifetimes, uint64_t block, uint64_t bytes)
{
	uint64_t begin = block - lifetimes->base, at = begin;

	atomic_store_explicit(&lifetimes->any, true, memory_order_relaxed);
	for (; at < begin + bytes; at += LIVE_MAP_UNIT) {
		uint8_t nobodys = NOT_ITS;

		if (!atomic_compare_exchange_strong(&lifetimes->its[at / LIVE_MAP_UNIT], &nobodys, PROGRAMS))
			return false;
	}
	write_range(lifetimes, LIFETIMES_ADOPTED, block, whole_units(bytes), no_report);
	return is_all(lifetimes, begin, bytes, PROGRAMS);
}

void lifetimes_declare(const struct lifetimes_report *report, uint64_t block, uint64_t block_bytes)
{
	struct lifetimes *lifetimes = lifetimes_of(block);

	if (!lifetimes || !report->bytes || block % LIVE_MAP_UNIT)
		return;
	if (report->block_bytes || atomic_load(&lifetimes_state.any_graph_unread)) {
		lifetimes_distrust(lifetimes, report->address, block, block_bytes);
		return;
	}
	if (!my_number)
		begin_to_report();
	uint64_t begin = block - lifetimes->base;
	if (is_all(lifetimes, begin, block_bytes, PROGRAMS) ||
	    (report->born && is_all(lifetimes, begin, block_bytes, NOT_ITS) && adopt(lifetimes, block, block_bytes)))
		write_report(lifetimes, report, report->born);
}

/* ---- the reader ---- */

/*
 * If a submission of a thread is seen here, so is what the thread has reported before it, by whoever looks at the ring
 * afterwards (stats_submissions).
 */
void lifetimes_hear(struct lifetimes *lifetimes)
{
	for (unsigned i = 0; i < STATS_STRIPES - STATS_SHARED; i++) {
		const struct lifetimes_reporter *reporter = &lifetimes_state.reporters[i];
		unsigned stripe = atomic_load_explicit(&reporter->stripe, memory_order_acquire);

		if (stripe)
			live_map_heard(lifetimes->map, (struct live_report){.own = stats_submissions(stripe),
									    .thread = reporter->thread});
	}
	atomic_thread_fence(memory_order_acquire);
}

void lifetimes_take_over(struct lifetimes *lifetimes, const _Atomic size_t *position)
{
	struct lifetimes_event event;
	int nobody = READER_NONE;

	atomic_store_explicit(&lifetimes->position, position, memory_order_release);
	while (!atomic_compare_exchange_weak(&lifetimes->reader, &nobody, READER_MOVER)) {
		nobody = READER_NONE;
		sched_yield();
	}
	while (lifetimes_read(lifetimes, atomic_load(position), &event))
		;
}

struct live_map *lifetimes_map(struct lifetimes *lifetimes)
{
	return lifetimes->map;
}
