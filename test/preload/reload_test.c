// SPDX-License-Identifier: Apache-2.0
/*
 * Libraries that are loaded, closed and loaded again: the driver, the runtime above it.
 */
#include "test/test.h"

#include <cuda.h>
#include <dlfcn.h>

static void use_driver(void *library)
{
	CUcontext context;
	CUdeviceptr block = 0;
	Dl_info info;

#define FIND(name) __typeof__(&name) f_##name = (__typeof__(f_##name))dlsym(library, #name)
	FIND(cuInit);
	FIND(cuDevicePrimaryCtxRetain);
	FIND(cuDevicePrimaryCtxRelease_v2);
	FIND(cuCtxSetCurrent);
	FIND(cuMemAlloc_v2);
	FIND(cuMemFree_v2);
	assert_true(dladdr((void *)f_cuMemAlloc_v2, &info));
	assert_non_null(strstr(info.dli_fname, "libspillway.so"));
	assert_int_equal(f_cuInit(0), CUDA_SUCCESS);
	assert_int_equal(f_cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	assert_int_equal(f_cuCtxSetCurrent(context), CUDA_SUCCESS);
	assert_int_equal(f_cuMemAlloc_v2(&block, 3 << 20), CUDA_SUCCESS);
	assert_int_equal(f_cuMemFree_v2(block), CUDA_SUCCESS);
	assert_int_equal(f_cuCtxSetCurrent(NULL), CUDA_SUCCESS);
	assert_int_equal(f_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
}

TEST(the_driver_may_be_closed_and_loaded_again)
{
	for (int i = 0; i < 5; i++) {
		void *library = dlopen("libcuda.so.1", RTLD_NOW | (i % 2 ? RTLD_LOCAL : RTLD_GLOBAL));

		assert_non_null(library);
		use_driver(library);
		assert_int_equal(dlclose(library), 0);
	}
}

/* A pointer that was handed out before the close still works afterwards: the driver is kept. */
TEST(what_was_handed_out_stays_callable)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	__typeof__(&cuMemAlloc_v2) alloc = (__typeof__(alloc))dlsym(library, "cuMemAlloc_v2");
	CUdeviceptr block = 0;

	assert_int_equal(dlclose(library), 0);
	assert_int_not_equal(alloc(&block, 100), CUDA_SUCCESS); /* no context any more */
	library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	assert_non_null(library);
	use_driver(library);
}

TEST(the_runtime_may_be_closed_and_loaded_again)
{
	for (int i = 0; i < 3; i++) {
		void *library = dlopen("libcudart.so.13", RTLD_NOW), *block = NULL;

		if (!library)
			skip();
		int (*alloc)(void **, size_t) = (int (*)(void **, size_t))dlsym(library, "cudaMalloc");
		int (*give)(void *) = (int (*)(void *))dlsym(library, "cudaFree");
		assert_int_equal(alloc(&block, 5 << 20), 0);
		assert_non_null(block);
		assert_int_equal(give(block), 0);
		assert_int_not_equal(give(block), 0);
		assert_int_equal(dlclose(library), 0);
	}
}
