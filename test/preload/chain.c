// SPDX-License-Identifier: Apache-2.0
/*
 * Another preloaded interposer, built twice: one to stand before libspillway.so and one behind it. It interposes an
 * allocation of the driver and one of the C library, and finds the next in line the usual way.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

#define PASTE2(a, b) a##b
#define PASTE(a, b)  PASTE2(a, b)
#define NAME(suffix) PASTE(CHAIN, suffix) /* before_calls, behind_calls ... */

extern atomic_uint NAME(_calls);
atomic_uint NAME(_calls);
void *NAME(_next)(const char *name);
unsigned long getauxval(unsigned long type);

void *NAME(_next)(const char *name)
{
	void *next = dlsym(RTLD_NEXT, name);

	atomic_fetch_add(&NAME(_calls), 0); /* no tail call: the caller of dlsym is this library */
	return next;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
	__typeof__(&cuMemAlloc_v2) next = (__typeof__(next))NAME(_next)("cuMemAlloc_v2");

	atomic_fetch_add(&NAME(_calls), 1);
	return next ? next(address, bytes) : CUDA_ERROR_NOT_FOUND;
}

/* A function of the C library that nobody else interposes. */
unsigned long getauxval(unsigned long type)
{
	__typeof__(&getauxval) next = (__typeof__(next))NAME(_next)("getauxval");

	atomic_fetch_add(&NAME(_calls), 1);
	return next(type);
}
