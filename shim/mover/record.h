/*
 * record.h: the record of a run for the planner's tests and benchmarks, a line each: "A id bytes" a block appeared,
 * "F id" it went, "L function block:offset ..." a submission with the addresses it names (hexadecimal offsets). Written
 * by the mover when SPILLWAY_RECORD names a file; a tool for developers, not a log. Mover's thread only.
 */
#ifndef SPILLWAY_RECORD_H
#define SPILLWAY_RECORD_H

#include "shim/submit/tape.h"

struct engine;

/* A piece came or went, or is there at the beginning. */
void record_piece(struct engine *engine, uint32_t piece);
void record_submission(struct engine *engine, uint64_t function, const struct named *named, unsigned n);
void record_flush(struct engine *engine);

#endif
