// SPDX-License-Identifier: Apache-2.0
/*
 * naming.c: what it costs to name a place in a Python program; naming_bench.py calls it, so that there are frames to
 * read. Each function returns ns a call, or -1 where there is no name.
 */
#include "shim/base/call_site.h"
#include "shim/base/clock.h"
#include "shim/lifetimes/lifetimes.h"

#define EXPORT __attribute__((visibility("default")))
#define MIB    ((uint64_t)1 << 20)

double naming_bind(void);
double naming_names(unsigned n);
double naming_recognized(unsigned n);
double naming_left_out(unsigned n);
double naming_birth_and_death(unsigned n);

EXPORT double naming_bind(void)
{
	uint64_t begin = clock_now();

	call_site_bind();
	return (double)(clock_now() - begin);
}

EXPORT double naming_names(unsigned n)
{
	const struct call_site *site = NULL;
	uint64_t begin = clock_now();

	for (unsigned i = 0; i < n; i++)
		site = call_site_of_tensor(false);
	return site ? (double)(clock_now() - begin) / n : -1;
}

/* A step of 256 births of 8 MiB that repeats; of the first two steps nothing counts. */
EXPORT double naming_recognized(unsigned n)
{
	uint64_t begin = 0;
	unsigned number = 0;

	for (unsigned i = 0; i < n + 512; i++) {
		if (i == 512)
			begin = clock_now();
		number = birth_lines_name((UINT64_C(1) << 40) + i % 256 * 8 * MIB, 8 * MIB);
	}
	return number ? (double)(clock_now() - begin) / n : -1;
}

/* Births that are new each, when naming has had its share of the time. */
EXPORT double naming_left_out(unsigned n)
{
	uint64_t begin = 0;

	for (unsigned i = 0; i < n + 100000; i++) {
		if (i == 100000)
			begin = clock_now();
		birth_lines_name((UINT64_C(1) << 41) + i * 512, 8 * MIB);
	}
	return (double)(clock_now() - begin) / n;
}

/* A tensor that is born and dies at one place again and again, with what is written and read for it. */
EXPORT double naming_birth_and_death(unsigned n)
{
	uint64_t block = UINT64_C(1) << 42, bytes = 20 * MIB, begin = 0;
	struct lifetimes_report report = {.address = block, .bytes = MIB, .reserved = bytes, .reporter = &report};
	struct lifetimes *lifetimes = lifetimes_new(0, block, UINT64_C(1) << 30);

	if (!lifetimes)
		return -1;
	lifetimes_allocated(lifetimes, block, bytes, 0, &report);
	for (unsigned i = 0; i < n + 100000; i++) {
		if (i == 100000)
			begin = clock_now();
		report.born = true;
		report.allocated = MIB;
		lifetimes_tell(&report);
		report.born = false;
		report.allocated = 0;
		lifetimes_tell(&report);
	}
	bool known = lifetimes_is_reported(lifetimes, block, MIB);
	double ns = (double)(clock_now() - begin) / n;
	lifetimes_free(lifetimes);
	return known ? ns : -1;
}
