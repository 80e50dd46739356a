// SPDX-License-Identifier: Apache-2.0
/*
 * channel.h: what submissions and the mover of one device share: the submission log, and the list of submissions that
 * wait for memory. Submissions write and the mover reads; neither calls the other.
 *
 * Locks: SPILL(device) for the list of waiting submissions and their answers; WAKE(device) for the mover's nap. The
 * submission log takes no lock (below).
 */
#ifndef SPILLWAY_CHANNEL_H
#define SPILLWAY_CHANNEL_H

#include "shim/base/clock.h"
#include "shim/base/lock.h"
#include "shim/heap/arena.h"
#include "shim/submit/check.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- tickets ---- */

/*
 * Tickets, which stand for the pins of submissions that have logged what they name and have not
 * returned from the driver. For `fast` mode, in which memory moves beside running work.
 *
 * A launch that pins and unpins ten blocks (arena.h) makes twenty locked operations. Its names go into the submission
 * log anyway, so it adds a ticket to its record there instead, and pins nothing:
 *
 *   a submission   writes its record with the ticket; counts itself as inside the driver (submission_enter); checks
 *                  that all it names is mapped; and gives the ticket back, with its number, after the driver has
 *                  returned
 *   the mover      raises `unmapped` of a block; reads who is inside (submission_empty_stripes); reads the log to its
 *                  end
 *
 * Both write first and read second. A submission that did not see `unmapped` raised had entered before that, so the
 * mover sees that it is inside, and therefore its record. The mover keeps the tickets that are out (below).
 *
 * A ticket is a place, which a thread keeps while it lives, and a serial, which grows in that place. A place has at
 * most one ticket out. The numbers of its latest tickets can be read; if the mover asks too late, it reads the number
 * of a later ticket, so memory may count as used for longer, never for shorter.
 */

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
void inflight_ticket_give_back(struct inflight_ticket_place *place, uint64_t number);

/* Any thread. Returns whether the ticket was given back; then the number of its submission is at most *ret_number. */
bool inflight_ticket_is_back(struct inflight_ticket ticket, uint64_t *ret_number);

/* ---- the submission log ---- */

/*
 * The submission log, a ring of words from the submitting threads to the mover: many writers, one
 * reader, no lock. A launch that met the reader's lock would be put to sleep, some microseconds for 50 ns.
 *
 * A record consists of the function, the names, and perhaps a ticket (above); records are in the order in
 * which writers reserved their words. A record that finds no room is lost: a writer with a ticket gets that as a
 * result, for others the record was only a hint of future use. A writer that is stopped in the middle of a record holds
 * back the records behind it, but no other thread.
 *
 * The words that a launch writes were last written by the reader on another processor, so each cache line costs the
 * launch a transfer: records are short. Prefetching the lines of the next record made it slower. Measured (H200's
 * host): a launch with ten pointers 322 ns with that prefetch, 256 ns without; medians of four.
 */

/* One address that a submission names, below 2^63. bytes: 0 if the extent is not known and must be guessed. */
struct named {
	CUdeviceptr address;
	uint64_t bytes;
};

/*
 * As `bytes`: the submission may reach the block, and it must not be unmapped, but nothing is wanted of it: it need not
 * be fetched, and what is dead there stays dead.
 */
#define NAMED_ASIDE UINT64_MAX

/* Room for some thousand submissions: the reader naps for 5 ms at most (mover.c). */
#define SUBMISSION_LOG_WORDS (1u << 18)

struct submission_log {
	_Atomic uint64_t *words; /* SUBMISSION_LOG_WORDS of them; 0 where nothing is written yet */
	_Atomic size_t head __attribute__((aligned(64))); /* words ever reserved by writers */
	_Atomic size_t tail __attribute__((aligned(64))); /* words ever read; only the reader writes it */
	_Atomic uint64_t lost;                            /* records that found no room */
};

/* Returns false if there is no memory. A log lives as long as the process. */
bool submission_log_init(struct submission_log *log);
/* Writes a record. Returns false if there is no room. Any thread. */
bool submission_log_write(struct submission_log *log, uint64_t function, const struct named *named, unsigned n,
			  struct inflight_ticket ticket);
/*
 * Reads and removes the oldest record; names beyond `most` are dropped. Returns false if no record is complete. Only
 * the reader may call this and the functions below.
 */
bool submission_log_read(struct submission_log *log, uint64_t *ret_function, struct named *ret_named, unsigned most,
			 unsigned *ret_n);

