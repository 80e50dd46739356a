/*
 * The ring of the submission log. A writer reserves its words by advancing the head, fills them, and writes the first
 * one last: n + 1 and the ticket. Then follow the function and n addresses, each with its extent behind it if that is
 * known; most are not (kernel parameters). The reader takes a record whose first word is not 0, resets all its words to
 * 0, because any of them may be a first word in the next round, and releases them by advancing the tail. Before that it
 * may read the record any number of times.
 */
#include "shim/submit/submission_log.h"
#include "shim/base/lazy_memory.h"
#include "shim/submit/types.h"

#include <stddef.h>

bool submission_log_init(struct submission_log *tape)
{
	tape->words = lazy_memory_new(SUBMISSION_LOG_WORDS * sizeof(*tape->words));
	return tape->words != NULL;
}

/* Flag in an address word: its extent follows. */
#define HAS_BYTES (UINT64_C(1) << 63)

/* The first word, from the lowest bit: n + 1, the ticket's place, its serial. */
#define PLACE_BIT  20
#define SERIAL_BIT 32
_Static_assert(SUBMISSION_LOG_WORDS <= 1u << PLACE_BIT, "a record fits into the tape");
_Static_assert(INFLIGHT_TICKET_PLACES < 1u << (SERIAL_BIT - PLACE_BIT), "a place fits into its bits");

static unsigned n_of(uint64_t first)
{
	return (unsigned)(first & ((1u << PLACE_BIT) - 1)) - 1;
}

static struct inflight_ticket ticket_of(uint64_t first)
{
	return (struct inflight_ticket){(uint32_t)first >> PLACE_BIT, (uint32_t)(first >> SERIAL_BIT)};
}

static void submission_log_put(struct submission_log *tape, size_t at, uint64_t word)
{
	atomic_store_explicit(&tape->words[at % SUBMISSION_LOG_WORDS], word, memory_order_relaxed);
}

static size_t length_of(const struct named *named, unsigned n)
{
	size_t length = 2 + (size_t)n;

	for (unsigned i = 0; i < n; i++)
		length += named[i].bytes != 0;
	return length;
}

bool submission_log_write(struct submission_log *tape, uint64_t function, const struct named *named, unsigned n,
			  struct inflight_ticket ticket)
{
	size_t length = length_of(named, n), head = atomic_load_explicit(&tape->head, memory_order_relaxed);

	do {
		/* Acquired, so its words are 0 again. The tail may have passed a head that was read long ago. */
		size_t tail = atomic_load_explicit(&tape->tail, memory_order_acquire);

		if ((ptrdiff_t)(head - tail) >= 0 && head - tail + length > SUBMISSION_LOG_WORDS) {
			atomic_fetch_add_explicit(&tape->lost, 1, memory_order_release); /* after what was reported */
			return false;
		}
	} while (!atomic_compare_exchange_weak_explicit(&tape->head, &head, head + length, memory_order_relaxed,
							memory_order_relaxed));
	size_t at = head + 1;
	submission_log_put(tape, at++, function);
	for (unsigned i = 0; i < n; i++) {
		submission_log_put(tape, at++, named[i].address | (named[i].bytes ? HAS_BYTES : 0));
		if (named[i].bytes)
			submission_log_put(tape, at++, named[i].bytes);
	}
	atomic_store_explicit(&tape->words[head % SUBMISSION_LOG_WORDS],
			      (uint64_t)ticket.serial << SERIAL_BIT | (uint64_t)ticket.place << PLACE_BIT | (n + 1ull),
			      memory_order_release);
	return true;
}

/* Returns the first word of the record at `at`; 0 if it is not written yet. */
static uint64_t first_at(const struct submission_log *tape, size_t at)
{
	return atomic_load_explicit(&tape->words[at % SUBMISSION_LOG_WORDS], memory_order_acquire);
}

