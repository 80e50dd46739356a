// SPDX-License-Identifier: Apache-2.0
/*
 * Libraries that go round what is preloaded: opened with RTLD_DEEPBIND, in a namespace of their own, or with a driver
 * of their own by its path. Run without libspillway-audit.so they do go round; with it (LD_AUDIT) what they allocate
 * lies in the heap. Each in a process of its own, with a library that is bound lazily and one that is bound at once.
 */
#include "shim/spillway.h"
#include "test/preload/child.h"
#include "test/test.h"

#include <dlfcn.h>

#define BYTES (3 * MIB)

static const char *library, *path;
static char driver_path[4096];
static void *(*open_it)(void);

static void *open_deep(void)
{
	return dlopen(library, RTLD_LAZY | RTLD_DEEPBIND);
}

static void *open_plainly(void)
{
	return dlopen(library, RTLD_LAZY);
}

static void *open_apart(void)
{
	return dlmopen(LM_ID_NEWLM, library, RTLD_LAZY);
}

/* Without the audit library it must have worked, too, or it would prove nothing. */
static void look_at(CUdeviceptr address)
{
	struct spillway_place place;
	int result = spillway_where((const void *)(uintptr_t)address, &place);

	CHECK(address != 0);
	if (!getenv("LD_AUDIT")) {
		CHECK(result == -ENOENT || (result == 0 && place.backend != SPILLWAY_HEAP));
		return;
	}
	CHECK(result == 0 && place.backend == SPILLWAY_HEAP && place.bytes == BYTES);
	CHECK(sim_calls("cuMemAlloc_v2") == 0 && sim_broken_rules() == 0);
	/* It is one memory with the program's: the program goes on with it. */
	MUST(cu.cuMemFree_v2(address));
	CHECK(spillway_where((const void *)(uintptr_t)address, &place) == -ENOENT);
}

static void *opened(const char *name)
{
	void *handle = open_it(), *function;

	if (!handle)
		printf("%s\n", dlerror());
	CHECK(handle);
	function = dlsym(handle, name);
	CHECK(function);
	return function;
}

static void by_link(void)
{
	CUdeviceptr (*function)(size_t) = (CUdeviceptr(*)(size_t))opened("audit_by_link");

	driver_start(0);
	/* The heap is there before, so that what lies elsewhere is not taken for it. */
	MUST(cu.cuMemFree_v2(child_alloc(BYTES)));
	look_at(function(BYTES));
}

static void by_look_up(const char *name)
{
	CUdeviceptr (*function)(const char *, size_t) = (CUdeviceptr(*)(const char *, size_t))opened(name);

	driver_start(0);
	MUST(cu.cuMemFree_v2(child_alloc(BYTES)));
	look_at(function(path, BYTES));
}

static void by_dlsym(void)
{
	by_look_up("audit_by_dlsym");
}

static void by_proc(void)
{
	by_look_up("audit_by_proc");
}

static void each_library(void *(*how)(void), void (*what)(void), const char *driver)
{
	static const char *const libraries[] = {LAZY, NOW};

	open_it = how;
	path = driver;
	for (unsigned i = 0; i < 2; i++) {
		library = libraries[i];
		child_passes(((const char *const[]){CHILD_BUDGETS, NULL}), what);
	}
}

TEST(a_library_that_is_bound_to_what_it_links_first_is_seen)
{
	each_library(open_deep, by_link, NULL);
}

TEST(such_a_library_is_seen_when_it_looks_the_driver_up)
{
	each_library(open_deep, by_dlsym, "libcuda.so.1");
	each_library(open_deep, by_dlsym, driver_path);
	each_library(open_deep, by_proc, driver_path);
}

/* A second copy of the driver in the program's own namespace; dlsym is ours then, and does not know its addresses. */
TEST(a_driver_of_ones_own_by_its_path_is_not_used)
{
	each_library(open_plainly, by_dlsym, COPY);
	each_library(open_plainly, by_proc, COPY);
}

TEST(a_library_in_a_namespace_of_its_own_is_seen)
{
	each_library(open_apart, by_link, NULL);
	each_library(open_apart, by_dlsym, "libcuda.so.1");
	each_library(open_apart, by_proc, driver_path);
}

int main(void)
{
	Dl_info info;

	if (!dladdr((void *)sim_calls, &info))
		return 1;
	if (!realpath(info.dli_fname, driver_path))
		return 1;
	return test_run();
}
