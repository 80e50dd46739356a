// SPDX-License-Identifier: Apache-2.0
/*
 * live_map.h: which bytes of a heap's address space hold contents, as far as the program's allocator has said. An
 * allocator like PyTorch's keeps large blocks of ours and cuts them into tensors; it reports when each one is born and
 * when it dies. Ranges of which no allocator reports anything are alive.
 *
 * A block of the heap is *reported* once its allocator is known (live_map_report), until it is freed
 * (live_map_forget), or until something happens that makes the reports unreliable (live_map_distrust). In a reported
 * block a byte is alive
 *
 *   - from the birth of a range that covers it, until that range has died and the death counts;
 *   - from the moment when a submission names it although it is dead, until the next birth there.
 *
 * But as long as nothing was submitted since a birth in empty memory, and nothing runs, nobody can have written there;
 * nor if memory was only cleared since, which touches nothing but what it names and brings nobody an address, and none
 * of that has named what was born. What had been submitted before the birth does not learn the address otherwise.
 * Memory is empty if nothing in it is alive and, of each range that has died, some report before the birth shows that
 * its thread had submitted something since the death.
 *
 * A death counts once everything that was submitted before it has completed, and the thread that reported it is known
 * to have submitted something since (live_map_heard): an allocator that restores an older state reports deaths and
 * births of memory whose contents must survive, and submits nothing in between. All other bytes of the block are dead:
 * nobody will read them before they are written.
 *
 * Pure: no clock, no CUDA. Offsets are in bytes from the beginning of the address space. Events must be given in the
 * order in which they happened, with submissions in between. Locking: none; one thread at a time may use a map.
 */
#ifndef SPILLWAY_LIVE_MAP_H
#define SPILLWAY_LIVE_MAP_H

#include "shim/base/number.h"

#include <stdbool.h>
#include <stdint.h>

#define LIVE_MAP_UNIT ((uint64_t)2 << 20) /* blocks begin at multiples of this */

/* Bytes of reported blocks. What is neither alive nor dead is fresh: nothing was ever born there. */
struct live_map_sums {
	uint64_t reported;
	uint64_t alive;
	uint64_t dead; /* has died, whether or not the death counts already */
};

/* A range of bytes. */
struct live_range {
	uint64_t begin, end;
};

/* Returns the part of a range that lies within a block. */
static inline struct live_range live_range_within(struct live_range range, uint32_t block, uint32_t units)
{
	uint64_t begin = block * LIVE_MAP_UNIT, end = begin + units * LIVE_MAP_UNIT;

	return (struct live_range){larger(range.begin, begin), smaller(range.end, end)};
}

/* Which deaths count: see the head of this file. */
struct live_now {
	uint64_t done;   /* all submissions up to this one have completed */
	bool unfinished; /* those count, too, whose thread is not known to have submitted anything since */
	uint64_t idle;   /* nothing runs, and this is the latest submission; 0: something runs */
	/*
	 * With idle: what was submitted after this one touches nothing but what it names (live_map_touch); 0: not
	 * known.
	 */
	uint64_t named_only;
};
/* When all that was submitted has completed, as of now. */
#define LIVE_IN_THE_END ((struct live_now){.done = UINT64_MAX, .unfinished = true})

/* What is known of a report: the latest submission of all threads, and the one of the thread that reports. */
struct live_report {
	uint64_t number; /* 0: none */
	uint64_t own;    /* a number that grows with each submission of this thread; 0: none */
	uint32_t thread; /* from 1; 0, or more than LIVE_MAP_THREADS: deaths that it reports never count */
	bool empty;      /* of a birth, or a block: whatever was there, no contents are meant to survive */
	uint16_t site;   /* of a birth: any number, 0: none; see live_map_sites() */
};
#define LIVE_MAP_THREADS 4095

/* Creates a map of `bytes` of address space. Returns NULL if there is no memory. */
struct live_map *live_map_new(uint64_t bytes);
void live_map_free(struct live_map *map);

/*
 * From now on the allocator reports what is born in this range; so far nothing is. A unit that is reported already
 * keeps what is known of it. The caller must pass whole units.
 */
void live_map_report(struct live_map *map, uint64_t begin, uint64_t end);
/*
 * The units of this range are not reported, and will not be before live_map_forget(): they are alive as a whole. The
 * caller must pass whole units.
 */
void live_map_distrust(struct live_map *map, uint64_t begin, uint64_t end);
/* The units of this range are not in use any more. The caller must pass whole units. */
void live_map_forget(struct live_map *map, uint64_t begin, uint64_t end);
/* Returns whether the byte lies in a reported block. */
bool live_map_is_reported(const struct live_map *map, uint64_t at);

/*
 * Record a birth, and a death. If only a part of a range that is born is reported, its reported units are distrusted.
 * The death of a range that was not born as such is ignored. live_map_birth() returns false if there is no memory to
 * remember a birth; everything is distrusted then.
 */
bool live_map_birth(struct live_map *map, uint64_t begin, uint64_t end, struct live_report report);
void live_map_death(struct live_map *map, uint64_t begin, uint64_t end, struct live_report report);
/*
 * Records how far a thread that reports is known to have come: further, perhaps, than by its reports that were applied.
 * live_map_birth() and live_map_death() record what their reports say.
 */
void live_map_heard(struct live_map *map, struct live_report report);
/* Everything that is reported is alive until its next birth and death. */
void live_map_restart(struct live_map *map);
/* Nothing that is reported now is reported any more. */
void live_map_distrust_reported(struct live_map *map);
/*
 * Records that a submission names this byte, and returns in *ret the range that it means: the one that was born there,
 * or, if it is dead (*ret_revived), that and all that is dead behind it, which is alive from now on. Returns false, and
 * changes nothing, if it is not reported.
 */
bool live_map_name(struct live_map *map, uint64_t at, struct live_range *ret, bool *ret_revived);
/*
 * Records that a set names this byte: it may write to what was born there. To be called for all that the submissions
 * name to which live_now.named_only refers; more does no harm.
 */
void live_map_touch(struct live_map *map, uint64_t at);
/* Finds the range without recording anything. */
bool live_map_find(const struct live_map *map, uint64_t at, struct live_range *ret);

/* What is alive of a range, by the site that its births were reported with. */
struct live_site {
	uint64_t bytes;
	uint16_t site; /* not 0 */
};
/*
 * Stores each site of what has been born and not died in the range, once, and returns how many. What does not fit into
 * `most`, and what has no site, is left out.
 */
unsigned live_map_sites(const struct live_map *map, uint64_t begin, uint64_t end, struct live_site *ret, unsigned most);

/* Returns whether no byte of the range is alive. */
bool live_map_is_dead(const struct live_map *map, uint64_t begin, uint64_t end, struct live_now now);
/* Returns how much of the range is dead, in 1/`parts` of it; `parts` only if all of it is. */
unsigned live_map_dead_share(const struct live_map *map, uint64_t begin, uint64_t end, struct live_now now,
			     unsigned parts);
/*
 * Stores the parts of the range that are alive, in order, and returns how many. Parts with at most `gap` dead bytes
 * between them are joined, and so is what does not fit into `most`.
 */
unsigned live_map_alive(const struct live_map *map, uint64_t begin, uint64_t end, struct live_now now, uint64_t gap,
			struct live_range *ret, unsigned most);

struct live_map_sums live_map_sums(const struct live_map *map);

#endif
