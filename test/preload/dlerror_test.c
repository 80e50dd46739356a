// SPDX-License-Identifier: Apache-2.0
/*
 * What dlerror() says after dlsym: of a search that found something, nothing; of one that did not, the C library's own
 * words. Started with the simulated driver, with one that lacks nearly everything (small_driver.c), and with none.
 */
#include "test/test.h"

#include <cuda.h>
#include <dlfcn.h>

/* First in this program: the search that makes the library look at the driver. */
TEST(a_name_of_another_library_is_found_without_an_error)
{
	void *library = dlopen(STRANGERS, RTLD_NOW | RTLD_LOCAL);

	assert_non_null(library);
	dlerror();
	/* It begins like a driver's name. */
	assert_non_null(dlsym(library, "cuSomethingElse"));
	assert_null(dlerror());
	assert_non_null(dlsym(library, "cuMemAlloc_v2"));
	assert_null(dlerror());
	assert_non_null(dlsym(RTLD_DEFAULT, "malloc"));
	assert_null(dlerror());
}

TEST(a_drivers_name_is_found_without_an_error)
{
	static const char *const names[] = {"cuMemAlloc_v2", "cuInit", "cuMemAlloc_v2"};
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	if (!library)
		skip();
	dlerror();
	for (int i = 0; i < 3; i++) {
		assert_non_null(dlsym(library, names[i]));
		assert_null(dlerror());
		assert_non_null(dlsym(RTLD_DEFAULT, names[i]));
		assert_null(dlerror());
	}
	/* The first call fills our table, if nothing has yet. */
	__typeof__(&cuInit) init = (__typeof__(init))dlsym(library, "cuInit");
	assert_int_equal(init(0), CUDA_SUCCESS);
	assert_null(dlerror());
}

TEST(a_name_that_is_nowhere_is_an_error)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	dlerror();
	assert_null(dlsym(library ? library : RTLD_DEFAULT, "cuNoSuchFunction"));
	const char *said = dlerror();
	assert_non_null(said);
	assert_non_null(strstr(said, "cuNoSuchFunction"));
	assert_null(dlerror());
}
