// SPDX-License-Identifier: Apache-2.0
#include "test/preload/child.h"
#include "shim/spillway.h"
#include "test/preload/stacks.h"
#include "test/slow.h"

/* No part takes a second; one that hangs is ended by a signal, which is a failure, and says where it hung. */
#define WATCHDOG_SECONDS (60 * TEST_SLOWNESS)

#ifdef __SANITIZE_THREAD__
/* A child ends by _exit(); the sanitizer would sleep a second in each. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "atexit_sleep_ms=0";
}
#endif

void child_set(const char *setting)
{
	char *copy = strdup(setting), *equals = strchr(copy, '=');

	*equals = 0;
	setenv(copy, equals + 1, 1);
	free(copy);
}

static void (*each_begin)(void), (*each_end)(void);

void child_frame(void (*begin)(void), void (*end)(void))
{
	each_begin = begin;
	each_end = end;
}

void child_start(void)
{
	driver_start(0);
}

static int run(const char *const *settings, void (*begin)(void), void (*part)(void), void (*end)(void))
{
	int status = 0;

	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		stacks_on_alarm();
		alarm(WATCHDOG_SECONDS);
		for (; *settings; settings++)
			child_set(*settings);
		if (begin)
			begin();
		part();
		if (end)
			end();
		CHECK(sim_broken_rules() == 0);
		fflush(NULL);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int child_run(const char *const *settings, void (*part)(void))
{
	return run(settings, each_begin, part, each_end);
}

int child_run_bare(const char *const *settings, void (*part)(void))
{
	return run(settings, NULL, part, NULL);
}

CUcontext child_context(void)
{
	CUcontext context;

	MUST(cu.cuCtxCreate_v2(&context, 0, 0));
	return context;
}

CUdeviceptr child_alloc(size_t bytes)
{
	CUdeviceptr block = 0;

	CHECK(cu.cuMemAlloc_v2(&block, bytes) == CUDA_SUCCESS);
	return block;
}

bool child_on_device(CUdeviceptr block, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += 2 * MIB)
		if (sim_where(block + at) != 'D')
			return false;
	return true;
}

unsigned *child_hold(CUstream stream)
{
	void *word;

	MUST(cu.cuMemHostAlloc(&word, 4096, CU_MEMHOSTALLOC_PORTABLE));
	memset(word, 0, 4096);
	MUST(cuStreamWaitValue32_v2(stream, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_GEQ));
	return word;
}

void child_release(unsigned *word)
{
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
}

bool child_is_alive(CUdeviceptr block)
{
	return cu.cuMemGetAddressRange_v2(NULL, NULL, block) == CUDA_SUCCESS;
}

void child_free_in_a_capture(CUdeviceptr block, CUstream stream)
{
	MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(cu.cuMemFree_v2(block));
	driver_forget_capture(stream);
}

CUstream child_stream(void)
{
	CUstream stream;

	MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

void child_refuse(const char *name, unsigned times)
{
	CUdevice device;

	sim_fail_then("cuDeviceGet", 1, CUDA_ERROR_UNKNOWN, name, times);
	CHECK(cu.cuDeviceGet(&device, 0) == CUDA_ERROR_UNKNOWN);
}

void child_suspend(void)
{
	int status = -EBUSY;

	/* A safe point may not come in time where many programs share a processor. */
	for (int tries = 0; tries < 50 && status == -EBUSY; tries++)
		status = spillway_suspend();
	if (status)
		printf("suspended: %d\n", status);
	CHECK(status == 0);
}

void child_all_is_there(void)
{
	MUST(cu.cuCtxSynchronize());
	MUST(cu.cuMemFree_v2(child_alloc(96 * MIB)));
}
