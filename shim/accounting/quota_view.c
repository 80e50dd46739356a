/*
 * quota_view.c: adds up what all slots of the shared file say, our own included. It only reads; quota.c takes.
 */
#include "shim/accounting/accounting_state.h"
#include "shim/accounting/quota_internal.h"
#include "shim/base/clock.h"

/* Adds a slot to the sum. claim: as read before. Returns false for nonsense: see QUOTA_MOST. */
static bool add_slot(struct quota_view *view, unsigned i, const struct quota_slot *slot, uint64_t claim)
{
	uint64_t used = slot->used;

	if (!slot->stamp)
		return true;
	if (used > QUOTA_MOST || claim > QUOTA_MOST)
		return false;
	view->used += used;
	if (slot->leaving) {
		view->ending += used;
	} else {
		view->ranks++;
		if (i != view->index)
			view->spare += quota_smaller(slot->spare, used);
	}
	if (i == view->index) {
		view->mine = used;
	} else {
		view->claimed += claim;
		view->lower_claim |= claim && i < view->index;
	}
	return true;
}

/* Others are owed what they were refused lately, if their part would serve it. view->part must be set. */
static void add_want(struct quota_view *view, unsigned i, const struct quota_slot *slot, uint64_t now)
{
	uint64_t until = slot->wanted_until;

	/* A time that lies too far ahead was not given by this clock. */
	if (i == view->index || !slot->stamp || until <= now || until > now + accounting_state.quota.want_lasts)
		return;
	uint64_t level = slot->wanted, used = slot->used, most = quota_smaller(level, view->total);
	uint64_t wanted = most > used ? most - used : 0;
	view->wanted += wanted;
	if (level <= view->part)
		view->owed += wanted;
}

enum quota_looked quota_view_check_own(const struct quota_seat *at, const struct quota_slot *slot)
{
	if (!slot->stamp || slot->ticket != at->ticket)
		return QUOTA_LOST;
	return slot->stamp == at->stamp ? QUOTA_GOOD : QUOTA_NONSENSE;
}

/* Reads the claims of some slots, then all else of them: a claim is read before the bytes used (quota.c). */
static enum quota_looked look_at(const struct quota_seat *at, unsigned first, struct quota_view *view)
{
	struct quota_slot slots[QUOTA_SLOTS_READ];
	uint64_t claims[QUOTA_SLOTS_READ];

	if (!quota_file_read_slots(at, first, QUOTA_SLOTS_READ, slots))
		return QUOTA_LOST;
	for (unsigned i = 0; i < QUOTA_SLOTS_READ; i++)
		claims[i] = slots[i].stamp ? (uint64_t)slots[i].claim : 0;
	quota_file_fence();
	if (!quota_file_read_slots(at, first, QUOTA_SLOTS_READ, slots))
		return QUOTA_LOST;
	if (at->index - first < QUOTA_SLOTS_READ) {
		enum quota_looked own = quota_view_check_own(at, &slots[at->index - first]);

		if (own != QUOTA_GOOD)
			return own;
	}
	for (unsigned i = 0; i < QUOTA_SLOTS_READ; i++)
		if (!add_slot(view, first + i, &slots[i], claims[i]))
			return QUOTA_NONSENSE;
	return QUOTA_GOOD;
}

static void look_for_wants(const struct quota_seat *at, unsigned n, struct quota_view *view, uint64_t now)
{
	struct quota_slot slots[QUOTA_SLOTS_READ];

	for (unsigned first = 0; first < n; first += QUOTA_SLOTS_READ) {
		if (!quota_file_read_slots(at, first, QUOTA_SLOTS_READ, slots))
			return;
		for (unsigned i = 0; i < QUOTA_SLOTS_READ; i++)
			add_want(view, first + i, &slots[i], now);
	}
}

enum quota_looked quota_view_look(const struct quota_seat *at, struct quota_view *ret_view)
{
	struct quota_view view = {.index = at->index};
	struct quota_head head;
	enum quota_looked looked = QUOTA_GOOD;

	if (!quota_file_read_head(at, &head) || !head.bytes)
		return QUOTA_LOST;
	view.total = head.total;
	if (view.total > QUOTA_MOST || head.slots > QUOTA_SLOTS)
		return QUOTA_NONSENSE;
	/* After a truncation head.slots may be too small; our own slot is read in any case, and shows it. */
	unsigned n = at->index < head.slots ? (unsigned)head.slots : at->index + 1;
	for (unsigned first = 0; first < n && looked == QUOTA_GOOD; first += QUOTA_SLOTS_READ)
		looked = look_at(at, first, &view);
	if (looked != QUOTA_GOOD)
		return looked;
	/* Slots behind the end of a file read as free; by now the file may have been filled again, without us. */
	struct quota_slot own;
	quota_file_fence();
	if (head.moved || !quota_file_is_whole(at) || !quota_file_read_slots(at, at->index, 1, &own) ||
	    quota_view_check_own(at, &own) != QUOTA_GOOD)
		return QUOTA_LOST;
	view.part = view.total / (view.ranks ? view.ranks : 1);
	uint64_t now = clock_now();
	if (head.asked_until > now)
		look_for_wants(at, n, &view, now);
	*ret_view = view;
	return QUOTA_GOOD;
}

uint64_t quota_view_room(const struct quota_view *view, uint64_t gone)
{
	return view->total > gone ? view->total - gone : 0;
}

bool quota_view_is_part(const struct quota_view *view, uint64_t bytes)
{
	return bytes <= view->part && view->mine <= view->part - bytes;
}

bool quota_view_fits(const struct quota_view *view, uint64_t gone, uint64_t bytes)
{
	uint64_t room = quota_view_room(view, gone);

	if (bytes > room)
		return false;
	return quota_view_is_part(view, bytes) || bytes <= room - quota_smaller(room, view->owed);
}
