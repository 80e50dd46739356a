/*
 * CUPTI, the profiling library, counts managed memory as well, but below CUDA 13.3 it has one subscriber in a process:
 * holding it breaks every profiler that comes later (docs/facts.md, Page faults). So this version never takes it. It
 * says what stands in the way here, by looking at what is loaded; nothing is ever loaded for it.
 */
#include "shim/faults/faults_inside.h"

#include <dlfcn.h>

static bool is_loaded(const char *name)
{
	void *library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);

	if (library)
		dlclose(library);
	return library != NULL;
}

const char *faults_no_cupti(void)
{
	static const char *const names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (is_loaded(names[i]))
			return "CUPTI is not available: it is loaded, and its one subscription is left to profilers";
	dlerror();
	return "CUPTI is not available: it is not loaded in this process";
}
