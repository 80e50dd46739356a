// SPDX-License-Identifier: Apache-2.0
/*
 * failing_alloc.h: memory that runs out on order, for tests linked with --wrap=calloc,--wrap=realloc. One source file
 * of a program includes it.
 */
#ifndef SPILLWAY_TEST_FAILING_ALLOC_H
#define SPILLWAY_TEST_FAILING_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

/* Every so manieth allocation fails; 0: none. */
static unsigned fail_every, n_allocations;

static bool fails(void)
{
	return fail_every && ++n_allocations % fail_every == 0;
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return fails() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
	return fails() ? NULL : __real_realloc(memory, bytes);
}

#endif
