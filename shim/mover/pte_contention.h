/*
 * pte_contention.h: which copies changes of mappings wait for. The mover's thread only.
 */
#ifndef SPILLWAY_PTE_CONTENTION_H
#define SPILLWAY_PTE_CONTENTION_H

#include "shim/mover/link.h"

struct engine;

/* By place that memory goes to, and way: does a change of a mapping wait for such copies (pte_contention.c)? */
enum pte_contention_way { PTE_CONTENTION_IN, PTE_CONTENTION_OUT, PTE_CONTENTION_WAYS };
struct pte_contention {
	bool waits[CHUNK_PLACES][PTE_CONTENTION_WAYS];
	unsigned pieces[CHUNK_PLACES]; /* that it was measured with */
};

/* As on most machines. */
void pte_contention_init(struct pte_contention *turns);
/*
 * The copy of a piece that comes out has ended, and nobody uses the piece, or nothing runs: if nothing is known of the
 * place it went to, measure it. Takes about 25 ms, once, and changes neither of its chunks. What cannot be measured stays as
 * it is. False: copies that it made are still under way, and the move's event is behind them.
 */
bool pte_contention_learn(struct engine *engine, struct move *move);

#endif
