/*
 * choose.h: which piece comes in, which goes out, and whether to wait. The mover's thread only.
 */
#ifndef SPILLWAY_CHOOSE_H
#define SPILLWAY_CHOOSE_H

#include "shim/mover/link.h"

struct engine;

/* See to everybody who waits; begin what they want. */
void choose_for_waiters(struct engine *engine);
/* Begin what the plan foresees. */
void choose_ahead(struct engine *engine);
/* Send out what the program wants on the host, as far as it can go now. */
void choose_leave(struct engine *engine, bool gap);
void choose_progress(struct engine *engine);
/* In `fast`: room for the new blocks that are waited for. */
void choose_for_new(struct engine *engine);
bool choose_may_move(const struct engine *engine);
/* Can it, whether that pays or not? */
bool choose_can_move(const struct engine *engine);
/* Is there room in the queue, and is so much memory free to be under way? */
bool choose_may_begin(const struct engine *engine, const struct queue *queue);
uint32_t choose_ahead_units(const struct engine *engine);
/* So much host memory is to lie ready for what leaves (heap_stock). */
uint64_t choose_stock_bytes(const struct engine *engine);
/* The piece has begun to come in: for the statistics. ahead: before a submission wanted it. */
void choose_count(struct engine *engine, uint32_t piece, bool ahead);

#endif
