// SPDX-License-Identifier: Apache-2.0
/*
 * hostmem.h: reports how much host memory this process may reasonably pin. Reads only /proc and the cgroup's files;
 * without /proc, what the kernel says is free, and the limits of the group at the root of the cgroup's files.
 */
#ifndef SPILLWAY_HOSTMEM_H
#define SPILLWAY_HOSTMEM_H

#include <stdint.h>

struct hostmem {
	uint64_t total, available; /* MemTotal, MemAvailable; without /proc, free memory is available */
	/*
	 * Headroom of the tightest cgroup of this process: its limit (memory.max or memory.high) minus the usage that
	 * the kernel cannot reclaim at once (as it can the page cache); UINT64_MAX without a limit.
	 */
	uint64_t cgroup_headroom;
	uint64_t domain; /* identifies the nearest cgroup with a limit, for all processes in it; 0: none */
};

/* Reads the limits. root: the folder that holds /proc and /sys ("" in the product; tests pass a folder). */
struct hostmem hostmem_read(const char *root);
/* Returns the default host budget, bytes: the smaller of half of MemAvailable and half of the cgroup's headroom. */
uint64_t hostmem_default_budget(const struct hostmem *memory);

#endif
