// SPDX-License-Identifier: Apache-2.0
/*
 * lifetimes.h: births and deaths of what the program's allocator keeps in blocks of a heap, and the map of what is
 * alive after them (plan/live_map.h).
 *
 * Events come from any thread, in the middle of the program's allocator and perhaps in a stream capture. An event is
 * one record in a ring: no lock, no memory, no call of the driver. Once a mover reads the ring it does so in the order
 * of submissions: each event carries the position of the submission log at that moment. Before that, the thread that
 * finds the ring nearly full applies its events. If an event is lost, everything that is reported then is alive until
 * its next birth and death; if the event was not of a birth, a death or a new block, until its block is freed.
 *
 * A block is reported if the allocator that reports has just made it: its own code has asked the CUDA runtime for it,
 * and the sum of bytes that PyTorch has reserved, which it tells with each event, has grown by just what this thread
 * has allocated from the heap since its last event, and the range that is born lies there, in each part of it. What
 * another library has asked for, a plugged-in allocator or one that cuts slabs, may have other users when PyTorch has
 * given it back, of which nobody reports; it stays alive as a whole. If anything was submitted since a block was
 * allocated, whoever made it may have filled it: all of it is alive until its next birth and death.
 */
#ifndef SPILLWAY_LIFETIMES_H
#define SPILLWAY_LIFETIMES_H

#include "shim/plan/live_map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of one heap. It lives as long as the heap. */
struct lifetimes;

/* What an allocator reports about one range. */
struct lifetimes_report {
	int device;
	uint64_t address, bytes;
	bool born;            /* otherwise it died */
	uint64_t reserved;    /* bytes that the allocator has from the driver, on this device */
	uint64_t allocated;   /* bytes of them that are in use after this */
	const void *reporter; /* the object whose code reports (caller_name_object) */
	uint64_t number;      /* of the latest submission */
	/*
	 * Of the latest submission of this thread; 0: none is numbered. It counts only for threads beyond the first 16
	 * that report; those count their submissions (stats_own_stripe).
	 */
	uint64_t own;
	/*
	 * While a stream capture is open: the block, or the reservation, that has the range; 0 bytes otherwise. A graph
	 * uses such memory at each launch, so the block is distrusted.
	 */
	uint64_t block, block_bytes;
};

enum lifetimes_kind {
	LIFETIMES_REPORTED, /* a block of which the allocator reports; unless it is empty, all of it is alive */
	LIFETIMES_ADOPTED,  /* one that the program has had already, and reports of itself: all of it is alive */
	LIFETIMES_BORN,
	LIFETIMES_DIED,
	LIFETIMES_DISTRUSTED,     /* a block of which reports do not count any more */
	LIFETIMES_DISTRUSTED_ALL, /* the same, of all blocks reported so far */
	LIFETIMES_FREED,          /* a block that is not in use any more */
	LIFETIMES_LOST,           /* only read: stands for some that were lost; empty: nothing is distrusted for them */
};

/* An event, as read. Offsets are in bytes from the beginning of the heap's address space. */
struct lifetimes_event {
	enum lifetimes_kind kind;
	uint64_t begin, end;
	struct live_report report;
};

/*
 * Creates the lifetimes of the device's heap, with this address space. Returns NULL if there is no memory. The caller
 * must not run two calls at once.
 */
struct lifetimes *lifetimes_new(int device, uint64_t base, uint64_t bytes);
/* Only for tests: events of any thread may come at any time. */
void lifetimes_free(struct lifetimes *lifetimes);

/* ---- events, from any thread; Locking: none ---- */

/*
 * A block was allocated in the heap: `bytes` were requested, at a multiple of LIVE_MAP_UNIT. space: the program has
 * mapped it itself, in the address space that it has reserved from there on; otherwise 0. asker: the object that asked
 * for it (call_site_asker); NULL: one that is not known, which is never the allocator that reports. lifetimes may be
 * NULL.
 */
void lifetimes_allocated(struct lifetimes *lifetimes, uint64_t address, uint64_t bytes, uint64_t space,
			 const void *asker);
/*
 * A block is not in use any more. The caller must call this before its address space is used again. lifetimes may be
 * NULL.
 */
void lifetimes_freed(struct lifetimes *lifetimes, uint64_t address, uint64_t bytes);
/*
 * The block that has the byte `named`, or the address space that it was placed in, is alive as a whole until it is
 * freed, and doubted (crossings_doubt()) until that space is reserved anew. lifetimes may be NULL.
 */
void lifetimes_distrust(struct lifetimes *lifetimes, uint64_t named, uint64_t address, uint64_t bytes);
/* All blocks of all heaps that are reported so far are alive as a whole. */
void lifetimes_distrust_all(void);
/* The program has reserved the address space that begins here. lifetimes may be NULL. */
void lifetimes_reserved(struct lifetimes *lifetimes, uint64_t address);
/*
 * An allocation in this range of whole units is backed on use (heap/on_use.c): from now on births say how far pointers
 * reach into it (lifetimes_reach), whoever reports them; until lifetimes_freed(). `bytes` were requested. lifetimes may
 * be NULL. The caller must not run two calls at once.
 */
