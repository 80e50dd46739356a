// SPDX-License-Identifier: Apache-2.0
/*
 * async_help.h: what the tests of memory in stream order share. What waits is held by a host function, so that nothing
 * rests on time: as long as a stream is held, whatever comes behind it has not happened.
 */
#ifndef SPILLWAY_TEST_ASYNC_HELP_H
#define SPILLWAY_TEST_ASYNC_HELP_H

#include "test/core/core.h"

#include <semaphore.h>

/* A stream, when it has come so far, is held until it is let go, or async_end(). */
void async_hold(CUstream stream);
void async_open(CUstream stream);
void async_let_go(CUstream stream); /* and over */

CUdeviceptr async_get(size_t bytes, CUstream stream);
/* Ends what core_stream() and async_get() made and the test has left. Tear-downs begin with it. */
void async_end(void);
void async_give(CUdeviceptr address); /* freed, and over */
bool async_in_heap(CUdeviceptr address);
CUmemoryPool async_default_pool(void);
void async_keep_in(CUmemoryPool pool, cuuint64_t bytes); /* its release threshold */

/* What this thread allocates next is for the driver's pools, by a rule of streams.yaml, or for the heap again. */
void async_leave_to_pools(bool pools);
/* After each test: nothing is left anywhere. */
int async_check(void **state);

/* The same, where pools are the driver's: none is charged with anything. */
int async_check_pools(void **state);

/* For core_start(): two devices, and the rules of streams.yaml, whose path the test's build gives. Nothing moves. */
#define ASYNC_SETTINGS                                                                                                 \
	((const char *const[]){                                                                                        \
	    "SIM_MEMORY=256MiB", "SIM_DEVICES=2", "SPILLWAY_POLICY=" STREAMS_POLICY,                                   \
	    "SPILLWAY_SET=device.budget=64MiB,host.budget=64MiB,spill.mode=static,report.summary=no", NULL})

#define ASYNC_BUDGET (64 * MIB)
/* The same with async.use: auto, by auto.yaml. */
#define ASYNC_AUTO_SETTINGS                                                                                            \
	((const char *const[]){                                                                                        \
	    "SIM_MEMORY=256MiB", "SIM_DEVICES=2", "SPILLWAY_POLICY=" AUTO_POLICY,                                      \
	    "SPILLWAY_SET=device.budget=64MiB,host.budget=64MiB,spill.mode=static,report.summary=no", NULL})
/* And where memory moves. */
#define ASYNC_MOVING_SETTINGS                                                                                          \
	((const char *const[]){                                                                                        \
	    "SIM_MEMORY=256MiB", "SIM_DEVICES=2", "SPILLWAY_POLICY=" AUTO_POLICY,                                      \
	    "SPILLWAY_SET=device.budget=64MiB,host.budget=64MiB,spill.mode=exact,report.summary=no", NULL})

#endif
