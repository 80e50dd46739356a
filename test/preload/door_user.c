// SPDX-License-Identifier: Apache-2.0
/*
 * A program that has nothing to do with CUDA when it is linked, and gets at the driver as its first argument says:
 *
 *   none                nothing at all
 *   dlsym, proc         by dlsym, by cuGetProcAddress
 *   plain, deep, apart  opens the library of its second argument: plainly, with RTLD_DEEPBIND, by dlmopen; it is linked
 *                       to the driver, and called
 *   load                opens it, and calls nothing
 *   copy                gets functions of the second libcuda.so.1 that its second argument names
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int ask(const char *path, int by_proc)
{
	void *driver = dlopen(path, RTLD_NOW), *function = NULL;

	if (!driver)
		return 1;
	__typeof__(&cuGetProcAddress_v2) get = (__typeof__(get))dlsym(driver, "cuGetProcAddress_v2");
	if (!by_proc)
		return !dlsym(driver, "cuMemAlloc_v2") || !dlsym(driver, "cuInit") ||
		       dlsym(driver, "cuNoSuchFunction") != NULL;
	return !get || get("cuMemAlloc", &function, 12000, 0, NULL) || get("cuMemFree", &function, 12000, 0, NULL);
}

static int open_and_call(const char *how, const char *path)
{
	CUdeviceptr (*by_link)(size_t bytes);
	void *library = strcmp(how, "apart") == 0
			    ? dlmopen(LM_ID_NEWLM, path, RTLD_LAZY)
			    : dlopen(path, RTLD_LAZY | (strcmp(how, "deep") == 0 ? RTLD_DEEPBIND : 0));

	if (!library)
		fprintf(stderr, "%s\n", dlerror());
	if (!library || strcmp(how, "load") == 0)
		return !library;
	by_link = (__typeof__(by_link))dlsym(library, "audit_by_link");
	return !by_link || !by_link(4096);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "", *path = argc > 2 ? argv[2] : "";

	if (strcmp(how, "none") == 0)
		return 0;
	if (strcmp(how, "dlsym") == 0 || strcmp(how, "proc") == 0)
		return ask("libcuda.so.1", strcmp(how, "proc") == 0);
	if (strcmp(how, "copy") == 0)
		return ask("libcuda.so.1", 0) || ask(path, 0);
	return open_and_call(how, path);
}
