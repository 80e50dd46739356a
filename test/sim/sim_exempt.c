// SPDX-License-Identifier: Apache-2.0
/*
 * sim_exempt.c: every exempt function of hooks.def as a weak "not supported". The rows have no parameters and this file
 * does not know cuda.h, so a stub takes whatever it is called with: callers' registers are theirs to clean up on both
 * ABIs.
 */
#define NOT_SUPPORTED 801

#define EXEMPT(name, reason)                                                                                           \
	__attribute__((weak, visibility("default"))) int name(void);                                                   \
	int name(void)                                                                                                 \
	{                                                                                                              \
		return NOT_SUPPORTED;                                                                                  \
	}
#include "shim/driver/hooks.def"
