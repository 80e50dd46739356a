/*
 * recall.h: what goes back to peers that need their memory. The mover's thread only.
 */
#ifndef SPILLWAY_RECALL_H
#define SPILLWAY_RECALL_H

struct engine;

/* What peers have lent and want back is sent away from there, as far as it can go now. */
void recall_run(struct engine *engine);

#endif
