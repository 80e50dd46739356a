// SPDX-License-Identifier: Apache-2.0
/*
 * temporary.h: one file for whatever the tests of a program write, there from the first test to the last.
 */
#ifndef UNIT_TEMPORARY_H
#define UNIT_TEMPORARY_H

#include <stddef.h>

extern char temporary[64]; /* its path */

/* Before and after the group of tests. */
int temporary_make(void **state);
int temporary_remove(void **state);

/* These bytes, and no others, are in it. */
void temporary_save(const void *bytes, size_t n);

#endif
