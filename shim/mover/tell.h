/*
 * tell.h: what figures and the trace hear of moves. The mover's thread only.
 */
#ifndef SPILLWAY_TELL_H
#define SPILLWAY_TELL_H

#include "shim/mover/link.h"

struct engine;

/* A move begins, and has ended: its data are where they were (stayed), or where they were to go. Each once. */
void tell_begin(struct engine *engine, struct move *move);
void tell_end(struct engine *engine, const struct move *move, bool stayed);
/* The data of one have moved: before what it left is the spare's. */
void tell_moved(struct engine *engine, const struct move *move);
/* The time with moves under way so far, into the figures. */
void tell_busy(struct engine *engine);

#endif
