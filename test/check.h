// SPDX-License-Identifier: Apache-2.0
/*
 * check.h: cmocka's assertions are for its own process. In a child, say where and end.
 */
#ifndef TEST_CHECK_H
#define TEST_CHECK_H

#include "test/libc.h"

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                                 \
			fflush(NULL);                                                                                  \
			_exit(1);                                                                                      \
		}                                                                                                      \
	} while (0)

#endif
