// SPDX-License-Identifier: Apache-2.0
/*
 * channel.c: the side of the channel that submissions use: they post to the submission log, wake the mover, and wait
 * for its answer.
 */
#include "shim/submit/channel.h"
#include "shim/base/array.h"
#include "shim/base/call_site.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/stats/stats.h"
#include "shim/submit/types.h"

#include <sched.h>

/* A submission stops waiting for an answer after this time, because the mover may have ended. */
#define ANSWER_MS 2000

bool channel_init(struct channel *channel, const struct arena *arena, int device)
{
	channel->arena = arena;
	channel->device = UINT64_C(1) << device;
	lock_init(&channel->wake_lock, LOCK_WAKE);
	lock_init(&channel->lock, LOCK_SPILL);
	return submission_log_init(&channel->log);
}

/* ---- waiting ---- */

void channel_wake(struct channel *channel)
{
	if (!atomic_load(&channel->asleep))
		return;
	lock_take(&channel->wake_lock);
	clock_wake_all(&channel->wake);
	lock_drop(&channel->wake_lock);
}

/* Finds the first unit of the block or slab with the address. Returns false if this device's heap has none there. */
static bool block_of(const struct arena *arena, CUdeviceptr address, uint32_t *ret_unit)
{
	uint32_t word = arena_contains(arena, address) ? arena_look(arena, address) : 0;

	*ret_unit = word & ARENA_SLAB ? arena_unit(arena, address) : word - 1;
	return word != 0;
}

/* Sites whose memory a submission waits for, each once; further ones are not listed. */
#define WAIT_SITES 16

static unsigned missing_sites(const struct channel *channel, const struct named *named, unsigned n,
			      unsigned ret_sites[WAIT_SITES])
{
	const struct arena *arena = channel->arena;
	unsigned found = 0;

	for (unsigned i = 0; i < n && found < WAIT_SITES; i++) {
		unsigned site, seen = 0;
		uint32_t unit;

		if (!block_of(arena, named[i].address, &unit))
			continue;
		const struct block_state *block = &arena->block_states[unit];
		bool away = named[i].bytes != NAMED_ASIDE && atomic_load(&block->away);

		if (!away && !atomic_load(&block->unmapped))
			continue;
		site = arena_site(arena, unit, arena_unit(arena, named[i].address));
		if (arena->lifetimes && lifetimes_is_reported(arena->lifetimes, named[i].address, 1))
			site = stats_site_of_tensors(site, call_site_numbered(birth_lines_at(named[i].address)));
		while (seen < found && ret_sites[seen] != site)
			seen++;
		if (seen == found)
			ret_sites[found++] = site;
	}
	return found;
}

/*
 * Waits for the answer in steps that are measured one by one, so that time for which the process was stopped counts
 * neither as waiting nor against ANSWER_MS. Locking: the caller must hold SPILL; drops it during the wait.
 */
static void wait_for_answer(struct channel *channel, const struct waiter *waiter, struct waiting *waiting)
{
	while (!waiter->answered && !atomic_load(&channel->dead) && submission_is_tracking() &&
	       waiting->ns < ANSWER_MS * 1000000ull) {
		struct timespec until = clock_in(WAITING_LOOK_NS);

		lock_wait(&channel->lock, &channel->answered, &until);
		waiting_look(waiting);
	}
}

uint64_t channel_wait(struct channel *channel, const struct named *named, unsigned n, bool unknown,
		      const struct graph_names *graph)
{
	unsigned sites[WAIT_SITES], n_sites;
	struct waiter waiter = {.named = named, .n = n, .graph = graph, .unknown = unknown};
	struct waiting waiting;

	if (atomic_load(&channel->dead)) {
		sched_yield();
		return 0;
	}
	waiting_begin(&waiting);
	waiter.since = waiting.began;
	n_sites = missing_sites(channel, named, n, sites);
	lock_take(&channel->lock);
	waiter.next = channel->waiters;
	channel->waiters = &waiter;
	atomic_fetch_add(&channel->n_waiters, 1);
	channel_wake(channel);
	wait_for_answer(channel, &waiter, &waiting);
	struct waiter **at = &channel->waiters;
	while (*at != &waiter)
		at = &(*at)->next;
	*at = waiter.next;
	atomic_fetch_sub(&channel->n_waiters, 1);
	lock_drop(&channel->lock);
	return waiting_end(&waiting, sites, n_sites);
}

/* ---- submission log ---- */

/*
 * The ring of the submission log. A writer reserves its words by advancing the head, fills them, and writes the first
 * one last: n + 1 and the ticket. Then follow the function and n addresses, each with its extent behind it if that is
 * known; most are not (kernel parameters). The reader takes a record whose first word is not 0, resets all its words to
 * 0, because any of them may be a first word in the next round, and releases them by advancing the tail. Before that it
 * may read the record any number of times.
 */

