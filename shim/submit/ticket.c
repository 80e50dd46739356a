#include "shim/submit/ticket.h"

#include <stddef.h>

static struct ticket_place places[TICKET_PLACES];

struct ticket_place *ticket_take_place(void)
{
	for (unsigned i = 0; i < TICKET_PLACES; i++)
		if (!atomic_load_explicit(&places[i].is_taken, memory_order_relaxed) &&
		    !atomic_exchange_explicit(&places[i].is_taken, true, memory_order_acquire))
			return &places[i];
	return NULL;
}

void ticket_give_place(struct ticket_place *place)
{
	if (place)
		atomic_store_explicit(&place->is_taken, false, memory_order_release);
}

struct ticket ticket_take(struct ticket_place *place)
{
	return (struct ticket){(uint32_t)(place - places) + 1, ++place->serial};
}

bool ticket_is_back(struct ticket ticket, uint64_t *ret_number)
{
	const struct ticket_place *place = &places[ticket.place - 1];

	if ((int32_t)(atomic_load_explicit(&place->back, memory_order_acquire) - ticket.serial) < 0)
		return false;
	*ret_number = atomic_load_explicit(&place->numbers[ticket.serial % TICKET_NUMBERS], memory_order_relaxed);
	return true;
}
