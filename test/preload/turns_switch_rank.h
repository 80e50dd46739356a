/*
 * turns_switch_rank.h: a process with blocks of 4 MiB on its simulated GPU, for turns_switch_test.c, which tells it
 * what to do (rank.h). What it can be told:
 *
 * 'd': begin; 'a' N: allocate N blocks, 'A' N: without a step; 's' N: N steps; 'w' N: until N MiB are pinned; 'l' N: N
 * long ones, of which little is alive at times; 'o': steps until SIGUSR1; 'c': check all; 'r' N: the Nth release of
 * memory from now stands still, until SIGUSR1; 'm' N: the same for one that is made; 'k' N: for a copy; 'p': MiB on the
 * device in a stall; 'z' N: N blocks die; 'n': whether nothing is mapped on the host; 'e': end.
 */
#ifndef PRELOAD_TURNS_SWITCH_RANK_H
#define PRELOAD_TURNS_SWITCH_RANK_H

#include "test/rank.h"

#define NEEDS  6 /* blocks: more than half of a total of 32 MiB */
#define ROUNDS 3000

/* For rank_start(): settings are those of its environment. */
extern const struct rank_part turns_switch_rank;

#endif
