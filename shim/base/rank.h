/*
 * rank.h: which one of a job of several processes this is. Nothing is kept: launchers set it before the program starts, and
 * programs that start their own ranks set it themselves, later.
 */
#ifndef SHIM_RANK_H
#define SHIM_RANK_H

#include <stdint.h>

/* RANK, LOCAL_RANK, SLURM_PROCID or OMPI_COMM_WORLD_RANK, the first of them that is a number; NULL: none is. */
const char *rank_text(void);

/* The same as a number, POLICY_NO_RANK where there is none. */
int64_t rank_number(void);

#endif
