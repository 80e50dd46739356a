// SPDX-License-Identifier: Apache-2.0
/*
 * checker_kernels.h: the kernels of checker.c, and the ways in which they find their data. Included once.
 */
#ifndef SPILLWAY_CHECKER_KERNELS_H
#define SPILLWAY_CHECKER_KERNELS_H

#include "test/portable.h"

#define MASK    0x5555555555555555ull /* what no launch shows is masked by it */
#define HASH(i) ((((uint64_t)(i) + 1) * 0x9E3779B97F4A7C15ull) ^ ((uint64_t)(i) >> 9))

/* A link of a list in device memory. */
struct node {
	uint64_t *words;
	size_t n;
	struct node *next;
};

KERNEL4(fill, uint64_t *, words, size_t, n, uint64_t, a, uint64_t, c)
{
	for (size_t i = KERNEL_FIRST; i < n; i += KERNEL_STEP)
		words[i] = HASH(i) * a + c;
}

KERNEL4(scale, uint64_t *, words, size_t, n, uint64_t, a, uint64_t, c)
{
	for (size_t i = KERNEL_FIRST; i < n; i += KERNEL_STEP)
		words[i] = words[i] * a + c;
}

KERNEL3(add, uint64_t *, to, const uint64_t *, from, size_t, n)
{
	for (size_t i = KERNEL_FIRST; i < n; i += KERNEL_STEP)
		to[i] += from[i];
}

KERNEL4(table_add, uint64_t **, table, unsigned, to, unsigned, from, size_t, n)
{
	uint64_t *a = DEVICE_POINTER(table[to]), *b = DEVICE_POINTER(table[from]);

	for (size_t i = KERNEL_FIRST; i < n; i += KERNEL_STEP)
		a[i] += b[i];
}

/* As a grouped matrix product does: an array of pointers and one of sizes, both on the device. */
KERNEL4(group_scale, uint64_t **, table, const size_t *, sizes, unsigned, count, uint64_t, a)
{
	for (unsigned k = 0; k < count; k++) {
		uint64_t *words = DEVICE_POINTER(table[k]);

		for (size_t i = KERNEL_FIRST; i < sizes[k]; i += KERNEL_STEP)
			words[i] *= a;
	}
}

KERNEL3(list_scale, struct node *, first, uint64_t, a, uint64_t, c)
{
	for (struct node *node = first; node; node = node->next ? DEVICE_POINTER(node->next) : NULL) {
		uint64_t *words = DEVICE_POINTER(node->words);

		for (size_t i = KERNEL_FIRST; i < node->n; i += KERNEL_STEP)
			words[i] = words[i] * a + c;
	}
}

KERNEL4(masked_scale, uint64_t, masked, size_t, n, uint64_t, a, uint64_t, c)
{
	uint64_t *words = DEVICE_POINTER((uint64_t *)(uintptr_t)(masked ^ MASK));

	for (size_t i = KERNEL_FIRST; i < n; i += KERNEL_STEP)
		words[i] = words[i] * a + c;
}

/* Each thread counts for itself. */
KERNEL5(count_wrong, const uint64_t *, words, size_t, n, uint64_t, a, uint64_t, c, unsigned *, wrong)
{
	for (size_t i = KERNEL_FIRST; i < n; i += KERNEL_STEP)
		wrong[KERNEL_FIRST] += words[i] != HASH(i) * a + c;
}

#endif