void lifetimes_on_use(struct lifetimes *lifetimes, uint64_t address, uint64_t bytes);
/*
 * Stores the range that was born at an address of such an allocation and is alive, or more. Returns false if that is
 * not known. lifetimes may be NULL.
 */
bool lifetimes_reach(struct lifetimes *lifetimes, uint64_t address, uint64_t *ret_begin, uint64_t *ret_bytes);
/* An allocator reports. Calls for one device must come one after another: the allocator has a lock. */
void lifetimes_tell(const struct lifetimes_report *report);

/*
 * The program itself says that a range of a block is born, or has died (spillway_born): `block`, at a multiple of
 * LIVE_MAP_UNIT, has all of the range, and was not placed by the program. With the first birth in a block all else in
 * it is alive, for what is there has its contents; so is what it has grown by since the latest call. Nothing of it
 * counts in a block of the reporting allocator, in one that a graph has ever named, in a capture, and after a graph
 * that could not be read. report->reserved is not used.
 */
void lifetimes_declare(const struct lifetimes_report *report, uint64_t block, uint64_t block_bytes);

/*
 * For memory that the library itself divides (serve/segments.c). lifetimes_own(): a block was allocated of which all
 * births and deaths will be told with lifetimes_own_tell(), from now on until lifetimes_freed(). Of a report only
 * address, bytes, born, number and own count; the range lies in one such block. Nobody restores an older state of such
 * memory: a death counts as soon as everything up to its number has completed, and what is born is empty whatever was
 * there. lifetimes must not be NULL.
 */
void lifetimes_own(struct lifetimes *lifetimes, uint64_t address, uint64_t bytes);
void lifetimes_own_tell(struct lifetimes *lifetimes, const struct lifetimes_report *report);

/* Returns whether all of this is the reporting allocator's now, and not distrusted. Locking: none. */
bool lifetimes_is_reported(const struct lifetimes *lifetimes, uint64_t address, uint64_t bytes);
/* Returns whether the program itself says what is alive there (lifetimes_declare). Locking: none. */
bool lifetimes_is_declared(const struct lifetimes *lifetimes, uint64_t address);
/* How far pointers reach, for any thread. Kept from the first address space on that the program has reserved. */
struct crossings *lifetimes_crossings(struct lifetimes *lifetimes);

/* ---- the reader ---- */

/*
 * From now on the calling thread alone reads events and uses the map. position: where the position of the submission
 * log is, which events carry from now on. Before that nobody saw what submissions name: live_map_restart() is for a
 * caller that wants to have seen it.
 */
void lifetimes_take_over(struct lifetimes *lifetimes, const _Atomic size_t *position);
/*
 * Applies the oldest event to the map, and stores it. Returns false if there is none whose position is at most
 * `position`.
 */
bool lifetimes_read(struct lifetimes *lifetimes, size_t position, struct lifetimes_event *ret);
/*
 * Looks how far the threads that report have come, of which the map otherwise hears only when they report. The caller
 * must read, or look at lifetimes_is_unread(), after this and before it uses the map. It does not know how far threads
 * have come that have no stripe of their own.
 */
void lifetimes_hear(struct lifetimes *lifetimes);
/*
 * Returns whether all events whose position is at most `position` have been read. If not, one of them is being written,
 * or was when lifetimes_read() returned false.
 */
bool lifetimes_is_read(const struct lifetimes *lifetimes, size_t position);
/*
 * Returns whether an event that has not been read may bring something in these bytes to life: more than the map says is
 * alive then. deaths: or to death.
 */
bool lifetimes_is_unread(const struct lifetimes *lifetimes, uint64_t begin, uint64_t end, bool deaths);
/*
 * Returns whether the map has a meaning: no event was lost that is not accounted for. Whoever asks after it has read
 * that something was submitted may use what the map says of what that names.
 */
bool lifetimes_is_known(const struct lifetimes *lifetimes);
struct live_map *lifetimes_map(struct lifetimes *lifetimes);

/* ---- how far pointers reach (births.c) ---- */

