// SPDX-License-Identifier: Apache-2.0
/*
 * The ring of events and its reader.
 *
 * A writer reserves a place by advancing the head, fills it, and stores its sequence number last; the reader frees a
 * place by storing the number that the writer of the next round waits for. One word says who reads: nobody, a writer
 * that found the ring nearly full, or the mover, which keeps it for good.
 *
 * An event that finds no place is lost. Whoever wanted to write it counts that before it goes on, so a reader that does
 * not see the count comes before whatever the event was about. What is in the ring by then may be older than the event:
 * a death, perhaps, of what was born once more. So the map says nothing until all of that has been read, and then
 * everything is alive.
 */
#include "shim/base/log.h"
#include "shim/lifetimes/types.h"

#include <sched.h>
#include <stdatomic.h>

#define NEARLY_FULL (LIFETIMES_RING / 4 * 3)

enum reader { READER_NONE, READER_WRITER, READER_MOVER };

/* ---- the ring ---- */

static struct lifetimes_record *record_at(const struct lifetimes *lifetimes, uint64_t at)
{
	return &lifetimes->ring[at % LIFETIMES_RING];
}

static void apply(struct lifetimes *lifetimes, const struct lifetimes_event *event)
{
	switch (event->kind) {
	case LIFETIMES_REPORTED:
	case LIFETIMES_ADOPTED:
		/* If a graph has named it meanwhile, the birth is of units that are not reported, and ignored. */
		live_map_report(lifetimes->map, event->begin, event->end);
		if (!event->report.empty)
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
	case LIFETIMES_LOST:
		if (event->report.empty)
			live_map_restart(lifetimes->map);
		else
			live_map_distrust_reported(lifetimes->map);
		break;
	}
}

/* ---- lost events ---- */

/* Counts of lost events: births, deaths, and new blocks; and, above them, the others. */
#define LOST_OTHER (UINT64_C(1) << 32)

bool lifetimes_is_known(const struct lifetimes *lifetimes)
{
	return atomic_load(&lifetimes->lost) == lifetimes->lost_known;
}

/* Some were lost. Returns true, and the event for all of them, if all has been read that may be older. */
static bool read_lost(struct lifetimes *lifetimes, struct lifetimes_event *ret)
{
	uint64_t known = lifetimes->lost_known;

	if (lifetimes->lost_then == known) {
		lifetimes->lost_then = atomic_load(&lifetimes->lost);
		lifetimes->lost_end = atomic_load(&lifetimes->head);
	}
	if (lifetimes->tail < lifetimes->lost_end)
		return false;
	lifetimes->lost_known = lifetimes->lost_then;
	*ret = (struct lifetimes_event){.kind = LIFETIMES_LOST,
					.end = lifetimes->bytes,
					.report.empty = known / LOST_OTHER == lifetimes->lost_then / LOST_OTHER};
	return true;
}

/* Returns whether a graph has named what this event reports. Its own event may be lost, and accounted for. */
static bool is_named_by_graph(const struct lifetimes *lifetimes, const struct lifetimes_event *event)
{
	for (uint64_t at = event->begin; at < event->end && event->kind <= LIFETIMES_ADOPTED; at += LIVE_MAP_UNIT) {
		uint8_t teller = atomic_load(&lifetimes->tellers[at / LIVE_MAP_UNIT]);

		if (teller == TELLER_ALLOCATOR_DISTRUSTED || teller == TELLER_PROGRAM_DISTRUSTED ||
		    teller == TELLER_LIBRARY_DISTRUSTED)
			return true;
	}
	return false;
}

