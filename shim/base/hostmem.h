/*
 * hostmem.h: how much host memory this process may reasonably pin. Reads /proc and the cgroup's files, nothing else.
 */
#ifndef SPILLWAY_HOSTMEM_H
#define SPILLWAY_HOSTMEM_H

#include <stdint.h>

struct hostmem {
	uint64_t total, available; /* MemTotal, MemAvailable; 0 when /proc cannot be read */
	/*
	 * Of the tightest cgroup above us: its limit (memory.max or memory.high) minus what it uses and the kernel cannot
	 * take back at once, as it can its cache of files; UINT64_MAX without a limit.
	 */
	uint64_t cgroup_headroom;
	uint64_t domain; /* a number of the nearest cgroup above us with a limit, the same for all below it; 0: none */
};

/* root: where /proc and /sys are ("" in the product; tests give a folder of their own). */
struct hostmem hostmem_read(const char *root);
/* The default host budget: the smaller of half of MemAvailable and half of the cgroup's headroom. */
uint64_t hostmem_default_budget(const struct hostmem *memory);

#endif
