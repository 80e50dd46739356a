/*
 * inflight_ticket.c: tickets of submissions in flight: the table of places, one per thread. Places are reused, and
 * their serials go on.
 */
#include "shim/submit/inflight_ticket.h"
#include "shim/submit/submit_state.h"

#include <stddef.h>

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
