/*
 * submission_log.h: the submission log, a ring of words from the submitting threads to the mover: many writers, one
 * reader, no lock. A launch that met the reader's lock would be put to sleep, some microseconds for 50 ns.
 *
 * A record consists of the function, the names, and perhaps a ticket (inflight_ticket.h); records are in the order in
 * which writers reserved their words. A record that finds no room is lost: a writer with a ticket gets that as a
 * result, for others the record was only a hint of future use. A writer that is stopped in the middle of a record holds
 * back the records behind it, but no other thread.
 *
 * The words that a launch writes were last written by the reader on another processor, so each cache line costs the
 * launch a transfer: records are short. Prefetching the lines of the next record made it slower. Measured (H200's
 * host): a launch with ten pointers 322 ns with that prefetch, 256 ns without; medians of four.
 */
#ifndef SPILLWAY_SUBMISSION_LOG_H
#define SPILLWAY_SUBMISSION_LOG_H

#include "shim/submit/inflight_ticket.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Room for some thousand submissions: the reader comes every few hundred microseconds at the latest. */
#define SUBMISSION_LOG_WORDS (1u << 18)

struct submission_log {
	_Atomic uint64_t *words; /* SUBMISSION_LOG_WORDS of them; 0 where nothing is written yet */
	_Atomic size_t head __attribute__((aligned(64))); /* words ever reserved by writers */
	_Atomic size_t tail __attribute__((aligned(64))); /* words ever read; only the reader writes it */
	_Atomic uint64_t lost;                            /* records that found no room */
};

/* Returns false if there is no memory. A log lives as long as the process. */
bool submission_log_init(struct submission_log *tape);
/* Writes a record. Returns false if there is no room. Any thread. */
bool submission_log_write(struct submission_log *tape, uint64_t function, const struct named *named, unsigned n,
			  struct inflight_ticket ticket);
/*
 * Reads and removes the oldest record; names beyond `most` are dropped. Returns false if no record is complete. Only
 * the reader may call this and the functions below.
 */
bool submission_log_read(struct submission_log *tape, uint64_t *ret_function, struct named *ret_named, unsigned most,
			 unsigned *ret_n);

/* Returns whether the oldest record is complete. */
bool submission_log_is_there(const struct submission_log *tape);
/* Return the positions of the oldest record, and of the next one to be written. */
size_t submission_log_begin(const struct submission_log *tape);
size_t submission_log_end(const struct submission_log *tape);
/*
 * Reads the names of the record at *at without removing it, at most `most` of them, and advances *at past it. *ret_n:
 * how many names the record has. Returns false if the record is not complete, or at the end.
 */
bool submission_log_names(const struct submission_log *tape, size_t *at, struct named *ret_named, unsigned most,
			  unsigned *ret_n);
/*
 * Reads the record at *at without removing it, and advances *at past it. Returns no addresses for a record without a
 * ticket, and drops those beyond `most`. Returns false if the record is not complete, or at the end.
 */
bool submission_log_look(const struct submission_log *tape, size_t *at, struct inflight_ticket *ret_ticket,
			 CUdeviceptr *ret_addresses, unsigned most, unsigned *ret_n);

#endif
