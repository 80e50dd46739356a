// SPDX-License-Identifier: Apache-2.0
/*
 * strtol.h: comes before all else in each file (CMakeLists.txt). From glibc 2.38 on, _GNU_SOURCE makes strtol() and its
 * sisters other names (__isoc23_strtol), which musl and older glibcs lack. A program with one of those could not load
 * the library then.
 */
#ifndef SPILLWAY_STRTOL_H
#define SPILLWAY_STRTOL_H

#include <features.h>

/* Its name until 2.39, and since. */
#undef __GLIBC_USE_C2X_STRTOL
#define __GLIBC_USE_C2X_STRTOL 0
#undef __GLIBC_USE_C23_STRTOL
#define __GLIBC_USE_C23_STRTOL 0

#endif