static uint64_t submission_log_get(struct submission_log *tape, size_t at)
{
	uint64_t word = atomic_load_explicit(&tape->words[at % SUBMISSION_LOG_WORDS], memory_order_relaxed);

	submission_log_put(tape, at, 0);
	return word;
}

bool submission_log_read(struct submission_log *tape, uint64_t *ret_function, struct named *ret_named, unsigned most,
			 unsigned *ret_n)
{
	size_t at = atomic_load_explicit(&tape->tail, memory_order_relaxed);
	uint64_t first = first_at(tape, at);

	if (!first)
		return false;
	unsigned n = n_of(first);
	submission_log_put(tape, at++, 0);
	*ret_function = submission_log_get(tape, at++);
	*ret_n = n < most ? n : most;
	for (unsigned i = 0; i < n; i++) {
		uint64_t address = submission_log_get(tape, at++),
			 bytes = address & HAS_BYTES ? submission_log_get(tape, at++) : 0;

		if (i < most)
			ret_named[i] = (struct named){address & ~HAS_BYTES, bytes};
	}
	atomic_store_explicit(&tape->tail, at, memory_order_release);
	return true;
}

bool submission_log_is_there(const struct submission_log *tape)
{
	return first_at(tape, atomic_load_explicit(&tape->tail, memory_order_relaxed)) != 0;
}

size_t submission_log_begin(const struct submission_log *tape)
{
	return atomic_load_explicit(&tape->tail, memory_order_relaxed);
}

size_t submission_log_end(const struct submission_log *tape)
{
	return atomic_load_explicit(&tape->head, memory_order_relaxed);
}

static uint64_t word_at(const struct submission_log *tape, size_t at)
{
	return atomic_load_explicit(&tape->words[at % SUBMISSION_LOG_WORDS], memory_order_relaxed);
}

bool submission_log_names(const struct submission_log *tape, size_t *at, struct named *ret_named, unsigned most,
			  unsigned *ret_n)
{
	/* In a full ring the end position coincides with the oldest record, which must not be read as the next one. */
	uint64_t first = *at == submission_log_end(tape) ? 0 : first_at(tape, *at);
	size_t next = *at + 2;

	if (!first)
		return false;
	*ret_n = n_of(first);
	for (unsigned i = 0; i < *ret_n; i++) {
		uint64_t address = word_at(tape, next++), bytes = address & HAS_BYTES ? word_at(tape, next++) : 0;

		if (i < most)
			ret_named[i] = (struct named){address & ~HAS_BYTES, bytes};
	}
	*at = next;
	return true;
}

bool submission_log_look(const struct submission_log *tape, size_t *at, struct inflight_ticket *ret_ticket,
			 CUdeviceptr *ret_addresses, unsigned most, unsigned *ret_n)
{
	/* In a full ring the end position coincides with the oldest record, which must not be read as the next one. */
	uint64_t first = *at == submission_log_end(tape) ? 0 : first_at(tape, *at);

	if (!first)
		return false;
	unsigned n = n_of(first);
	size_t next = *at + 2;
	*ret_ticket = ticket_of(first);
	*ret_n = !ret_ticket->place ? 0 : n < most ? n : most;
	for (unsigned i = 0; i < n; i++) {
		uint64_t address = word_at(tape, next);

		if (i < *ret_n)
			ret_addresses[i] = address & ~HAS_BYTES;
		next += address & HAS_BYTES ? 2 : 1;
	}
	*at = next;
	return true;
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

bool inflight_ticket_is_back(struct inflight_ticket ticket, uint64_t *ret_number)
{
	const struct inflight_ticket_place *place = &submit_tables.places[ticket.place - 1];

	if ((int32_t)(atomic_load_explicit(&place->back, memory_order_acquire) - ticket.serial) < 0)
		return false;
	*ret_number =
	    atomic_load_explicit(&place->numbers[ticket.serial % INFLIGHT_TICKET_NUMBERS], memory_order_relaxed);
	return true;
}
