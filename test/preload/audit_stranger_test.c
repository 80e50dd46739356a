// SPDX-License-Identifier: Apache-2.0
/*
 * A program without the driver opens a library in a namespace of its own, which brings one: that works, is not seen,
 * and with libspillway-audit.so it is said (the test looks for it).
 */
#include "shim/spillway.h"

#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>

int main(void)
{
	void *library = dlmopen(LM_ID_NEWLM, LAZY, RTLD_LAZY);
	CUdeviceptr (*function)(size_t) = library ? (CUdeviceptr(*)(size_t))dlsym(library, "audit_by_link") : NULL;
	struct spillway_place place;

	if (!function) {
		printf("%s\n", dlerror());
		return 1;
	}
	CUdeviceptr address = function((size_t)3 << 20);
	int result = spillway_where((const void *)(uintptr_t)address, &place);
	printf("address %llx, where %d\n", address, result);
	return !(address && result == -ENOTSUP);
}