bool submission_log_init(struct submission_log *log)
{
	log->words = lazy_memory_new(SUBMISSION_LOG_WORDS * sizeof(*log->words));
	return log->words != NULL;
}

/* Flag in an address word: its extent follows. */
#define HAS_BYTES (UINT64_C(1) << 63)

/* The first word, from the lowest bit: n + 1, the ticket's place, its serial. */
#define PLACE_BIT  20
#define SERIAL_BIT 32
_Static_assert(SUBMISSION_LOG_WORDS <= 1u << PLACE_BIT, "a record fits into the log");
_Static_assert(INFLIGHT_TICKET_PLACES < 1u << (SERIAL_BIT - PLACE_BIT), "a place fits into its bits");

static void submission_log_put(struct submission_log *log, size_t at, uint64_t word)
{
	atomic_store_explicit(&log->words[at % SUBMISSION_LOG_WORDS], word, memory_order_relaxed);
}

bool submission_log_write(struct submission_log *log, uint64_t function, const struct named *named, unsigned n,
			  struct inflight_ticket ticket)
{
	size_t length = 2 + (size_t)n, head = atomic_load_explicit(&log->head, memory_order_relaxed);

	for (unsigned i = 0; i < n; i++)
		length += named[i].bytes != 0;
	do {
		/* Acquired, so its words are 0 again. The tail may have passed a head that was read long ago. */
		size_t tail = atomic_load_explicit(&log->tail, memory_order_acquire);

		if ((ptrdiff_t)(head - tail) >= 0 && head - tail + length > SUBMISSION_LOG_WORDS) {
			atomic_fetch_add_explicit(&log->lost, 1, memory_order_release); /* after what was reported */
			return false;
		}
	} while (!atomic_compare_exchange_weak_explicit(&log->head, &head, head + length, memory_order_relaxed,
							memory_order_relaxed));
	size_t at = head + 1;
	submission_log_put(log, at++, function);
	for (unsigned i = 0; i < n; i++) {
		submission_log_put(log, at++, named[i].address | (named[i].bytes ? HAS_BYTES : 0));
		if (named[i].bytes)
			submission_log_put(log, at++, named[i].bytes);
	}
	atomic_store_explicit(&log->words[head % SUBMISSION_LOG_WORDS],
			      (uint64_t)ticket.serial << SERIAL_BIT | (uint64_t)ticket.place << PLACE_BIT | (n + 1ull),
			      memory_order_release);
	return true;
}

/* Returns the first word of the record at `at`; 0 if it is not written yet. */
static uint64_t first_at(const struct submission_log *log, size_t at)
{
	return atomic_load_explicit(&log->words[at % SUBMISSION_LOG_WORDS], memory_order_acquire);
}

static uint64_t word_at(const struct submission_log *log, size_t at)
{
	return atomic_load_explicit(&log->words[at % SUBMISSION_LOG_WORDS], memory_order_relaxed);
}

/* Reads a name, and returns where the next one is. */
static size_t name_at(const struct submission_log *log, size_t at, struct named *ret)
{
	uint64_t address = word_at(log, at++);

	*ret = (struct named){address & ~HAS_BYTES, address & HAS_BYTES ? word_at(log, at++) : 0};
	return at;
}

/* Reads the record at *at, whose first word is this. Returns false if that is 0. */
static bool read_record(const struct submission_log *log, uint64_t first, size_t *at,
			struct inflight_ticket *ret_ticket, struct named *ret_named, unsigned most, unsigned *ret_n)
{
	struct named name;

	if (!first)
		return false;
	*ret_ticket = (struct inflight_ticket){(uint32_t)first >> PLACE_BIT, (uint32_t)(first >> SERIAL_BIT)};
	*ret_n = (unsigned)(first & ((1u << PLACE_BIT) - 1)) - 1;
	*at += 2;
	for (unsigned i = 0; i < *ret_n; i++) {
		*at = name_at(log, *at, &name);
		if (i < most)
			ret_named[i] = name;
	}
	return true;
}

bool submission_log_look(const struct submission_log *log, size_t *at, struct inflight_ticket *ret_ticket,
			 struct named *ret_named, unsigned most, unsigned *ret_n)
{
	/* In a full ring the end coincides with the oldest record, which must not be read as the next one. */
	uint64_t first = *at == submission_log_end(log) ? 0 : first_at(log, *at);

	return read_record(log, first, at, ret_ticket, ret_named, most, ret_n);
}

