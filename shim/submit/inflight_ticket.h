/*
 * inflight_ticket.h: submissions that have told the mover what they name and are not back from the driver; for `fast`, where
 * memory moves beside what runs.
 *
 * To hold ten blocks and to let them go (arena.h) takes a launch twenty locked operations. What it names goes to the
 * mover by the tape anyway; so it puts a ticket beside that, and holds nothing:
 *
 *   a submission   writes its record with the ticket; raises that it is inside the driver (submission_enter); looks whether all
 *                  that it names is mapped; and, back from the driver, gives the ticket back with its number
 *   the mover      raises `unmapped` of a block; looks at everybody inside (submission_see_inside); reads the tape to its end
 *
 * Both raise first and look second. Who did not see `unmapped` raised had entered before, so the mover's look sees that,
 * and with it the record. The mover keeps book of what is out (inflight.h).
 *
 * A ticket is a place, which a thread has as long as it lives, and a serial that grows there. Of a place one is out at a
 * time. The numbers of the latest remain to be read; of one that is asked for too late what is found is the number of a
 * later one: memory counts as used for longer then, never for less.
 */
#ifndef SPILLWAY_INFLIGHT_TICKET_H
#define SPILLWAY_INFLIGHT_TICKET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Threads that submit at once; further ones hold what they name. Fits into the tape's first word. */
#define INFLIGHT_TICKET_PLACES 256
/* Names of one submission at most: all that the parameters of a kernel have room for. */
#define INFLIGHT_TICKET_NAMES 512
/* Numbers of each place: what a thread submits while the mover maps a piece (1 ms) and does not listen. */
#define INFLIGHT_TICKET_NUMBERS 256

struct inflight_ticket {
	uint32_t place; /* from 1; 0: no ticket */
	uint32_t serial;
};

struct inflight_ticket_place {
	uint32_t serial; /* given out; the owner's */
	uint64_t latest; /* number; the owner's */
	_Atomic bool is_taken;
	_Atomic uint32_t back __attribute__((aligned(64)));                    /* the latest serial that is */
	_Atomic uint64_t numbers[INFLIGHT_TICKET_NUMBERS]
	    __attribute__((aligned(64))); /* by serial; they never become less */
} __attribute__((aligned(64)));

/* A place for this thread. NULL: there is none left. None of its tickets is out when it is given back. */
struct inflight_ticket_place *inflight_ticket_take_place(void);
void inflight_ticket_give_place(struct inflight_ticket_place *place);

/* By the owner: one is out from here on. */
struct inflight_ticket inflight_ticket_take(struct inflight_ticket_place *place);

/* It is back, with the number of the submission; 0: nothing was submitted. */
static inline void inflight_ticket_give_back(struct inflight_ticket_place *place, uint64_t number)
{
	if (number)
		place->latest = number;
	atomic_store_explicit(&place->numbers[place->serial % INFLIGHT_TICKET_NUMBERS], place->latest,
			      memory_order_relaxed);
	atomic_store_explicit(&place->back, place->serial, memory_order_release);
}

/* By anybody: is it back? Then its submission has this number or a lower one. */
bool inflight_ticket_is_back(struct inflight_ticket ticket, uint64_t *ret_number);

#endif
