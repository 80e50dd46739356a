// SPDX-License-Identifier: Apache-2.0
/*
 * sample.h: what measuring programs share that needs no driver: clocks, and medians of samples. Each program, or each
 * measurement in it, has its own samples; one thread's.
 */
#ifndef SPILLWAY_BENCH_SAMPLE_H
#define SPILLWAY_BENCH_SAMPLE_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Of that clock. */
static inline double nanoseconds(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Nanoseconds. */
static inline double now(void)
{
	return nanoseconds(CLOCK_MONOTONIC);
}

#define MOST_SAMPLES 2000

struct samples {
	double value[MOST_SAMPLES];
	unsigned n;
};

/* What is more than MOST_SAMPLES is dropped. */
static inline void sample(struct samples *samples, double value)
{
	if (samples->n < MOST_SAMPLES)
		samples->value[samples->n++] = value;
}

static inline int smaller(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static inline void print_line(const char *name, double median, double least, double most, const char *unit)
{
	printf("%s %.2f %.2f %.2f %s\n", name, median, least, most, unit);
	fflush(stdout);
}

/* "name median least most unit", and forget them. No samples: no line. */
static inline void print_samples(struct samples *samples, const char *name, const char *unit)
{
	if (!samples->n)
		return;
	qsort(samples->value, samples->n, sizeof(samples->value[0]), smaller);
	print_line(name, samples->value[samples->n / 2], samples->value[0], samples->value[samples->n - 1], unit);
	samples->n = 0;
}

#endif
