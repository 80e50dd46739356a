// SPDX-License-Identifier: Apache-2.0
/*
 * Every way in which a program gets hold of a driver function ends at ours for hooked rows, and nowhere else than
 * without us for everything else. The lists are the library's own, so a new row is tested by being there.
 */
#include "test/preload/driver.h"
#include "test/test.h"

#include <dlfcn.h>

/* clang-format off */
static const struct row {
	const char *name;
	void *linked;
} hooked[] = {
#define HOOK_NAME(name) {#name, (void *)name},
#include "shim/driver/hooks.def"
};
static const char *const others[] = {
#define USE_NAME(name) #name,
#define EXEMPT(name, reason) #name,
#include "shim/driver/hooks.def"
};
/* clang-format on */
#define N_HOOKED (sizeof(hooked) / sizeof(hooked[0]))
#define N_OTHERS (sizeof(others) / sizeof(others[0]))

static void *cuda, *spillway;
static void *native[N_HOOKED];

BEFORE_ALL
{
	Dl_info info;

	cuda = dlopen("libcuda.so.1", RTLD_NOW);
	assert_non_null(cuda);
	assert_true(dladdr((void *)cuMemAlloc_v2, &info));
	assert_non_null(strstr(info.dli_fname, "libspillway.so"));
	spillway = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	assert_non_null(spillway);
	for (size_t i = 0; i < N_HOOKED; i++)
		native[i] = driver_native(hooked[i].name);
}

/* The export of that name of libspillway.so, asked for past every hook. */
static void *ours(const char *name)
{
	return driver_dlsym()(spillway, name);
}

static void must_be_ours(const char *name, void *address, const char *door)
{
	Dl_info info;

	if (!address || address != ours(name))
		fail_msg("%s by %s is %p, not ours", name, door, address);
	assert_true(dladdr(address, &info));
	assert_non_null(strstr(info.dli_fname, "libspillway.so"));
}

TEST(every_row_linked_directly_is_ours)
{
	for (size_t i = 0; i < N_HOOKED; i++)
		must_be_ours(hooked[i].name, hooked[i].linked, "link");
}

TEST(every_row_by_dlsym_of_a_handle_is_ours)
{
	for (size_t i = 0; i < N_HOOKED; i++)
		must_be_ours(hooked[i].name, dlsym(cuda, hooked[i].name), "dlsym(handle)");
}

TEST(every_row_by_dlsym_of_the_whole_program_is_ours)
{
	void *program = dlopen(NULL, RTLD_NOW);

	for (size_t i = 0; i < N_HOOKED; i++) {
		must_be_ours(hooked[i].name, dlsym(RTLD_DEFAULT, hooked[i].name), "dlsym(RTLD_DEFAULT)");
		must_be_ours(hooked[i].name, dlsym(program, hooked[i].name), "dlsym(dlopen(NULL))");
	}
}

TEST(functions_without_a_row_are_the_drivers_own)
{
	for (size_t i = 0; i < N_OTHERS; i++) {
		void *own = driver_native(others[i]);

		if (dlsym(cuda, others[i]) != own || dlsym(RTLD_DEFAULT, others[i]) != own || ours(others[i]))
			fail_msg("%s is not the driver's own", others[i]);
	}
}

/* One that is not in the list. A variable is no function. */
TEST(a_function_of_a_newer_driver_has_a_body_that_calls_it)
{
	void *own = driver_native("cuBrandNew"), *address = dlsym(cuda, "cuBrandNew"), *asked = NULL;
	int (*body)(int, int);

	assert_true(own && address && address != own);
	assert_ptr_equal(dlsym(cuda, "cuBrandNew"), address);
	assert_int_equal(cuGetProcAddress_v2("cuBrandNew", &asked, 13000, 0, NULL), CUDA_SUCCESS);
	assert_ptr_equal(asked, address);
	memcpy(&body, &address, sizeof(body));
	assert_int_equal(body(9, 4), 5);
	assert_non_null(driver_native("cuBrandNewVariable"));
	assert_ptr_equal(dlsym(cuda, "cuBrandNewVariable"), driver_native("cuBrandNewVariable"));
}

/* ---- cuGetProcAddress ---- */

/* What must be handed out where the driver itself hands out this. */
static void *instead_of(void *address)
{
	for (size_t i = 0; i < N_HOOKED && address; i++)
		if (native[i] == address)
			return ours(hooked[i].name);
	return address;
}

struct answer {
	CUresult result;
	void *address;
	CUdriverProcAddressQueryResult status;
};

static const int versions[] = {10000, 11030, 11040, 11070, 12000, 12020, 12030, 12050, 12080, 13000};
static bool reached[N_HOOKED];

static void note_reached(void *address)
{
	for (size_t i = 0; i < N_HOOKED && address; i++)
		if (native[i] == address)
			reached[i] = true;
}

static void compare(const char *base, int version, cuuint64_t flags, struct answer without, struct answer with)
{
	note_reached(without.address);
	if (with.result != without.result || with.address != instead_of(without.address) ||
	    with.status != without.status)
		fail_msg("%s version %d flags %d: result %d %d, address %p %p, status %d %d", base, version, (int)flags,
			 without.result, with.result, without.address, with.address, without.status, with.status);
}

