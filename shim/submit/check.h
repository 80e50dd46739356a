// SPDX-License-Identifier: Apache-2.0
/*
 * check.h: checked launches, a test switch: do kernels use memory that their launches do not name? SPILLWAY_CHECK=FILE
 * in the environment switches it on; spillway-limits(7) says what it proves, and scripts/checked.sh runs a program so.
 *
 * The first 3 launches of each function, and each 1,000th, are checked in `fast`:
 *
 *   the thread   has read the names of its launch and pins the blocks; asks the mover (CHECK_ASKED)
 *   the mover    begins a gap of the whole process; unmaps what may move and is not named; lets the launch pass
 *                (CHECK_OPEN), and no other one
 *   the thread   writes the function to FILE, launches, waits for the stream, and writes how that ended
 *   the mover    maps everything again, and ends the gap
 *
 * A kernel that uses something else faults, and its context is dead. The function is listed then, and not checked again
 * by the next run that has the same FILE, to which each process adds its figures when it ends.
 *
 * Nothing waits for ever: the mover maps everything again after CHECK_NS, or when a thread waits to pin memory.
 */
#ifndef SPILLWAY_CHECK_H
#define SPILLWAY_CHECK_H

#include <stdatomic.h>
#include <stdbool.h>

/* ns: how long everything else is unmapped at most. */
#define CHECK_NS 800000000

/* Why launches were not checked. Graphs and captured launches are all counted, others if it was their turn. */
#define LEFT_REASONS(X)                                                                                                \
	X(GRAPH, "graphs")                                                                                             \
	X(CAPTURE, "launches while a stream was captured")                                                             \
	X(LISTED, "launches of functions that were refuted before")                                                    \
	X(UNKNOWN, "launches of which it is not known what they may use")                                              \
	X(STILL, "launches on a device whose memory does not move, or moves in exact")                                 \
	X(BUSY, "the GPU did not come to rest, or another launch was checked")                                         \
	X(AWAITED, "a thread waited to pin memory")                                                                    \
	X(LATE, "launches whose names may not have been complete")                                                     \
	X(CUT, "kernels that did not end in time")                                                                     \
	X(FILE, "the list could not be written, or there are too many functions")
#define LEFT_NAMED(name, text) LEFT_##name,
#define LEFT_TEXT(name, text)  text,
enum check_left { LEFT_REASONS(LEFT_NAMED) LEFT_COUNT };

/* The launch of one device that is being checked; part of the device's channel. */
struct check {
	/*
	 * Who may change it:
	 *
	 *   IDLE     any thread that launches. CLAIMED: the thread, which is about to ask
	 *   ASKED    the thread, which may give up, or the mover
	 *   TAKEN    the mover, which begins the gap. REFUSED: the thread; `why` says the reason
	 *   OPEN     the thread, or the mover, which may cut the check: everything else is unmapped
	 *   CUT      the thread: everything is mapped, and the kernel may still run
	 *   DONE     the mover: the kernel has ended, or was not launched. FAULTED: it and its context have ended
	 */
	_Atomic enum check_stage {
		CHECK_IDLE,
		CHECK_CLAIMED,
		CHECK_ASKED,
		CHECK_TAKEN,
		CHECK_REFUSED,
		CHECK_OPEN,
		CHECK_CUT,
		CHECK_DONE,
		CHECK_FAULTED
	} stage;
	enum check_left why;
	const struct submission *submission;
	struct check_function *function;
	int cancel; /* the thread's cancel state before */
};

/* ---- called at start and end (lifecycle.c) ---- */

/* Reads the environment and the list. To be called before anything is submitted. */
void check_start(void);
/* Writes the figures. */
void check_end(void);

/* ---- called by admit.c ---- */

/*
 * Counts a launch. Returns when it is alone, or is not to be checked: submission->checked is NULL then. The caller must
 * have pinned its blocks, and be outside the driver. Preserves errno. Locking: takes ROW and WAKE, and the loader's
 * lock; the caller must hold nothing.
 */
void check_begin(struct submission *submission);
/*
 * Returns whether the launch passes the gate, which is closed for its sake. The caller must count as inside the driver:
 * then no other gap begins before it leaves.
 */
bool check_is_open(const struct submission *submission);
/*
 * The launch must not be made so: ends the check. late: because its names may not be complete; else because the mover
 * has cut it. The caller must be outside the driver, and must call this before it waits at the gate. Preserves errno.
 */
void check_drop(struct submission *submission, bool late);
/* The launch was made: waits for it and ends the check. Preserves errno. */
void check_finish(struct submission *submission);

/* ---- called by the mover ---- */

struct block_state;

/* Returns whether checks are on. They need a mover also if nothing is spilled. */
bool check_is_on(void);
/* Returns whether the launch that is checked names this block. Only while it is TAKEN. */
bool check_names(const struct check *check, const struct block_state *block);

#endif
