// SPDX-License-Identifier: Apache-2.0
/*
 * Bodies of the entry points that unload modules and libraries: afterwards the driver may reuse the handles of their
 * functions for functions with other parameters.
 */
#include "shim/entry/entry.h"
#include "shim/submit/arguments.h"

/*
 * Before the call, because another thread may get the handle as soon as the driver has released it; for after, see
 * arguments.c.
 */
#define UNLOAD(name, type)                                                                                             \
	static CUresult serve_##name(type handle)                                                                      \
	{                                                                                                              \
		kernel_params_drop();                                                                                  \
		CUresult result = REAL(name)(handle);                                                                  \
		kernel_params_drop();                                                                                  \
		return result;                                                                                         \
	}

UNLOAD(cuModuleUnload, CUmodule)
UNLOAD(cuLibraryUnload, CUlibrary)

#define HOOK_BODY HOOK_SHELL
#define HOOKS_OF  HOOKS_MODULE
#include "shim/driver/hooks.def"
