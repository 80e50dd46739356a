// SPDX-License-Identifier: Apache-2.0
/*
 * A program without any libcuda, and one that loads it late and for itself alone.
 */
#include "test/test.h"

#include <cuda.h>
#include <dlfcn.h>

typedef void *dlsym_function(void *handle, const char *name);

static dlsym_function *c_dlsym(void)
{
	return (dlsym_function *)dlvsym(dlopen("libc.so.6", RTLD_NOW), "dlsym", "GLIBC_2.34");
}

/* Our own export must not pass for a driver that is not there. */
TEST(without_a_driver_dlsym_finds_nothing_and_says_so)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	assert_null(library);
	dlerror();
	assert_null(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
	assert_non_null(dlerror());
	assert_null(dlsym(RTLD_DEFAULT, "cuInit"));
	assert_non_null(dlerror());
	assert_null(dlsym(dlopen(NULL, RTLD_NOW), "cuGetProcAddress_v2"));
	assert_non_null(dlerror());
}

TEST(without_a_driver_a_late_linked_call_answers_not_found)
{
	dlsym_function *find = c_dlsym();
	CUdeviceptr block = 1;

	if (!find)
		skip();
	/* What lazy binding would give a program that calls before it loads: our export. */
	__typeof__(&cuMemAlloc_v2) alloc = (__typeof__(alloc))find(RTLD_DEFAULT, "cuMemAlloc_v2");
	assert_non_null(alloc);
	assert_int_equal(alloc(&block, 4096), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(block, 1);
}

static void *look_up(void *argument)
{
	static const char *const names[] = {"cuMemAlloc_v2", "cuInit", "malloc", "cudnnCreate", "cuNoSuchFunction"};
	pthread_barrier_t *start = argument;

	pthread_barrier_wait(start);
	for (int i = 0; i < 2000; i++)
		dlsym(RTLD_DEFAULT, names[i % 5]);
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	return library ? dlsym(library, "cuMemAlloc_v2") : NULL;
}

/* Binding happens inside one of these calls while others load the driver. */
TEST(many_threads_may_look_up_while_the_driver_is_loaded)
{
	pthread_t threads[8];
	pthread_barrier_t start;
	void *first = NULL;

	pthread_barrier_init(&start, NULL, 8);
	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, look_up, &start), 0);
	for (int i = 0; i < 8; i++) {
		void *found;

		pthread_join(threads[i], &found);
		assert_non_null(found);
		assert_true(!first || found == first);
		first = found;
	}
	Dl_info info;
	assert_true(dladdr(first, &info));
	assert_non_null(strstr(info.dli_fname, "libspillway.so"));
	pthread_barrier_destroy(&start);
}

/* Loaded for itself alone (RTLD_LOCAL), as the CUDA runtime does it: served all the same. */
TEST(a_driver_loaded_late_is_served)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	CUdeviceptr block;
	CUcontext context;

	assert_non_null(library);
#define FIND(name) __typeof__(&name) f_##name = (__typeof__(f_##name))dlsym(library, #name)
	FIND(cuInit);
	FIND(cuDevicePrimaryCtxRetain);
	FIND(cuCtxSetCurrent);
	FIND(cuMemAlloc_v2);
	FIND(cuMemFree_v2);
	FIND(cuMemRetainAllocationHandle);
	assert_int_equal(f_cuInit(0), 0);
	assert_int_equal(f_cuDevicePrimaryCtxRetain(&context, 0), 0);
	assert_int_equal(f_cuCtxSetCurrent(context), 0);
	errno = 4711;
	assert_int_equal(f_cuMemAlloc_v2(&block, 4096), 0);
	assert_int_equal(errno, 4711);
	/* A heap block gives no handle away, as cuMemAlloc memory does not. */
	CUmemGenericAllocationHandle handle;
	assert_int_equal(f_cuMemRetainAllocationHandle(&handle, (void *)block), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(f_cuMemFree_v2(block), 0);
}
