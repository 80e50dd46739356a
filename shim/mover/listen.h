/*
 * listen.h: what the mover hears: of the heap, and of what was submitted. The mover's thread only.
 */
#ifndef SPILLWAY_LISTEN_H
#define SPILLWAY_LISTEN_H

#include "shim/submit/tape.h"

#include <stdbool.h>

struct engine;

/* Read the log and the news; keep the plan up to date. True: there was something. */
bool listen_read(struct engine *engine);
/* The pieces that a list of names touches, each once, into engine->pieces, stamped: how many. */
unsigned listen_pieces(struct engine *engine, const struct named *named, unsigned n);

#endif
