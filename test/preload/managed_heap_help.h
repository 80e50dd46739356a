// SPDX-License-Identifier: Apache-2.0
/*
 * managed_heap_help.h: parts of tests that run with managed memory on the heap, in the mode SPILL_MODE. And a kernel that
 * refuses userfaultfd(), as most containers do.
 */
#ifndef PRELOAD_MANAGED_HEAP_HELP_H
#define PRELOAD_MANAGED_HEAP_HELP_H

#include "test/preload/figures_help.h"
#include "test/test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline int run_as(const char *sets, const char *more, void (*part)(void))
{
	static char settings[256];

	snprintf(settings, sizeof(settings), "SPILLWAY_SET=spill.mode=%s,%s,report.summary=no", getenv("SPILL_MODE"),
		 sets);
	return child_run((const char *const[]){"SIM_MEMORY=256MiB", "SIM_HOST_MEMORY=512MiB", runtime,
					       "SPILLWAY_POLICY=" MANAGED_POLICY, settings, more, NULL},
			 part);
}

static inline int run(void (*part)(void))
{
	return run_as("device.budget=64MiB,host.budget=384MiB", NULL, part);
}

/* Whether the library can serve touches here. */
static inline bool has_userfaultfd(void)
{
	int file = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);

	return file >= 0 && !close(file);
}

/* From now on, for this process and its children. */
static inline void refuse_userfaultfd(void)
{
	static struct sock_filter filter[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	static const struct sock_fprog program = {sizeof(filter) / sizeof(*filter), filter};

	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
	CHECK(syscall(SYS_userfaultfd, 0) == -1 && errno == EPERM);
}

static inline uint32_t *words(CUdeviceptr at)
{
	return (uint32_t *)(uintptr_t)at;
}

static inline uint64_t counted(enum stats_counter counter)
{
	return page_there()->counter[counter];
}

static inline uint32_t read_back(CUdeviceptr at)
{
	uint32_t word;

	MUST(cu.cuMemcpyDtoH_v2(&word, at, sizeof(word)));
	return word;
}

static inline void end(void)
{
	CHECK(page_there()->live[PLACE_UNUSED] == 0);
}

/* Writes one number after the other to a word, and reads each back, until that is over. Stores how far that has come. */
static inline void write_until(const atomic_bool *over, volatile uint32_t *word, volatile uint32_t *n_written)
{
	for (uint32_t i = 1; !*over; i++) {
		*word = i;
		CHECK(*word == i);
		*n_written = i;
	}
}

/* A kernel that adds one to the word that it gets a pointer to. */
static inline void bump_body(const struct sim_launch *launch, void **args)
{
	(void)launch;
	++**(uint32_t **)args[0];
}
static const size_t one_pointer[] = {8};
static const struct sim_kernel bump_kernel = {"bump", bump_body, 1, one_pointer};
static const struct sim_module bump_module = {SIM_MODULE_MAGIC, 1, &bump_kernel};

/* Launches a kernel that gets one pointer. */
static inline void launch(CUfunction function, CUstream stream, CUdeviceptr at)
{
	void *params[] = {&at};

	MUST(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

/* The GPU has it, and has written `value` at its beginning. */
static inline CUdeviceptr used_by_gpu(size_t bytes, uint32_t value)
{
	CUdeviceptr at = driver_managed(bytes);

	MUST(driver_fill(NULL, at, value, 1));
	MUST(cu.cuCtxSynchronize());
	return at;
}

static inline void end_of(CUdeviceptr at)
{
	CHECK(counted(STAT_managed_touches_refused) == 0);
	MUST(cu.cuMemFree_v2(at));
	end();
}

#endif
