// SPDX-License-Identifier: Apache-2.0
/*
 * Loading a driver whose constructor calls dlsym ends, and the driver works; a hang is ended by the test's time limit.
 */
#include "test/test.h"

#include <cuda.h>
#include <dlfcn.h>

TEST(a_driver_that_looks_itself_up_while_loading_does_not_hang)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	Dl_info info;

	if (!library)
		fail_msg("%s", dlerror());
	int (*found)(void) = (int (*)(void))dlsym(library, "eager_found");
	assert_int_equal(found(), 2);
	__typeof__(&cuInit) init = (__typeof__(init))dlsym(library, "cuInit");
	assert_int_equal(init(1), CUDA_ERROR_INVALID_VALUE);
	void *alloc = dlsym(library, "cuMemAlloc_v2");
	assert_true(dladdr(alloc, &info));
	assert_non_null(strstr(info.dli_fname, "libspillway.so"));
}

/* Without contexts, devices or VMM there is nothing to serve with: the driver itself answers. */
TEST(a_driver_that_lacks_nearly_everything_is_passed_through)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	__typeof__(&cuMemAlloc_v2) alloc = (__typeof__(alloc))dlsym(library, "cuMemAlloc_v2");
	CUdeviceptr block = 0;

	assert_int_equal(alloc(&block, 4096), CUDA_SUCCESS);
	assert_int_equal(block, 4096); /* what eager_driver.c answers */
	assert_null(dlsym(library, "cuMemFree_v2"));
}
