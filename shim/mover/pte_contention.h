/*
 * pte_contention.h: which copies contend with changes of mappings, because the driver changes page tables with the same
 * copy engine. Only the mover's thread may call these functions.
 */
#ifndef SPILLWAY_PTE_CONTENTION_H
#define SPILLWAY_PTE_CONTENTION_H

#include "shim/mover/link.h"

struct engine;

/*
 * Whether a change of a mapping waits for copies, by the place that memory is evicted to, and by direction
 * (pte_contention.c).
 */
enum pte_contention_way { PTE_CONTENTION_IN, PTE_CONTENTION_OUT, PTE_CONTENTION_WAYS };
struct pte_contention {
	bool waits[CHUNK_PLACES][PTE_CONTENTION_WAYS];
	unsigned pieces[CHUNK_PLACES]; /* number of pieces that it was measured with */
};

/* Sets what is true on most machines. */
void pte_contention_init(struct pte_contention *turns);
/*
 * To be called when the copy of an evicted piece has ended and nothing uses the piece, or nothing runs. Measures the
 * place that the piece went to, if it is not known yet. That takes about 25 ms, once, and changes neither of the
 * piece's chunks. What cannot be measured keeps its value. Returns false if copies that the measurement made are still
 * in flight; the move's event is then recorded behind them.
 */
bool pte_contention_learn(struct engine *engine, struct move *move);

#endif