/* Returns whether the oldest record is complete. */
bool submission_log_is_there(const struct submission_log *log);
/* Return the positions of the oldest record, and of the next one to be written. */
size_t submission_log_begin(const struct submission_log *log);
size_t submission_log_end(const struct submission_log *log);
/*
 * Reads the record at *at without removing it, at most `most` of its names, and advances *at past it. *ret_n: how many
 * names it has. Returns false if the record is not complete, or at the end.
 */
bool submission_log_look(const struct submission_log *log, size_t *at, struct inflight_ticket *ret_ticket,
			 struct named *ret_named, unsigned most, unsigned *ret_n);

/* ---- the channel ---- */

/*
 * A submission that waits for memory. Its thread owns it; it is listed until it is answered or gives up. Under SPILL.
 */
struct waiter {
	const struct named *named;
	unsigned n;
	const struct graph_names
	    *graph; /* of the graph that it launches; NULL: it launches none, or one that is unknown */
	bool answered;
	bool unknown;   /* it may touch anything, so it waits until everything is mapped */
	bool had_gap;   /* exact mode: a quiesce has already done what it could for it */
	uint64_t since; /* ns */
	struct waiter *next;
};

/* Lives as long as the process: submissions may read it at any time. */
struct channel {
	const struct arena *arena;
	uint64_t device; /* a bit */
	struct submission_log log;
	/* Stands for all memory of the device; pinned by submissions that may touch anything. */
	struct block_state everything;
	_Atomic bool
	    hungry;        /* written by the mover: it needs completions: an event is recorded behind each submission */
	_Atomic bool dead; /* written by the mover: it has stopped moving memory, for good */

	struct lock lock;           /* SPILL; for the waiters, and orders to the mover */
	struct clock_cond answered; /* signalled if a waiter, or an order to the mover, is answered */
	struct waiter *waiters;     /* guarded by SPILL */
	_Atomic unsigned n_waiters; /* written under SPILL; raised before `asleep` is read */

	struct lock wake_lock; /* WAKE; only for the mover's nap */
	struct clock_cond wake;
	_Atomic bool asleep; /* the mover naps: written by it under WAKE, before it reads n_waiters */

	struct check check;
};

/* Initializes a channel whose memory is all zeros. device: the ordinal. Returns false if memory is short. */
bool channel_init(struct channel *channel, const struct arena *arena, int device);

/*
 * Waits until the mover has done what it can for this submission, or for 2 s at most. The caller must have raised
 * `waits` of its blocks. Returns the known time, in ns, for which the process was stopped meanwhile; it does not count
 * as waiting. graph: as in struct waiter. Locking: takes SPILL.
 */
uint64_t channel_wait(struct channel *channel, const struct named *named, unsigned n, bool unknown,
		      const struct graph_names *graph);

/* Wakes the mover if it naps. Locking: takes WAKE; may be called with SPILL held. */
void channel_wake(struct channel *channel);

/* ---- for the mover: which blocks tickets stand for ---- */

/*
 * Which blocks the submissions in flight use that have tickets (above). It reads each record of
 * the submission log before intake.c removes it, and may read ahead to the end at any time. Only the mover's thread
 * calls it.
 *
 * A block is identified by its first unit, as block states are (arena.h). The addresses of a record are looked up when
 * it is read: if a block has been freed since, the work that used it is complete.
 */

/*
 * Reads the records that are in the log now and those that follow; tickets of earlier ones are not known. Returns NULL
 * if memory is short. The arena and the log must outlive it.
 */
struct inflight *inflight_new(const struct arena *arena, const struct submission_log *log);
void inflight_free(struct inflight *inflight);

/*
 * Reads every record that is in the log now, and every ticket that has been given back. Returns false if a record is
 * still being written, so that the names in it and in those behind it are unknown.
 */
bool inflight_hear(struct inflight *inflight);
/*
 * Reads the oldest record of the log unless it has been read. Returns false if it could not be read, because it was not
 * complete; then it must not be removed, even if it becomes complete a moment later.
 */
bool inflight_hear_oldest(struct inflight *inflight);
/* Returns whether a submission that was read uses the block. done: the number up to which all are complete. */
bool inflight_has(const struct inflight *inflight, uint32_t block_unit, uint64_t done);

/* ---- the latest submissions ---- */

struct completion_what;
/* Notes a submission over the oldest one. row: of its stream. Any thread. */
void recent_submissions_note(uint64_t number, const struct completion_what *what, unsigned row);
/*
 * Looks a submission up in a ring of the latest ones. Returns false, and sets nothing, if it is overwritten, being
 * overwritten, or not noted yet. row: of its stream. Makes no driver call.
 */
bool recent_submissions_look(uint64_t number, struct completion_what *ret_what, unsigned *ret_row);

#endif