bool submission_log_read(struct submission_log *log, uint64_t *ret_function, struct named *ret_named, unsigned most,
			 unsigned *ret_n)
{
	size_t begin = submission_log_begin(log), end = begin;
	struct inflight_ticket unused;

	if (!read_record(log, first_at(log, begin), &end, &unused, ret_named, most, ret_n))
		return false;
	*ret_function = word_at(log, begin + 1);
	*ret_n = *ret_n < most ? *ret_n : most;
	while (begin != end)
		submission_log_put(log, begin++, 0);
	atomic_store_explicit(&log->tail, end, memory_order_release);
	return true;
}

bool submission_log_is_there(const struct submission_log *log)
{
	return first_at(log, submission_log_begin(log)) != 0;
}

size_t submission_log_begin(const struct submission_log *log)
{
	return atomic_load_explicit(&log->tail, memory_order_relaxed);
}

size_t submission_log_end(const struct submission_log *log)
{
	return atomic_load_explicit(&log->head, memory_order_relaxed);
}

/* ---- tickets ---- */

/*
 * Tickets of submissions in flight: the table of places, one per thread. Places are reused, and
 * their serials go on.
 */

struct inflight_ticket_place *inflight_ticket_take_place(void)
{
	for (unsigned i = 0; i < INFLIGHT_TICKET_PLACES; i++)
		if (!atomic_load_explicit(&submit_tables.places[i].is_taken, memory_order_relaxed) &&
		    !atomic_exchange_explicit(&submit_tables.places[i].is_taken, true, memory_order_acquire))
			return &submit_tables.places[i];
	return NULL;
}

void inflight_ticket_give_place(struct inflight_ticket_place *place)
{
	if (place)
		atomic_store_explicit(&place->is_taken, false, memory_order_release);
}

struct inflight_ticket inflight_ticket_take(struct inflight_ticket_place *place)
{
	return (struct inflight_ticket){(uint32_t)(place - submit_tables.places) + 1, ++place->serial};
}

void inflight_ticket_give_back(struct inflight_ticket_place *place, uint64_t number)
{
	if (number)
		place->latest = number;
	atomic_store_explicit(&place->numbers[place->serial % INFLIGHT_TICKET_NUMBERS], place->latest,
			      memory_order_relaxed);
	atomic_store_explicit(&place->back, place->serial, memory_order_release);
}

bool inflight_ticket_is_back(struct inflight_ticket ticket, uint64_t *ret_number)
{
	const struct inflight_ticket_place *place = &submit_tables.places[ticket.place - 1];

	if ((int32_t)(atomic_load_explicit(&place->back, memory_order_acquire) - ticket.serial) < 0)
		return false;
	*ret_number =
	    atomic_load_explicit(&place->numbers[ticket.serial % INFLIGHT_TICKET_NUMBERS], memory_order_relaxed);
	return true;
}

/* ---- for the mover: which blocks tickets stand for ---- */

/*
 * Blocks that submissions with tickets use. For each block it counts the tickets that are out and keeps the
 * number of the latest submission whose ticket was given back; for each place it keeps the blocks of the ticket that is
 * out.
 */

/* Looks at an incomplete record, about a microsecond: enough for a writer that is not suspended to complete it. */
#define LOOKS 64

struct inflight_block {
	uint64_t last; /* number of the latest submission that used the block and whose ticket was given back */
	uint32_t out;  /* tickets that are out, counted once per name */
};

/* Blocks of the ticket that is out of one place; n is 0 if none is out. */
struct out {
	uint32_t serial, n;
	uint32_t units[INFLIGHT_TICKET_NAMES];
};

struct inflight {
	const struct arena *arena;
	const struct submission_log *log;
	size_t at; /* position in the log up to which records have been read */
	struct inflight_block *blocks;
	struct out out[INFLIGHT_TICKET_PLACES + 1]; /* by place, from 1 */
	uint32_t places[INFLIGHT_TICKET_PLACES];
	unsigned n_places;                         /* `places` are those with a ticket that is out */
	struct named named[INFLIGHT_TICKET_NAMES]; /* of the record that is read */
};

#define BYTES_OF_BLOCKS(inflight) ((inflight)->arena->n_units * sizeof(*(inflight)->blocks))

struct inflight *inflight_new(const struct arena *arena, const struct submission_log *log)
{
	struct inflight *inflight = lazy_memory_new(sizeof(*inflight));

	if (!inflight)
		return NULL;
	inflight->arena = arena;
	inflight->log = log;
	inflight->at = submission_log_begin(log);
	inflight->blocks = lazy_memory_new(BYTES_OF_BLOCKS(inflight));
	if (inflight->blocks)
		return inflight;
	inflight_free(inflight);
	return NULL;
}

