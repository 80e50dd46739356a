/*
 * piece.h: what the mover knows of one piece, and lists of pieces. Only the mover's thread may call these functions.
 */
#ifndef SPILLWAY_PIECE_H
#define SPILLWAY_PIECE_H

#include "shim/heap/migration.h"

#include <stdbool.h>
#include <stdint.h>

struct engine;

/* A list of pieces, each named by its first unit. It grows (piece_list_add) and never shrinks. */
struct piece_list {
	uint32_t *at;
	unsigned n, room;
};

/* What the mover remembers of pieces, indexed by their first units. Only the mover's thread may touch it. */
struct piece_tables {
	bool *ahead;             /* prefetched, and not named by a submission since */
	uint8_t *kept;           /* number of its units that stay on the device, and the reason (piece.c); 0: none */
	uint64_t kept_units[2];  /* their sums: of small blocks, and of blocks that a rule keeps */
	uint32_t *left;          /* ms (clock_now) when it left the device; 0: it is there, or never was */
	uint64_t *touched;       /* bytes that the submission in intake.weighed uses, as often as it does */
	uint64_t *stamps, stamp; /* equal: the piece is in the present list (intake_pieces) */
};

/* Adds a piece to a list. Returns false if there is no memory; the list is unchanged then. */
bool piece_list_add(struct piece_list *list, uint32_t piece);
/*
 * Returns a list of the pieces in use. but_moving: without those that are being moved. The caller must free() its `at`,
 * which is NULL if there is no memory. Locking: takes HEAP.
 */
struct piece_list piece_list_all(const struct engine *engine, bool but_moving);
/*
 * Returns the block state of the block, or of the slab, that the piece belongs to; NULL if it belongs to none any more.
 */
struct block_state *piece_block_state(struct engine *engine, uint32_t piece);
/*
 * Returns whether a submission may use the piece's block, or waits for it. in: the piece is to be fetched; a submission
 * that waits for it does not prevent that.
 */
bool piece_is_busy(struct engine *engine, uint32_t piece, bool in);
/*
 * Finds the piece that has a unit, and the unit after its last one. argument: the engine (plan_set_pieces). Returns
 * false if there is none.
 */
bool piece_at_unit(void *argument, uint32_t unit, uint32_t *ret_piece, uint32_t *ret_past);
/*
 * piece_raise() prevents submissions that name the piece's block, because the piece is about to be unmapped, or is
 * unmapped. It nests: piece_lower() must be called as often.
 */
void piece_raise(struct engine *engine, const struct migration *transit);
void piece_lower(struct engine *engine, const struct migration *transit);
/* Sets where submissions find the piece. */
void piece_set_where(struct engine *engine, const struct migration *transit, enum block_state_where where);
/* Updates the plan with the place where the piece is now. Locking: takes HEAP. */
void piece_tell_plan(struct engine *engine, uint32_t piece);
/* Returns whether the program wants this block on the host. */
bool piece_wants_host(const struct engine *engine, const struct block_state *block);
/*
 * Returns whether the whole piece is discarded, so that it need not be copied. To be called while no submission that
 * names it can enter the driver.
 */
bool piece_is_discarded(const struct engine *engine, uint32_t block_unit, uint32_t piece);
/*
 * Returns whether the piece, which is on the host, should be on the device because it stays there in `fast`, and its
 * share has room. planned: the units, of small blocks and of those that a rule keeps, for which this was said before
 * and which have not come yet; adds those of this one. Locking: takes HEAP.
 */
bool piece_should_come(struct engine *engine, uint32_t piece, uint64_t planned[2]);
/* To be called regularly: stops keeping what exceeds the share of the present budget. Locking: takes HEAP. */
void piece_keep_follow(struct engine *engine);
/* Which memory of a move may be mapped at the program's address. */
enum piece_memory { PIECE_OLD = 1, PIECE_NEW = 2, PIECE_EITHER = 3 /* the new one first: both hold the contents */ };
/*
 * Maps the old memory of a move or the new one, if there is one. If the driver refuses, gives idle memory of the device
 * back to it, and tries again for 5 s. Returns false, with *ret_new false, if all is refused for so long: the contents
 * are safe, but the process cannot continue with them, and the engine is declared dead. What is to be mapped after that
 * is tried once. piece_map_soon() gives up after a tenth of a second, and declares nothing. Locking: take HEAP.
 */
bool piece_map(struct engine *engine, const struct migration *transit, enum piece_memory which, bool *ret_new);
bool piece_map_soon(struct engine *engine, const struct migration *transit, enum piece_memory which, bool *ret_new);
/*
 * Ends a move: the piece is now in the place `where`, and may move again. is_raised: piece_raise() was called for it.
 * Locking: takes HEAP.
 */
void piece_arrived(struct engine *engine, struct migration *transit, enum block_state_where where, bool is_raised);

#endif
