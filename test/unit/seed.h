// SPDX-License-Identifier: Apache-2.0
/*
 * seed.h: random numbers of tests. The seed is printed when a test starts, and TEST_SEED=number repeats a run.
 */
#ifndef SPILLWAY_TEST_SEED_H
#define SPILLWAY_TEST_SEED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct seed {
	uint64_t state;
};

static inline struct seed seed_start(const char *test)
{
	const char *given = getenv("TEST_SEED");
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec;
	printf("%s: TEST_SEED=%llu\n", test, (unsigned long long)seed);
	fflush(stdout);
	return (struct seed){.state = seed};
}

/* splitmix64: any seed is as good as any other, 0 too. */
static inline uint64_t seed_next(struct seed *seed)
{
	uint64_t z = seed->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* 0 ... n - 1 */
static inline uint64_t seed_below(struct seed *seed, uint64_t n)
{
	return seed_next(seed) % n;
}

/* A size between 1 and most, every order of magnitude as likely as the next. */
static inline uint64_t seed_size(struct seed *seed, uint64_t most)
{
	unsigned bits = 64 - (unsigned)__builtin_clzll(most);
	uint64_t size = seed_next(seed) >> (64 - 1 - seed_below(seed, bits));

	return size % most + 1;
}

#endif
