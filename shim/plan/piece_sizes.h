// SPDX-License-Identifier: Apache-2.0
/*
 * piece_sizes.h: sizes by which memory is cut and moved, and by which `spillway replay` cuts and moves a recorded job.
 */
#ifndef SPILLWAY_PIECE_SIZES_H
#define SPILLWAY_PIECE_SIZES_H

#include <stdint.h>

/* Larger allocations are blocks of their own, others share slabs (heap/small.c). */
#define SMALL_MOST ((uint64_t)1 << 20)

/*
 * Size of the largest pieces, unless the user sets it (heap.chunk): a share of the device budget, at least 4 MiB and at
 * most what the mode wants; where processes take turns, of what they may have together (piece_budget). Changing a
 * mapping costs nearly the same whatever its size, so a block of up to that size is one piece. Jobs have many blocks of
 * few sizes, so most pieces that are evicted have the size of a piece that is fetched. For the same reason longer
 * blocks are cut into pieces of that size and a rest: cutting them evenly would make many sizes. Measured, GPT at 1.5
 * times the device budget: 270 ms a step, 340 with pieces that are powers of two; with pieces up to 32 MiB, 258 ms a
 * step, 270 if cut evenly.
 */
#define PIECE_SHARE 32
#define PIECE_LEAST 2  /* units of 2 MiB */
#define CHUNK_MOST  64 /* units: 128 MiB */
/*
 * Largest piece in `fast` mode. Pieces follow each other on the link, each way: the next one is fetched as soon as one
 * is evicted, so short pieces wait less for each other, and less memory is moving. In a gap of `exact` mode nothing
 * else runs, and the number of mapping changes counts. Measured: a step of GPT at 1.25 / 1.5 / 2.0 times the budget
 * takes 142 / 258 / 433 ms, with pieces up to 128 MiB 152 / 269 / 449 (1.25 on another machine); one with sequences of
 * varying length at 1.5: 223 and 275 ms; ResNet in `exact` at 1.5: 187 ms with 128 MiB, 201 with 64. With 48 instead of
 * 32 MiB, since pieces that are dead in part are preferred as victims (plan_victim.c): the GPT 127 to 130 / 211 to 213
 * / 351 to 357 for 130 / 215 / 353, ResNet-50 at 1.5 102 for 107. 48 MiB fit the sizes of that GPT; in the replay
 * model, at 1.25, 44 and 40 MiB take 4 and 5 % longer, 52 to 64 MiB 2 %. A GPT without births takes 1 % longer at 1.25
 * and 4 % less at 1.5, one of varying lengths 2 % longer at 1.5 and 5 % less at 2.0, ResNet-50 as long.
 */
#define FAST_PIECE ((uint64_t)48 << 20)

/* More addresses that one submission names are ignored (mover/intake.c). */
#define INTAKE_NAMED_AT 1024

/* The most parts of a piece that are copied apart (mover/alive.c). */
#define ALIVE_RANGES 32
/*
 * Dead bytes between two parts that are alive are copied along if there are at most this many: another copy takes about
 * as long as these bytes do, 5 us.
 */
#define ALIVE_GAP ((uint64_t)256 << 10)

#endif
