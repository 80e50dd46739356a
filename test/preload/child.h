// SPDX-License-Identifier: Apache-2.0
/*
 * child.h: run one part of a test in a process of its own under the library, with settings of its own. The test's own
 * process must not have used the driver: the child of one that had is passed through for good.
 */
#ifndef PRELOAD_CHILD_H
#define PRELOAD_CHILD_H

#include "test/check.h"
#include "test/preload/driver.h"

/* Puts a setting, "NAME=value", into the environment. */
void child_set(const char *setting);
/*
 * Settings end with NULL. Runs a part of a test in a child, where the model must have seen no broken rule when it
 * returns. Exit status of the child: 0, the part's own if it ends by exit(), or 128 + the signal. A child that does not
 * end is ended by SIGALRM after a minute; the stacks of its threads are written to stderr then (stacks.h).
 */
int child_run(const char *const *settings, void (*part)(void));
/* What each part of this program begins and ends with, unless child_run_bare() runs it. Each may be NULL. */
void child_frame(void (*begin)(void), void (*end)(void));
#define CHILD_FRAME(begin, end)                                                                                        \
	__attribute__((constructor)) static void child_frame_here(void)                                                \
	{                                                                                                              \
		child_frame(begin, end);                                                                               \
	}
int child_run_bare(const char *const *settings, void (*part)(void));
void child_start(void); /* a beginning: device 0 is started */
/* The part succeeds there. */
#define child_passes(settings, part) assert_int_equal(child_run(settings, part), 0)
/* A test whose body, which follows, runs there with these settings. */
#define CHILD_TEST(name, ...)                                                                                          \
	static void name##_there(void);                                                                                \
	TEST(name)                                                                                                     \
	{                                                                                                              \
		assert_int_equal(child_run(__VA_ARGS__, name##_there), 0);                                             \
	}                                                                                                              \
	static void name##_there(void)

/* A test whose body, which follows, is the function `part`: the statement runs it where it belongs. */
#define PART_TEST(name, ...)                                                                                           \
	static void name##_part(void);                                                                                 \
	TEST(name)                                                                                                     \
	{                                                                                                              \
		void (*const part)(void) = name##_part;                                                                \
                                                                                                                       \
		__VA_ARGS__;                                                                                           \
	}                                                                                                              \
	static void name##_part(void)

CUdeviceptr child_alloc(size_t bytes);
/* Of device 0, made current beside its primary one. */
CUcontext child_context(void);
/* Is all of it in memory of the device? */
bool child_on_device(CUdeviceptr block, size_t bytes);

/* Does the driver's answer, whoever gives it, know a block here? */
bool child_is_alive(CUdeviceptr block);
/* The block is freed while the stream captures, and nothing is left of the capture. */
void child_free_in_a_capture(CUdeviceptr block, CUstream stream);
/* A new non-blocking stream of the current context. */
CUstream child_stream(void);

/* Hold a stream where it is until child_release(), which any thread may call. Holds that stream alone. */
unsigned *child_hold(CUstream stream);
void child_release(unsigned *word);

/* All calls of that entry point from now on fail, so many times; 0: no more of them. */
void child_refuse(const char *name, unsigned times);
/* Suspends this process by itself. */
void child_suspend(void);

/* Of CHILD_BUDGETS everything can be had again. */
void child_all_is_there(void);

/* 32 MiB of the device and 64 MiB of the host on a device of 128 MiB. */
#define CHILD_BUDGETS "SIM_MEMORY=128MiB", "SPILLWAY_SET=device.budget=32MiB,host.budget=64MiB,report.summary=no"

#endif
