// SPDX-License-Identifier: Apache-2.0
/*
 * spawn.h: the time of whole processes, measured from outside.
 */
#ifndef SPILLWAY_BENCH_SPAWN_H
#define SPILLWAY_BENCH_SPAWN_H

/*
 * COUNT [NAME=value...] PROGRAM [ARGUMENT...]: runs that so many times, once more before that to warm up, and prints
 * "spawn median least most us". Ends this process where the program cannot be run or fails (1), and on other words (2).
 */
void measure_spawn(int argc, char **argv);

#endif
