/*
 * switches.h: settings of the memory API that are not in the policy yet. serve.c's callers ask the functions; each is one
 * line to connect when the policy has the key. Written by tests alone, before the first allocation.
 */
#ifndef SPILLWAY_SWITCHES_H
#define SPILLWAY_SWITCHES_H

#include <stdbool.h>

struct switches {
	bool async_to_heap; /* async: heap (true) or driver */
	bool vmm_may_spill; /* the program's own cuMemCreate may be placed on the host */
};
extern struct switches switches;

/* Does memory that is allocated in stream order come into the heap? Else the driver's pools serve it. */
bool serve_async_to_heap(void);
/* May a device-located handle of the program over the device budget be made in host memory? Else it is only counted. */
bool serve_vmm_may_spill(void);

#endif
