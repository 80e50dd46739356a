// SPDX-License-Identifier: Apache-2.0
/* managed_heap_help.h: parts of tests that run with managed memory on the heap, in the mode SPILL_MODE. */
#ifndef PRELOAD_MANAGED_HEAP_HELP_H
#define PRELOAD_MANAGED_HEAP_HELP_H

#include "test/preload/figures_help.h"
#include "test/test.h"

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

#endif