/*
 * How far a pointer reaches into memory that the program has mapped itself. The program decides how many
 * of its handles a tensor covers, so the handle that a pointer lies in does not say which others are used with it. What
 * the program's allocator reports does: a pointer reaches over the range that was born around it.
 *
 * Only ranges that cross the beginning of a unit are kept, one for each such beginning, for ranges that are alive are
 * disjoint. A birth overwrites what was kept where it crosses; a death changes nothing. So at any address in a range
 * that is alive the answer is that range, and elsewhere it is at most too long.
 *
 * Births are written by the thread that reports them, at once. Who may use a range knows its address, so its birth
 * happened before, and no later birth can meet the range while it is alive.
 *
 * Of allocations that are backed on use (heap/on_use.c) more must be known: whether something that is alive was born at
 * an address at all, also within a unit. While such a range is *watched*, a bit for each 512 bytes says so, which a
 * death takes back; ranges count in whole such steps.
 *
 * Graphs use memory without births, at each launch, so address space that a graph names is *doubted* until it is given
 * back. Offsets are in bytes from the beginning of the heap's address space. Locking: none; any thread may call any
 * function at any time.
 */

/* For `bytes` of address space. Returns NULL if there is no memory. */
struct crossings *crossings_new(uint64_t bytes);
void crossings_free(struct crossings *crossings);

/* A range was born. If it is longer than 256 GiB, or begins past 16 TiB, it is not kept, and everything is doubted. */
void crossings_born(struct crossings *crossings, uint64_t begin, uint64_t end);
/* Finds the range of more than one unit that has this byte. Returns false if none is known. */
bool crossings_find(const struct crossings *crossings, uint64_t at, struct live_range *ret);

/*
 * Watches a range of whole units, in which nothing is alive; and ends that. Without memory for it, nothing
 * is known of the range. The caller must not run two calls at once.
 */
void crossings_watch(struct crossings *crossings, uint64_t begin, uint64_t end);
void crossings_unwatch(struct crossings *crossings, uint64_t begin, uint64_t end);
/* A range died. Matters only where it is watched. */
void crossings_died(struct crossings *crossings, uint64_t begin, uint64_t end);
/*
 * Finds where the range ends at most that is alive at this byte, and was born while it was watched. Returns false if
 * none is known.
 */
bool crossings_reach(const struct crossings *crossings, uint64_t at, struct live_range *ret);

/*
 * Pointers into the address space that begins here may reach over all of it. Of a caller that then reads a word, and a
 * thread that writes the word and then calls crossings_is_doubted(), at least one sees what the other has written.
 */
void crossings_doubt(struct crossings *crossings, uint64_t space);
/* The same for all address space, for good. */
void crossings_doubt_all(struct crossings *crossings);
/* The address space was reserved anew. */
void crossings_renew(struct crossings *crossings, uint64_t space);
bool crossings_is_doubted(const struct crossings *crossings, uint64_t space);
bool crossings_is_all_doubted(const struct crossings *crossings);

/* ---- lines of births (births.c) ---- */

/*
 * At which line of the program each tensor is born (call_site_of_tensor), within a share of the time.
 *
 * A training step makes the same tensors in the same order as the one before, and PyTorch's allocator gives them the
 * same addresses. So a birth is recognized by its range and by those of the two births before it on its thread, and
 * has the line that was found when this was seen for the first time. Now and then it is looked again. In the first
 * steps addresses are not settled, and where lengths vary they never are: a birth that is not recognized has the line
 * of the latest one that was named with the same eight sizes, its own and those before it, until there is time to
 * look.
 *
 * Naming may take 1/125 of the time, and 20 ms that were saved, of the CPU, whatever the program does; births that
 * are recognized cost no time of it. Half of what may be saved is kept for tensors of which nothing is known and that
 * are not small: hardly anything of small ones moves. A birth that is neither recognized nor named has no line.
 *
 * Measured with the births of nine steps of a GPT (16 layers, H200, 1,430 births a step of 70 ms; of their bytes 0.2
 * % are of tensors below 4 MiB), where a place in the program is the sizes of six births before and six behind: of
 * all bytes 99.9 % have the right place by range and two births, 95 % by eight sizes, 59 % by range alone. With 15 us
 * a naming all bytes have a place from the first step on, 92 % of them the right one in the third step and 97 % in
 * the tenth; without sizes 9 % had one in the fourth. Of what is alive 99 % lies in units whose latest birth is its
 * own.
 *
 * A thread of PyTorch's autograd is at no line: there the line counts for which it runs, if that is known
 * (node_lines_name()).
 *
 * Measured (naming_bench.py, x86-64, in a virtual machine): 7 ns a birth that is recognized, 50 to 130 one that is
 * not, without its naming (call_site.h).
 *
 * Locking: none, and none of the loader. No call of the driver. A line that is new takes memory (malloc), once.
 */

/*
 * A tensor is born by this thread. Returns the number of its site (call_site_numbered); 0: not known. Afterwards
 * birth_lines_at() returns it.
 */
unsigned birth_lines_name(uint64_t address, uint64_t bytes);
/*
 * Returns the site of the latest birth that began in this byte's unit (live_map.h) or covered more than half of it; 0:
 * not known. The tensor may have died.
 */
unsigned birth_lines_at(uint64_t address);

#endif
