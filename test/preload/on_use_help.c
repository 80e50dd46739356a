// SPDX-License-Identifier: Apache-2.0
#include "test/preload/on_use_help.h"

CHILD_FRAME(child_start, on_use_end)

uint64_t on_use_counted(enum stats_counter counter)
{
	return page_there()->counter[counter];
}

uint64_t on_use_live(enum place place)
{
	return page_there()->live[place];
}

void on_use_set(CUdeviceptr at, unsigned value, size_t bytes)
{
	MUST(cu.cuMemsetD32_v2(at, value, bytes / 4));
}

bool on_use_is(CUdeviceptr at, unsigned value, size_t bytes)
{
	return driver_holds(at, value, bytes / 4);
}

const char *on_use_mode(void)
{
	return getenv("SPILL_MODE");
}

void on_use_run_as(const char *mode, const char *budgets, void (*part)(void))
{
	static char settings[256];

	snprintf(settings, sizeof(settings), "SPILLWAY_SET=spill.mode=%s,%s,report.summary=no", mode, budgets);
	child_passes(((const char *const[]){"SIM_MEMORY=256MiB", "SIM_HOST_MEMORY=512MiB", "SIM_FILL=0", runtime,
					    "SPILLWAY_POLICY=" ON_USE_POLICY, settings, NULL}),
		     part);
}

void on_use_run(void (*part)(void))
{
	on_use_run_as(on_use_mode(), "device.budget=50%,host.budget=384MiB", part);
}

void on_use_end(void)
{
	CHECK(on_use_live(PLACE_UNUSED) == 0);
}

void on_use_born(CUdeviceptr at, size_t bytes)
{
	CHECK(spillway_born((const void *)(uintptr_t)at, bytes) == 0);
}

void on_use_discard(CUdeviceptr at, size_t bytes)
{
	CHECK(spillway_discard((const void *)(uintptr_t)at, bytes) == 0);
}