static void ask_both(const char *base, int version, cuuint64_t flags)
{
	__typeof__(&cuGetProcAddress_v2) five = (__typeof__(five))driver_native("cuGetProcAddress_v2");
	__typeof__(&cuGetProcAddress) four = (__typeof__(four))driver_native("cuGetProcAddress");
	struct answer with = {.address = &with, .status = 77}, without = {.address = &with, .status = 77};

	without.result = five(base, &without.address, version, flags, &without.status);
	with.result = cuGetProcAddress_v2(base, &with.address, version, flags, &with.status);
	compare(base, version, flags, without, with);
	with.result = cuGetProcAddress_v2(base, &with.address, version, flags, NULL);
	compare(base, version, flags, without, with);
	without.result = four(base, &without.address, version, flags);
	with.result = cuGetProcAddress(base, &with.address, version, flags);
	compare(base, version, flags, without, with);
}

static void ask_all(const char *name)
{
	char base[128];

	driver_base_name(name, base, sizeof(base));
	for (size_t v = 0; v < sizeof(versions) / sizeof(versions[0]); v++)
		for (cuuint64_t flags = 0; flags <= 2; flags++)
			ask_both(base, versions[v], flags);
}

static bool was_reached(const char *name)
{
	for (size_t i = 0; i < N_HOOKED; i++)
		if (!strcmp(hooked[i].name, name))
			return reached[i];
	return false;
}

TEST(every_address_of_get_proc_address_is_substituted_and_no_other)
{
	for (size_t i = 0; i < N_HOOKED; i++)
		ask_all(hooked[i].name);
	for (size_t i = 0; i < N_OTHERS; i++)
		ask_all(others[i]);
	ask_all("");
	ask_all("cuNoSuchFunction");
	ask_both("cuMemAlloc", 13000, 7);
	assert_true(was_reached("cuMemAlloc_v2"));
	assert_true(was_reached("cuMemAllocAsync_ptsz"));
	assert_true(was_reached("cuMemcpyHtoD_v2_ptds"));
	assert_true(was_reached("cuLaunchKernel_ptsz"));
	assert_true(was_reached("cuMemPrefetchAsync"));
	assert_true(was_reached("cuMemPrefetchAsync_v2"));
}

TEST(get_proc_address_of_itself_gives_the_abi_of_the_version)
{
	void *address;

	assert_int_equal(cuGetProcAddress_v2("cuGetProcAddress", &address, 11030, 0, NULL), CUDA_SUCCESS);
	must_be_ours("cuGetProcAddress", address, "version 11030");
	assert_int_equal(cuGetProcAddress_v2("cuGetProcAddress", &address, 12000, 0, NULL), CUDA_SUCCESS);
	must_be_ours("cuGetProcAddress_v2", address, "version 12000");
	assert_int_equal(cuGetProcAddress("cuGetProcAddress", &address, 11030, 0), CUDA_SUCCESS);
	must_be_ours("cuGetProcAddress", address, "four arguments");
}

TEST(get_proc_address_takes_null_as_the_driver_does)
{
	__typeof__(&cuGetProcAddress_v2) five = (__typeof__(five))driver_native("cuGetProcAddress_v2");
	CUdriverProcAddressQueryResult status;
	void *address;

	assert_int_equal(cuGetProcAddress_v2(NULL, &address, 12000, 0, &status),
			 five(NULL, &address, 12000, 0, &status));
	assert_int_equal(cuGetProcAddress_v2("cuMemAlloc", NULL, 12000, 0, &status),
			 five("cuMemAlloc", NULL, 12000, 0, &status));
	assert_int_equal(cuGetProcAddress("cuMemAlloc", NULL, 11030, 0), five("cuMemAlloc", NULL, 12000, 0, NULL));
}

/* ---- calls ---- */

/* The open door leads to the heap: cuMemAlloc never reaches the driver, and what comes back is cuMemMap's. */
TEST(a_call_through_each_door_is_served)
{
	static const char *const doors[] = {"link", "handle", "default", "proc", "proc_v2"};

	driver_start(0);
	unsigned long before = sim_calls("cuMemAlloc_v2");
	for (size_t i = 0; i < sizeof(doors) / sizeof(doors[0]); i++) {
		CUdeviceptr block = 0;

		setenv("DRIVER_DOOR", doors[i], 1);
		driver_open();
		assert_int_equal(cu.cuMemAlloc_v2(&block, 5 * MIB), CUDA_SUCCESS);
		assert_true(driver_is_heap(block));
		assert_int_equal(cu.cuMemFree_v2(block), CUDA_SUCCESS);
	}
	unsetenv("DRIVER_DOOR");
	assert_int_equal(sim_calls("cuMemAlloc_v2"), before);
}

/* ---- names that are not the driver's ---- */

TEST(names_that_only_begin_like_the_drivers_are_untouched)
{
	static const char *const names[] = {"cudnnCreate", "cublasCreate_v2", "curl_easy_init",
					    "cudaMalloc",  "cuMemAlloc_v2",   "cuSomethingElse"};
	void *strangers = dlopen(STRANGERS, RTLD_NOW | RTLD_LOCAL);

	assert_non_null(strangers);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *own = driver_dlsym()(strangers, names[i]);

		assert_non_null(own);
		assert_ptr_equal(dlsym(strangers, names[i]), own);
	}
	dlclose(strangers);
}

TEST(a_name_nobody_has_is_null_with_the_same_dlerror)
{
	static const char *const names[] = {
	    "cuNoSuchFunction", "cudnnNoSuchFunction", "no_such_function", "", "c", "cu"};
	void *const handles[] = {cuda, RTLD_DEFAULT};
	char with[512];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		for (size_t h = 0; h < 2; h++) {
			assert_null(dlsym(handles[h], names[i]));
			snprintf(with, sizeof(with), "%s", dlerror());
			assert_null(dlerror());
			assert_null(driver_dlsym()(handles[h], names[i]));
			assert_string_equal(with, dlerror());
		}
	}
}
