/*
 * rank.h: the rank of this process in a distributed job. The environment is read at each call: launchers set it before
 * the program starts, but programs that start ranks themselves set it later.
 */
#ifndef SPILLWAY_RANK_H
#define SPILLWAY_RANK_H

#include <stdint.h>

/* Returns the first of RANK, LOCAL_RANK, SLURM_PROCID and OMPI_COMM_WORLD_RANK that is a number, or NULL. */
const char *rank_text(void);

/* Returns the rank, or POLICY_NO_RANK if none is set. */
int64_t rank_number(void);

#endif
