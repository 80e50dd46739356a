// SPDX-License-Identifier: Apache-2.0
/*
 * adding_job.c: does what the patches of docs/adding/ are about, under a library that was built with them
 * (adding_test.sh): says who serves cuCtxGetFlags, and what the page counts of cuMemAllocPitch.
 */
#include "shim/stats/stats_page.h"

#include <cuda.h>
#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void ok(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	printf("%s: %d\n", what, (int)result);
	exit(1);
}

/* The counter, as it lies in this process's page; folder: that it is in. */
static unsigned long long counted(const char *folder)
{
	static struct stats_page page;
	char pattern[512];
	glob_t found;
	size_t n = 0;

	snprintf(pattern, sizeof(pattern), "%s/spillway*/*.stats", folder);
	if (glob(pattern, 0, NULL, &found))
		return 0;
	FILE *file = fopen(found.gl_pathv[0], "r");
	if (file) {
		n = fread(&page, 1, sizeof(page), file);
		fclose(file);
	}
	globfree(&found);
	return n == sizeof(page) ? page.counter[STAT_pitched_allocations] : 0;
}

int main(void)
{
	unsigned flags = 0;
	CUcontext context;
	CUdeviceptr at;
	size_t pitch;
	Dl_info info;

	ok(cuInit(0), "cuInit");
	ok(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	ok(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	ok(cuMemAllocPitch_v2(&at, &pitch, 1000, 1000, 4), "cuMemAllocPitch");
	ok(cuCtxGetFlags(&flags), "cuCtxGetFlags");
	if (!dladdr((void *)(uintptr_t)cuCtxGetFlags, &info))
		return 1;
	printf("cuCtxGetFlags: %s\n", strrchr(info.dli_fname, '/') + 1);
	printf("pitched_allocations: %llu\n", counted(getenv("XDG_RUNTIME_DIR")));
	ok(cuMemFree_v2(at), "cuMemFree");
	return 0;
}
