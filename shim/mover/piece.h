/*
 * piece.h: what the mover's files know of one piece, and lists of pieces. The mover's thread only.
 */
#ifndef SPILLWAY_PIECE_H
#define SPILLWAY_PIECE_H

#include "shim/heap/migration.h"

#include <stdbool.h>
#include <stdint.h>

struct engine;

/* Pieces, by their first units. A list grows (piece_list_add) and keeps its memory. */
struct piece_list {
	uint32_t *at;
	unsigned n, room;
};

/* What the mover remembers of pieces, by their first units. The mover's thread alone may touch it. */
struct piece_tables {
	bool *ahead;             /* brought ahead, and not named by a submission since */
	uint8_t *kept;           /* units of it that stay on the device, and why (piece.c); 0: none */
	uint64_t kept_units[2];  /* their sums: of small blocks, and of those that a rule keeps */
	uint32_t *left;          /* ms (clock_now) at which it left the device; 0: it is there, or never was */
	uint64_t *stamps, stamp; /* equal: seen in this look (intake_pieces) */
};

/* Adds a piece to a list that grows. Returns false if there is no memory; the list is as it was then. */
bool piece_list_add(struct piece_list *list, uint32_t piece);
/*
 * Lists the pieces in use. but_moving: without those that are on their way. The caller must free() its `at`, which is
 * NULL if there is no memory. Locking: takes the heap's lock.
 */
struct piece_list piece_list_all(const struct engine *engine, bool but_moving);
/* The marks of the block, or of the slab, that the piece is of; NULL: of none any more. */
struct block_state *piece_block_state(struct engine *engine, uint32_t piece);
/* May a submission use the piece's block, or wait for it? One that waits does not keep it from coming in. */
bool piece_is_busy(struct engine *engine, uint32_t piece, bool in);
/*
 * Nobody is to submit what names the piece's block: it is about to be unmapped, or is; until it is lowered, as often as it
 * was raised.
 */
void piece_raise(struct engine *engine, const struct migration *transit);
void piece_lower(struct engine *engine, const struct migration *transit);
/* Where submissions find the piece. */
void piece_set_where(struct engine *engine, const struct migration *transit, enum block_state_where where);
/* The plan hears where the piece is. */
void piece_tell_plan(struct engine *engine, uint32_t piece);
/* Does the program want this block on the host? */
bool piece_wants_host(const struct engine *engine, const struct block_state *block);
/* Need the piece not be copied? Asked while no submission that names it can be given to the driver. */
bool piece_is_discarded(const struct engine *engine, uint32_t block_unit, uint32_t piece);
/* Now and then: what is kept beyond what the present budget allows is not kept any more. */
void piece_keep_follow(struct engine *engine);
/*
 * Map the new memory, else the old, which holds the same as long as the piece is not mapped. When nothing can be mapped
 * the data is safe, but the process cannot go on with it: that is the end of the engine, and false.
 */
bool piece_map_either(struct engine *engine, struct migration *transit, bool *ret_new);
/* The piece is there now, and let go of. is_raised: piece_raise() was called for it. */
void piece_arrived(struct engine *engine, struct migration *transit, enum block_state_where where, bool is_raised);

#endif
