/*
 * channel.c: the side of the channel that submissions use: they post to the submission log, wake the mover, and wait
 * for its answer.
 */
#include "shim/submit/channel.h"
#include "shim/base/call_site.h"
#include "shim/base/lock.h"
#include "shim/lifetimes/birth_lines.h"
#include "shim/lifetimes/lifetimes.h"
#include "shim/stats/stats.h"
#include "shim/submit/submission.h"

#include <sched.h>

/* A submission stops waiting for an answer after this time, because the mover may have ended. */
#define ANSWER_MS 2000

bool channel_init(struct channel *channel, const struct arena *arena, int device)
{
	channel->arena = arena;
	channel->device = UINT64_C(1) << device;
	lock_init(&channel->wake_lock, LOCK_WAKE);
	lock_init(&channel->lock, LOCK_SPILL);
	return submission_log_init(&channel->tape);
}

bool channel_post(struct channel *channel, uint64_t function, const struct named *named, unsigned n,
		  struct inflight_ticket ticket)
{
	return submission_log_write(&channel->tape, function, named, n, ticket) || atomic_load(&channel->dead);
}

/* ---- waiting ---- */

void channel_wake(struct channel *channel)
{
	if (!atomic_load(&channel->asleep))
		return;
	lock_take(&channel->wake_lock);
	clock_wake_one(&channel->wake);
	lock_drop(&channel->wake_lock);
}

static void unlink_waiter(struct channel *channel, const struct waiter *waiter)
{
	struct waiter **at = &channel->waiters;

	while (*at != waiter)
		at = &(*at)->next;
	*at = waiter->next;
	atomic_fetch_sub(&channel->n_waiters, 1);
}

/* Sites whose memory a submission waits for, each once; further ones are not listed. */
#define WAIT_SITES 16

/* Returns the site of what is at an address of a block: the line of the tensor there, as far as that is known. */
static unsigned site_at(const struct arena *arena, uint32_t block, CUdeviceptr address)
{
	unsigned site = arena_site(arena, block, arena_unit(arena, address));

	if (!arena->lifetimes || !lifetimes_is_reported(arena->lifetimes, address, 1))
		return site;
	return stats_site_of_tensors(site, call_site_numbered(birth_lines_at(address)));
}

static unsigned missing_sites(const struct channel *channel, const struct named *named, unsigned n,
			      unsigned ret_sites[WAIT_SITES])
{
	const struct arena *arena = channel->arena;
	unsigned found = 0;

	for (unsigned i = 0; i < n && found < WAIT_SITES; i++) {
		if (!arena_contains(arena, named[i].address))
			continue;
		uint32_t word = arena_look(arena, named[i].address);
		uint32_t block = !word || word & ARENA_SLAB ? arena_unit(arena, named[i].address) : word - 1;
		const struct block_state *mark = &arena->marks[block];
		unsigned site, seen = 0;
		bool away = named[i].bytes != NAMED_ASIDE && atomic_load(&mark->away);

		if (!away && !atomic_load(&mark->unmapped))
			continue;
		site = site_at(arena, block, named[i].address);
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
	unlink_waiter(channel, &waiter);
	lock_drop(&channel->lock);
	return waiting_end(&waiting, sites, n_sites);
}
