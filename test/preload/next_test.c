// SPDX-License-Identifier: Apache-2.0
/*
 * RTLD_NEXT through our dlsym: started as LD_PRELOAD=before:libspillway.so:behind, where before and behind are chain.c.
 * Each must find the one after itself, or the program would call itself for ever.
 */
#include "test/preload/driver.h"
#include "test/test.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/auxv.h>

typedef void *next_function(const char *name);

static next_function *before_next, *behind_next;
static atomic_uint *before_calls, *behind_calls;

BEFORE_ALL
{
	before_next = (next_function *)dlsym(RTLD_DEFAULT, "before_next");
	behind_next = (next_function *)dlsym(RTLD_DEFAULT, "behind_next");
	before_calls = (atomic_uint *)dlsym(RTLD_DEFAULT, "before_calls");
	behind_calls = (atomic_uint *)dlsym(RTLD_DEFAULT, "behind_calls");
	assert_non_null(before_next);
	assert_non_null(behind_next);
	driver_start(0);
}

static const char *library_of(void *address)
{
	static Dl_info info;

	assert_non_null(address);
	assert_true(dladdr(address, &info));
	return strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1 : info.dli_fname;
}

TEST(an_application_gets_what_is_after_itself)
{
	dlsym_function *c_dlsym = driver_dlsym();

	void *own = dlsym(RTLD_NEXT, "malloc");
	assert_ptr_equal(own, c_dlsym(RTLD_NEXT, "malloc"));
	void *alloc = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
	assert_string_equal(library_of(alloc), "libchain_before.so");
	assert_null(dlsym(RTLD_NEXT, "main"));
}

TEST(an_interposer_before_us_gets_ours)
{
	assert_string_equal(library_of(before_next("cuMemAlloc_v2")), "libspillway.so");
	assert_string_equal(library_of(before_next("getauxval")), "libchain_behind.so");
	assert_ptr_equal(before_next("cuCtxGetDevice"), driver_native("cuCtxGetDevice"));
}

TEST(an_interposer_behind_us_gets_the_drivers_own)
{
	assert_ptr_equal(behind_next("cuMemAlloc_v2"), driver_native("cuMemAlloc_v2"));
	assert_memory_equal(library_of(behind_next("getauxval")), "libc.so", 7);
	assert_null(behind_next("behind_calls"));
}

TEST(a_linked_call_goes_down_the_chain_once)
{
	unsigned before = atomic_load(before_calls), behind = atomic_load(behind_calls);
	CUdeviceptr block;

	assert_int_equal(cuMemAlloc_v2(&block, 3 * MIB), CUDA_SUCCESS);
	assert_true(driver_is_heap(block));
	assert_int_equal(atomic_load(before_calls) - before, 1);
	/* We call the driver itself, not whoever stands behind us. */
	assert_int_equal(atomic_load(behind_calls), behind);
	assert_int_equal(cuMemFree_v2(block), CUDA_SUCCESS);
	before = atomic_load(before_calls);
	behind = atomic_load(behind_calls);
	assert_int_equal(getauxval(AT_PAGESZ), getpagesize());
	assert_int_equal(atomic_load(before_calls) - before, 1);
	assert_int_equal(atomic_load(behind_calls) - behind, 1);
}

static void *ask_often(void *argument)
{
	for (int i = 0; i < 2000; i++) {
		if (dlsym(RTLD_NEXT, "cuMemAlloc_v2") != argument || !dlsym(RTLD_NEXT, "malloc") ||
		    !dlsym(RTLD_DEFAULT, "cuLaunchKernel"))
			return argument;
	}
	return NULL;
}

TEST(many_threads_may_ask_at_once)
{
	void *expected = dlsym(RTLD_NEXT, "cuMemAlloc_v2"), *failed;
	pthread_t threads[8];

	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask_often, expected), 0);
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
}
