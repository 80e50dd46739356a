/*
 * recent_submissions.c: the ring of the latest submissions. Each entry carries its number, which is 0 while the entry
 * is written.
 */
#include "shim/submit/recent_submissions.h"
#include "shim/submit/submit_state.h"

#include <stdatomic.h>

/*
 * Writes the number last, and 0 before the rest. A reader that finds the same number before and after it reads the rest
 * has a consistent entry.
 */
void recent_submissions_note(uint64_t number, const struct completion_what *what, unsigned row)
{
	unsigned at = number % SUBMISSIONS_KEPT;

	atomic_store_explicit(&submit_tables.recent[at].number, 0, memory_order_relaxed);
	atomic_store_explicit(&submit_tables.recent[at].function, what->function, memory_order_release);
	atomic_store_explicit(&submit_tables.recent[at].what, (uint64_t)what->id << 16 | row, memory_order_release);
	atomic_store_explicit(&submit_tables.recent[at].number, number, memory_order_release);
}

uint64_t recent_submissions_oldest(uint64_t newest)
{
	return newest < SUBMISSIONS_KEPT ? 1 : newest - SUBMISSIONS_KEPT + 1;
}

bool recent_submissions_look(uint64_t number, struct completion_what *ret_what, unsigned *ret_row)
{
	unsigned at = number % SUBMISSIONS_KEPT;

	if (atomic_load_explicit(&submit_tables.recent[at].number, memory_order_acquire) != number)
		return false;
	uint64_t function = atomic_load_explicit(&submit_tables.recent[at].function, memory_order_acquire);
	uint64_t what = atomic_load_explicit(&submit_tables.recent[at].what, memory_order_acquire);
	if (atomic_load_explicit(&submit_tables.recent[at].number, memory_order_relaxed) != number)
		return false;
	*ret_what = (struct completion_what){function, (uint32_t)(what >> 16)};
	*ret_row = (unsigned)(what & 0xffff);
	return true;
}
