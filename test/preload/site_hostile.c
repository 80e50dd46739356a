// SPDX-License-Identifier: Apache-2.0
/*
 * site_hostile.c: exports what an interpreter of Python exports, but there is none. Its argument says what is wrong:
 *   unknown   a version that is not known
 *   wild      the state of the thread is at an address that nothing is at
 *   garbage   the state is of this thread, and full of wild pointers, as is everything that it leads to
 * It then allocates, and must not be ended by that. What asks is an exported function.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default"), used))
#define PAGES  16
#define PAGE   4096

EXPORT unsigned long Py_Version = 0x030b0700;
EXPORT char _PyRuntime[4096], PyCode_Type[64], PyUnicode_Type[64], PyBytes_Type[64];
void *PyGILState_GetThisThreadState(void);
CUresult site_wanted(CUdeviceptr *ret_address, size_t bytes);

static void *state;

EXPORT void *PyGILState_GetThisThreadState(void)
{
	return state;
}

EXPORT __attribute__((noinline)) CUresult site_wanted(CUdeviceptr *ret_address, size_t bytes)
{
	return cuMemAlloc(ret_address, bytes);
}

static uint64_t next(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	return *seed >> 16;
}

/* A page of pointers into these pages, to their very end, to types and to nowhere. A page in the middle is missing. */
static void fill(unsigned char *memory, uint64_t *seed)
{
	const uint64_t types[] = {(uintptr_t)PyCode_Type, (uintptr_t)PyUnicode_Type, (uintptr_t)PyBytes_Type};

	for (size_t i = 0; i < PAGES * PAGE / 8; i++) {
		uint64_t word, kind = next(seed) % 8;

		if (i * 8 / PAGE == PAGES / 2)
			continue;
		word = (uintptr_t)memory + next(seed) % (PAGES * PAGE / 8) * 8;
		if (kind == 0)
			word = next(seed);
		else if (kind == 1)
			word = (uintptr_t)memory + PAGES * PAGE - next(seed) % 16;
		else if (kind < 5)
			word = types[kind - 2];
		memcpy(memory + i * 8, &word, 8);
	}
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	unsigned char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t seed = 1, self = (uintptr_t)pthread_self();
	CUdevice device;
	CUcontext context;
	CUdeviceptr address;

	if (memory == MAP_FAILED || munmap(memory + PAGES / 2 * PAGE, PAGE))
		return 1;
	if (!strcmp(mode, "unknown"))
		Py_Version = 0x030f00f0;
	state = !strcmp(mode, "wild") ? (void *)8 : memory;
	if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
	    cuCtxSetCurrent(context))
		return 1;
	for (unsigned i = 0; i < 300; i++) {
		fill(memory, &seed);
		memcpy(memory + 152, &self, 8);                                                 /* thread_id */
		memcpy(memory + 56, &(uint64_t){(uintptr_t)memory + next(&seed) % 512 * 8}, 8); /* cframe */
		if (site_wanted(&address, 1 << 20) || cuMemFree(address))
			return 1;
	}
	return 0;
}
