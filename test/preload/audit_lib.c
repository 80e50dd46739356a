// SPDX-License-Identifier: Apache-2.0
/*
 * A library that uses the driver by itself, to be opened in ways that preloading does not see (audit_test.c). It is
 * linked to the driver, and can look it up by a path.
 */
#include <cuda.h>

#include <dlfcn.h>
#include <stddef.h>

CUdeviceptr audit_by_link(size_t bytes);
CUdeviceptr audit_by_dlsym(const char *path, size_t bytes);
CUdeviceptr audit_by_proc(const char *path, size_t bytes);

CUdeviceptr audit_by_link(size_t bytes)
{
	CUdeviceptr address = 0;
	CUcontext context;

	if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
	    cuMemAlloc_v2(&address, bytes))
		return 0;
	return cuMemsetD8_v2(address, 7, bytes) || cuCtxSynchronize() ? 0 : address;
}

#define LOOK_UP(name) __typeof__(&name) f_##name = (__typeof__(f_##name))dlsym(driver, #name)

CUdeviceptr audit_by_dlsym(const char *path, size_t bytes)
{
	void *driver = dlopen(path, RTLD_NOW);
	CUdeviceptr address = 0;
	CUcontext context;

	if (!driver)
		return 0;
	LOOK_UP(cuInit);
	LOOK_UP(cuDevicePrimaryCtxRetain);
	LOOK_UP(cuCtxSetCurrent);
	LOOK_UP(cuMemAlloc_v2);
	if (f_cuInit(0) || f_cuDevicePrimaryCtxRetain(&context, 0) || f_cuCtxSetCurrent(context) ||
	    f_cuMemAlloc_v2(&address, bytes))
		return 0;
	return address;
}

CUdeviceptr audit_by_proc(const char *path, size_t bytes)
{
	void *driver = dlopen(path, RTLD_NOW);
	__typeof__(&cuInit) init;
	__typeof__(&cuDevicePrimaryCtxRetain) retain;
	__typeof__(&cuCtxSetCurrent) set_current;
	__typeof__(&cuMemAlloc_v2) allocate;
	CUdeviceptr address = 0;
	CUcontext context;

	if (!driver)
		return 0;
	LOOK_UP(cuGetProcAddress_v2);
	if (f_cuGetProcAddress_v2("cuInit", (void **)&init, 12000, 0, NULL) ||
	    f_cuGetProcAddress_v2("cuDevicePrimaryCtxRetain", (void **)&retain, 12000, 0, NULL) ||
	    f_cuGetProcAddress_v2("cuCtxSetCurrent", (void **)&set_current, 12000, 0, NULL) ||
	    f_cuGetProcAddress_v2("cuMemAlloc", (void **)&allocate, 12000, 0, NULL) || init(0) || retain(&context, 0) ||
	    set_current(context) || allocate(&address, bytes))
		return 0;
	return address;
}
