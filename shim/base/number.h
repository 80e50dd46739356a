// SPDX-License-Identifier: Apache-2.0
/* number.h: the smaller and the larger of two numbers, and by how much one is beyond another. Pure. */
#ifndef SPILLWAY_NUMBER_H
#define SPILLWAY_NUMBER_H

#include <stdint.h>

static inline uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* a - b, but not below 0. */
static inline uint64_t beyond(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

#endif
