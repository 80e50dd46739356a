/*
 * submission_log.h: what was submitted, on its way from the threads that submit to the mover. A ring of words, many writers and
 * one reader, without a lock: a launch that met the reader's lock would be put to sleep, some microseconds for 50 ns.
 *
 * A record is the function, the names, and perhaps a ticket (inflight_ticket.h), in the order in which its writers came. Without
 * room it is lost: who meant to say with a ticket what it uses is told so, for the others it is only foresight. A writer
 * that is stopped in the middle holds back the records behind its own, and nobody else.
 *
 * What a launch writes the reader has written before, on another processor, so each cache line of it costs the launch a
 * transfer between the two: records are short. To ask for the lines of the next one ahead made it slower (H200's host:
 * a launch with ten pointers 322 ns, 256 without; medians of four).
 */
#ifndef SPILLWAY_SUBMISSION_LOG_H
#define SPILLWAY_SUBMISSION_LOG_H

#include "shim/submit/inflight_ticket.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One address a submission names, below 2^63; bytes 0: as far as may be guessed. */
struct named {
	CUdeviceptr address;
	uint64_t bytes;
};

/* Some thousand submissions: the reader comes every few hundred microseconds at the latest. */
#define SUBMISSION_LOG_WORDS (1u << 18)

struct submission_log {
	_Atomic uint64_t *words; /* SUBMISSION_LOG_WORDS of them; 0 where nothing is written yet */
	_Atomic size_t head __attribute__((aligned(64))); /* words given to writers, ever */
	_Atomic size_t tail __attribute__((aligned(64))); /* words read, ever; the reader's */
	_Atomic uint64_t lost;                            /* records */
};

/* False: no memory. A tape lives as long as the process. */
bool submission_log_init(struct submission_log *tape);
/* Any thread. False: there was no room. */
bool submission_log_write(struct submission_log *tape, uint64_t function, const struct named *named, unsigned n,
			  struct inflight_ticket ticket);
/* The oldest record; names beyond `most` are dropped. False: there is none that is complete. One thread. */
bool submission_log_read(struct submission_log *tape, uint64_t *ret_function, struct named *ret_named, unsigned most,
			 unsigned *ret_n);

/* By the reader, between submission_log_begin() and submission_log_end(): where the oldest record lies, and where the next one will. */
size_t submission_log_begin(const struct submission_log *tape);
size_t submission_log_end(const struct submission_log *tape);
/*
 * The record at *at, which stays on the tape; *at moves behind it. Of one without a ticket no address is told, and those
 * beyond `most` are dropped. False: it is not complete, or the end.
 */
bool submission_log_look(const struct submission_log *tape, size_t *at, struct inflight_ticket *ret_ticket,
			 CUdeviceptr *ret_addresses, unsigned most, unsigned *ret_n);

#endif
