// SPDX-License-Identifier: Apache-2.0
/*
 * home.h: what the tests of the backends outside the heap share: an allocation as serve.c makes it, in a home that the
 * test names; kernels; and that nothing is left behind.
 */
#ifndef SPILLWAY_TEST_HOME_H
#define SPILLWAY_TEST_HOME_H

#include "test/core/core.h"

#include "shim/serve/backend.h"
#include "shim/context/context.h"
#include "shim/process/process.h"
#include "shim/serve/deferred_free.h"
#include "shim/serve/serve.h"
#include "shim/stats/stats.h"

/* As cuMemAlloc would, when the policy says this home. *ret_address on success alone. */
enum sw_status home_alloc(const struct backend *home, const struct backend_request *request, CUdeviceptr *ret_address);
/* The same where nothing is in its way. */
CUdeviceptr home_get(const struct backend *home, const struct backend_request *request);
/* What the driver's attributes of pointers, of one word, say of an address. */
unsigned home_ask(CUpointer_attribute attribute, CUdeviceptr address);
/* Starts driver and library with a device of 64 MiB, and loads the kernels. */
void home_start(void);
int home_set_up(void **state);
/* Nothing in the ledger, the counts, the model; no rule broken. */
int home_tear_down(void **state);

CUstream home_stream(void);
/* A stream that captures, in the strictest mode; the end of both, and of the frees that were put off meanwhile. */
CUstream home_capture(void);
void home_end_capture(CUstream stream);
/* n words of value, by a kernel of that stream. slow: it takes 20 ms before it begins. */
CUresult home_fill(CUdeviceptr at, uint32_t value, size_t n, CUstream stream);
CUresult home_fill_slowly(CUdeviceptr at, uint32_t value, size_t n, CUstream stream);
/* Do n words at this address hold the value, for the CPU? */
bool home_holds(CUdeviceptr at, uint32_t value, size_t n);

#endif
