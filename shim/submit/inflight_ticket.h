/*
 * inflight_ticket.h: tickets, which stand for the pins of submissions that have logged what they name and have not
 * returned from the driver. For `fast` mode, in which memory moves beside running work.
 *
 * A launch that pins and unpins ten blocks (arena.h) makes twenty locked operations. Its names go into the submission
 * log anyway, so it adds a ticket to its record there instead, and pins nothing:
 *
 *   a submission   writes its record with the ticket; counts itself as inside the driver (submission_enter); checks
 *                  that all it names is mapped; and gives the ticket back, with its number, after the driver has
 *                  returned
 *   the mover      raises `unmapped` of a block; reads who is inside (submission_see_inside); reads the log to its end
 *
 * Both write first and read second. A submission that did not see `unmapped` raised had entered before that, so the
 * mover sees that it is inside, and therefore its record. The mover keeps the tickets that are out (inflight.h).
 *
 * A ticket is a place, which a thread keeps while it lives, and a serial, which grows in that place. A place has at
 * most one ticket out. The numbers of its latest tickets can be read; if the mover asks too late, it reads the number
 * of a later ticket, so memory may count as used for longer, never for shorter.
 */
#ifndef SPILLWAY_INFLIGHT_TICKET_H
#define SPILLWAY_INFLIGHT_TICKET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Threads with a place; further ones pin what they name. A place must fit into the first word of a record in the log.
 */
#define INFLIGHT_TICKET_PLACES 256
/* Names of a submission with a ticket at most: as many as kernel parameters (4 KiB) have room for. */
#define INFLIGHT_TICKET_NAMES 512
/* Numbers kept per place: what a thread submits while the mover maps a piece (1 ms) and does not read the log. */
#define INFLIGHT_TICKET_NUMBERS 256

struct inflight_ticket {
	uint32_t place; /* from 1; 0: no ticket */
	uint32_t serial;
};

struct inflight_ticket_place {
	uint32_t serial; /* of the latest ticket; only the owner uses it */
	uint64_t latest; /* number of the latest submission; only the owner uses it */
	_Atomic bool is_taken;
	_Atomic uint32_t back __attribute__((aligned(64))); /* serial of the latest ticket that was given back */
	/* By serial, modulo INFLIGHT_TICKET_NUMBERS; they never become less. */
	_Atomic uint64_t numbers[INFLIGHT_TICKET_NUMBERS] __attribute__((aligned(64)));
} __attribute__((aligned(64)));

/*
 * Takes a place for this thread; returns NULL if none is left. No ticket may be out when the place is given back; NULL
 * may be given back.
 */
struct inflight_ticket_place *inflight_ticket_take_place(void);
void inflight_ticket_give_place(struct inflight_ticket_place *place);

/* Takes the next ticket, which is out from now on. Only the owner of the place may call it. */
struct inflight_ticket inflight_ticket_take(struct inflight_ticket_place *place);

/* Gives the latest ticket back, by the owner. number: of the submission; 0 if nothing was submitted. */
static inline void inflight_ticket_give_back(struct inflight_ticket_place *place, uint64_t number)
{
	if (number)
		place->latest = number;
	atomic_store_explicit(&place->numbers[place->serial % INFLIGHT_TICKET_NUMBERS], place->latest,
			      memory_order_relaxed);
	atomic_store_explicit(&place->back, place->serial, memory_order_release);
}

/* Any thread. Returns whether the ticket was given back; then the number of its submission is at most *ret_number. */
bool inflight_ticket_is_back(struct inflight_ticket ticket, uint64_t *ret_number);

#endif
