// SPDX-License-Identifier: Apache-2.0
/*
 * slow.h: time limits of tests. A limit is chosen for the plain build and multiplied by TEST_SLOWNESS, which
 * test/CMakeLists.txt sets for builds with a sanitizer and for an emulator.
 */
#ifndef TEST_SLOW_H
#define TEST_SLOW_H

#ifndef TEST_SLOWNESS
#define TEST_SLOWNESS 1
#endif

#endif
