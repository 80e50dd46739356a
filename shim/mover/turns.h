/*
 * turns.h: which copies changes of mappings wait for. The mover's thread only.
 */
#ifndef SPILLWAY_TURNS_H
#define SPILLWAY_TURNS_H

#include "shim/mover/link.h"

struct engine;

/* By place that memory goes to, and way: does a change of a mapping wait for such copies (turns.c)? */
enum turns_way { TURNS_IN, TURNS_OUT, TURNS_WAYS };
struct turns {
	bool waits[CHUNK_PLACES][TURNS_WAYS];
	unsigned pieces[CHUNK_PLACES]; /* that it was measured with */
};

/* As on most machines. */
void turns_init(struct turns *turns);
/*
 * The copy of a piece that comes out has ended, and nobody uses the piece, or nothing runs: if nothing is known of the
 * place it went to, measure it. Takes about 25 ms, once, and changes neither of its chunks. What cannot be measured stays as
 * it is. False: copies that it made are still under way, and the move's event is behind them.
 */
bool turns_learn(struct engine *engine, struct move *move);

#endif