void inflight_free(struct inflight *inflight)
{
	if (!inflight)
		return;
	lazy_memory_free(inflight->blocks, BYTES_OF_BLOCKS(inflight));
	lazy_memory_free(inflight, sizeof(*inflight));
}

/* ---- tickets that are given back ---- */

/* A later submission of another thread may have been counted before, so the number may only rise. */
static void inflight_count(struct inflight_block *block, uint64_t number)
{
	if (block->last < number)
		block->last = number;
}

static void settle_all(struct inflight *inflight)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < inflight->n_places; i++) {
		uint32_t place = inflight->places[i];
		struct out *out = &inflight->out[place];
		uint64_t number;

		if (!inflight_ticket_is_back((struct inflight_ticket){place, out->serial}, &number)) {
			inflight->places[kept++] = place;
			continue;
		}
		for (; out->n; out->n--) {
			struct inflight_block *block = &inflight->blocks[out->units[out->n - 1]];

			block->out--;
			inflight_count(block, number);
		}
	}
	inflight->n_places = kept;
}

/* ---- records ---- */

/* The thread gave its previous ticket back before it took this one, so settling frees the place. */
static void inflight_claim(struct inflight *inflight, struct inflight_ticket ticket, unsigned n)
{
	struct out *out = &inflight->out[ticket.place];
	uint64_t number;
	uint32_t unit;

	if (out->n)
		settle_all(inflight);
	bool is_back = inflight_ticket_is_back(ticket, &number);
	for (unsigned i = 0; i < n; i++) {
		if (!block_of(inflight->arena, inflight->named[i].address, &unit))
			continue;
		if (is_back) {
			inflight_count(&inflight->blocks[unit], number);
		} else {
			inflight->blocks[unit].out++;
			out->units[out->n++] = unit;
		}
	}
	out->serial = ticket.serial;
	if (out->n)
		inflight->places[inflight->n_places++] = ticket.place;
}

/* Returns false if no complete record follows. */
static bool hear_one(struct inflight *inflight)
{
	struct inflight_ticket ticket;
	unsigned n;

	if (!submission_log_look(inflight->log, &inflight->at, &ticket, inflight->named, INFLIGHT_TICKET_NAMES, &n))
		return false;
	/* Whoever has a ticket has no more names than that. */
	if (ticket.place)
		inflight_claim(inflight, ticket, n);
	return true;
}

bool inflight_hear(struct inflight *inflight)
{
	size_t end = submission_log_end(inflight->log);

	for (unsigned looks = 0; (ptrdiff_t)(end - inflight->at) > 0 && looks < LOOKS;)
		looks = hear_one(inflight) ? 0 : looks + 1;
	settle_all(inflight);
	return (ptrdiff_t)(end - inflight->at) <= 0;
}

bool inflight_hear_oldest(struct inflight *inflight)
{
	return inflight->at != submission_log_begin(inflight->log) || hear_one(inflight);
}

bool inflight_has(const struct inflight *inflight, uint32_t block_unit, uint64_t done)
{
	const struct inflight_block *block = &inflight->blocks[block_unit];

	return block->out || block->last > done;
}

/* ---- the latest submissions ---- */

/*
 * A ring, for messages: each submission is noted over the oldest one, by any thread and without a lock. Each entry
 * carries its number, which is 0 while the entry is written. It is read when something has gone wrong, so reading makes
 * no driver call.
 */

/*
 * Writes the number last, and 0 before the rest. A reader that finds the same number before and after it reads the rest
 * has a consistent entry.
 */
void recent_submissions_note(uint64_t number, const struct completion_what *what, unsigned row)
{
	struct recent_submissions_entry *entry = &submit_tables.recent[number % SUBMISSIONS_KEPT];

	atomic_store_explicit(&entry->number, 0, memory_order_relaxed);
	atomic_store_explicit(&entry->function, what->function, memory_order_release);
	atomic_store_explicit(&entry->what, (uint64_t)what->id << 16 | row, memory_order_release);
	atomic_store_explicit(&entry->number, number, memory_order_release);
}

bool recent_submissions_look(uint64_t number, struct completion_what *ret_what, unsigned *ret_row)
{
	struct recent_submissions_entry *entry = &submit_tables.recent[number % SUBMISSIONS_KEPT];

	if (atomic_load_explicit(&entry->number, memory_order_acquire) != number)
		return false;
	uint64_t function = atomic_load_explicit(&entry->function, memory_order_acquire);
	uint64_t what = atomic_load_explicit(&entry->what, memory_order_acquire);
	if (atomic_load_explicit(&entry->number, memory_order_relaxed) != number)
		return false;
	*ret_what = (struct completion_what){function, (uint32_t)(what >> 16)};
	*ret_row = (unsigned)(what & 0xffff);
	return true;
}
