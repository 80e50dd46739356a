// SPDX-License-Identifier: Apache-2.0
/*
 * sim_stubs.c: every row of hooks.def as a weak "not supported", counted and logged like any other call. A strong body
 * elsewhere takes its place at link time. The types come from the rows, so a row that drifts from cuda.h breaks here.
 */
#include "sim_internal.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define HOOK(name, params, args)                                                                                       \
	SIM_SPELL(__attribute__((weak)), SIM_INIT, name, params,                                                       \
		  sim_why(CUDA_ERROR_NOT_SUPPORTED, "the model does not have this"))
#define HOOK_USE(name, params, args) HOOK(name, params, args)
#include "shim/driver/hooks.def"