bool lifetimes_read(struct lifetimes *lifetimes, size_t position, struct lifetimes_event *ret)
{
	struct lifetimes_record *record = record_at(lifetimes, lifetimes->tail);

	if (!lifetimes_is_known(lifetimes) && read_lost(lifetimes, ret)) {
		apply(lifetimes, ret);
		return true;
	}
	if (atomic_load_explicit(&record->sequence, memory_order_acquire) != lifetimes->tail + 1 ||
	    (ptrdiff_t)(record->position - position) > 0)
		return false;
	*ret = (struct lifetimes_event){record->kind, record->begin, record->end, record->report};
	atomic_store_explicit(&record->sequence, lifetimes->tail + LIFETIMES_RING, memory_order_release);
	lifetimes->tail++;
	if (is_named_by_graph(lifetimes, ret))
		ret->kind = LIFETIMES_DISTRUSTED;
	apply(lifetimes, ret);
	return true;
}

bool lifetimes_is_read(const struct lifetimes *lifetimes, size_t position)
{
	const struct lifetimes_record *record = record_at(lifetimes, lifetimes->tail);

	if (lifetimes->tail == atomic_load_explicit(&lifetimes->head, memory_order_acquire))
		return true;
	/* What is not complete yet may hold back others that are. */
	return atomic_load_explicit(&record->sequence, memory_order_acquire) == lifetimes->tail + 1 &&
	       (ptrdiff_t)(record->position - position) > 0;
}

bool lifetimes_is_unread(const struct lifetimes *lifetimes, uint64_t begin, uint64_t end, bool deaths)
{
	uint64_t head = atomic_load_explicit(&lifetimes->head, memory_order_acquire);

	if (!lifetimes_is_known(lifetimes))
		return true;
	for (uint64_t at = lifetimes->tail; at != head; at++) {
		const struct lifetimes_record *record = record_at(lifetimes, at);

		if (atomic_load_explicit(&record->sequence, memory_order_acquire) != at + 1)
			return true;
		if ((deaths || record->kind != LIFETIMES_DIED) && record->begin < end && record->end > begin)
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

struct lifetimes_record *lifetimes_begin_write(struct lifetimes *lifetimes, uint64_t *ret_at)
{
	const _Atomic size_t *position = atomic_load_explicit(&lifetimes->position, memory_order_acquire);
	uint64_t head = atomic_load_explicit(&lifetimes->head, memory_order_relaxed);
	struct lifetimes_record *record;
	size_t at;

	do {
		/*
		 * Before the place is reserved: an event in a later place, and what was submitted after it, must not be
		 * read before this one.
		 */
		at = position ? atomic_load_explicit(position, memory_order_relaxed) : 0;
		record = record_at(lifetimes, head);
		uint64_t sequence = atomic_load_explicit(&record->sequence, memory_order_acquire);

		/* A place that a writer may fill; memory of the ring is zeroed at first. */
		uint64_t its_free = head < LIFETIMES_RING ? 0 : head;

		if (sequence != its_free && (int64_t)(sequence - head) <= 0)
			return NULL;
	} while (!atomic_compare_exchange_weak_explicit(&lifetimes->head, &head, head + 1, memory_order_acq_rel,
							memory_order_acquire));
	record->position = at;
	*ret_at = head;
	return record;
}

void lifetimes_end_write(struct lifetimes *lifetimes, struct lifetimes_record *record, uint64_t at)
{
	atomic_store_explicit(&record->sequence, at + 1, memory_order_release);
	if (at % NEARLY_FULL == NEARLY_FULL - 1 && !atomic_load_explicit(&lifetimes->position, memory_order_acquire))
		read_as_writer(lifetimes);
}

void lifetimes_lose(struct lifetimes *lifetimes, enum lifetimes_kind kind)
{
	/* What is lost of a block that is not known makes nothing of it dead. */
	atomic_fetch_add(&lifetimes->lost, kind < LIFETIMES_DISTRUSTED ? 1 : LOST_OTHER);
	log_once("births and deaths of tensors are not read in time; all memory is taken to be alive until its next "
		 "birth and death");
	if (!atomic_load_explicit(&lifetimes->position, memory_order_acquire))
		read_as_writer(lifetimes);
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
