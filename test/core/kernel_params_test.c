// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_params_test.c: launches on the simulated driver: which words of which parameters are named, how layouts are
 * remembered, and that they are forgotten in time. Unloading goes through our own entry points.
 */
#include "operands_fake.h"

#include "shim/submit/arguments.h"
#include "shim/submit/submit_body.h"
#include "test/sim/sim.h"

#define ok(call) assert_int_equal((call), CUDA_SUCCESS)
#define S        ((CUstream)0x5000)
#define A        ((CUdeviceptr)0x7f0000000000)

static void nothing(const struct sim_launch *launch, void **args) {}

/*
 * mixed: a pointer, two small ones, a structure with pointers in it, one of 12 bytes (packed), one of 20 at an odd
 * place.
 */
static const size_t mixed_bytes[] = {8, 4, 1, 32, 12, 4, 20};
static const size_t list_bytes[] = {4096 - 8};
static size_t many_bytes[512], ragged_bytes[80];
static const struct sim_kernel kernels[] = {
    {"none", nothing, 0, NULL},         {"mixed", nothing, 7, mixed_bytes},    {"list", nothing, 1, list_bytes},
    {"many", nothing, 512, many_bytes}, {"ragged", nothing, 80, ragged_bytes},
};
static const struct sim_module image = {SIM_MODULE_MAGIC, 5, kernels};
static CUmodule module;
static CUlibrary library;

BEFORE_ALL
{
	CUdevice device;
	CUcontext context;

	for (unsigned i = 0; i < 512; i++)
		many_bytes[i] = 8;
	for (unsigned i = 0; i < 80; i++)
		ragged_bytes[i] = i % 2 ? 4 : 8;
	ok(cuInit(0));
	ok(cuDeviceGet(&device, 0));
	ok(cuDevicePrimaryCtxRetain(&context, device));
	ok(cuCtxSetCurrent(context));
	ok(cuModuleLoadData(&module, &image));
	ok(cuLibraryLoadData(&library, &image, NULL, NULL, 0, NULL, NULL, 0));
}

static CUfunction function(const char *name)
{
	CUfunction found;

	ok(cuModuleGetFunction(&found, module, name));
	return found;
}

static CUfunction kernel(const char *name)
{
	CUkernel found;

	ok(cuLibraryGetKernel(&found, library, name));
	return (CUfunction)found;
}

static void launch(CUfunction of, void **params, void **extra)
{
	fake_forget();
	operands_cuLaunchKernel(NULL, of, 1, 1, 1, 1, 1, 1, 0, S, params, extra);
	assert_ptr_equal(seen.stream, S);
	assert_int_equal(seen.function, (uintptr_t)of);
}

static unsigned long questions(void)
{
	return sim_calls("cuFuncGetParamInfo") + sim_calls("cuKernelGetParamInfo");
}

/* ---- which words ---- */

struct mixed {
	CUdeviceptr pointer;
	uint32_t small;
	unsigned char smaller;
	CUdeviceptr inside[4];
	unsigned char packed[12];
	uint32_t between;
	unsigned char odd[20];
	void *params[7];
};

/*
 * The packed ones have a lower half that is only a tag as the upper half of an address, so that nothing else is named.
 */
static void fill_mixed(struct mixed *m)
{
	CUdeviceptr packed = A + 0xfe000000, odd = A + 0xfc000000;

	memset(m, 0, sizeof(*m));
	m->pointer = A;
	m->small = m->between = 0x7f7f7f7f;
	m->smaller = 0x7f;
	m->inside[1] = A + 0x1000;
	m->inside[2] = 77; /* no address */
	m->inside[3] = A + 0x3000;
	memcpy(m->packed + 4, &packed, 8);
	memcpy(m->odd + 12, &odd, 8);
	memcpy(m->params, (void *[]){&m->pointer, &m->small, &m->smaller, m->inside, m->packed, &m->between, m->odd},
	       sizeof(m->params));
}

static const struct fake_name mixed_names[] = {
    {A, 0}, {A + 0x1000, 0}, {A + 0x3000, 0}, {A + 0xfe000000, 0}, {A + 0xfc000000, 0}};

TEST(words_of_pointers_structures_and_packed_ones_are_named)
{
	struct mixed m;

	fill_mixed(&m);
	for (int i = 0; i < 3; i++) {
		launch(function("mixed"), m.params, NULL);
		fake_expect("mixed", mixed_names, 5);
	}
	assert_int_equal(seen.n_unknown, 0);
}

TEST(a_kernel_of_a_library_is_as_good_as_a_function)
{
	struct mixed m;
	CUfunction of_kernel;
	size_t offset, bytes;

	fill_mixed(&m);
	assert_int_equal(cuFuncGetParamInfo(kernel("mixed"), 0, &offset, &bytes), CUDA_ERROR_INVALID_HANDLE);
	launch(kernel("mixed"), m.params, NULL);
	fake_expect("mixed, a CUkernel", mixed_names, 5);
	ok(cuKernelGetFunction(&of_kernel, (CUkernel)kernel("mixed")));
	launch(of_kernel, m.params, NULL);
	fake_expect("mixed, the CUfunction of a CUkernel", mixed_names, 5);
	assert_int_equal(seen.n_unknown, 0);
}

/* No address has the bits from 57 on. */
TEST(a_pointer_with_a_tag_above_it_is_named_without)
{
	CUdeviceptr words[4] = {A | UINT64_C(1) << 57, (A + 0x1000) | UINT64_C(1) << 60, UINT64_C(1) << 63,
				(A + 0x2000) | UINT64_C(0x7f) << 57};
	const struct fake_name names[] = {{A, 0}, {A + 0x1000, 0}, {A + 0x2000, 0}};
	struct mixed m;

	fill_mixed(&m);
	m.pointer = 0;
	memcpy(m.inside, words, sizeof(words));
	memset(m.packed, 0, sizeof(m.packed));
	memset(m.odd, 0, sizeof(m.odd));
	launch(function("mixed"), m.params, NULL);
	fake_expect("mixed, tagged", names, 3);
}

TEST(four_kibibytes_of_pointers_are_all_named)
{
	CUdeviceptr word[512];
	void *params[512], *list[1] = {word};

	for (unsigned i = 0; i < 512; i++) {
		word[i] = A + i * 0x1000;
		params[i] = &word[i];
	}
	launch(function("many"), params, NULL);
	assert_int_equal(seen.n, 512);
	for (unsigned i = 0; i < 512; i++)
		assert_int_equal(seen.name[i].address, word[i]);
	launch(function("list"), list, NULL);
	assert_int_equal(seen.n, 511);
	assert_int_equal(seen.name[510].address, word[510]);
}

/* More runs than a slot holds. */
TEST(ragged_layouts_are_asked_for_at_every_launch)
{
	CUdeviceptr word[80];
	void *params[80];

	for (unsigned i = 0; i < 80; i++) {
		word[i] = A + i * 0x1000;
		params[i] = &word[i];
	}
	for (int round = 0; round < 2; round++) {
		launch(function("ragged"), params, NULL);
		assert_int_equal(seen.n, 40);
		for (unsigned i = 0; i < 40; i++)
			assert_int_equal(seen.name[i].address, word[2 * i]);
		assert_int_equal(seen.n_unknown, 0);
	}
}

TEST(kernels_without_parameters_name_nothing)
{
	void *params[1] = {NULL};

	launch(function("none"), NULL, NULL);
	assert_int_equal(seen.n + seen.n_unknown, 0);
	launch(function("none"), params, NULL);
	assert_int_equal(seen.n + seen.n_unknown, 0);
}

TEST(missing_parameters_are_the_drivers_error)
{
	struct mixed m;

	fill_mixed(&m);
	launch(function("mixed"), NULL, NULL);
	assert_int_equal(seen.n, 0);
	m.params[3] = NULL;
	launch(function("mixed"), m.params, NULL);
	assert_int_equal(seen.n, 3);
	launch(NULL, m.params, NULL);
	assert_int_equal(seen.n, 0);
}

/* ---- extra ---- */

TEST(a_buffer_of_parameters_is_searched)
{
	CUdeviceptr buffer[6] = {A, 5, A + 0x1000, 0, A + 0x2000, A + 0x3000};
	size_t bytes = 5 * 8 + 4; /* the last one is cut */
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
			 CU_LAUNCH_PARAM_END};
	void *turned[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_BUFFER_POINTER, buffer,
			  CU_LAUNCH_PARAM_END};
	const struct fake_name names[] = {{A, 0}, {A + 0x1000, 0}, {A + 0x2000, 0}};

	launch(function("mixed"), NULL, extra);
	fake_expect("a buffer", names, 3);
	launch(function("mixed"), NULL, turned);
	fake_expect("size first", names, 3);
	assert_int_equal(seen.n_unknown, 0);
	fake_forget();
	CUlaunchConfig config = {.hStream = S};
	operands_cuLaunchKernelEx(NULL, &config, function("mixed"), NULL, extra);
	fake_expect("cuLaunchKernelEx", names, 3);
}

TEST(broken_extra_lists_do_not_crash)
{
	CUdeviceptr buffer[2] = {A, A};
	size_t bytes = (size_t)1 << 40;
	void *none[] = {CU_LAUNCH_PARAM_END};
	void *huge[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
			CU_LAUNCH_PARAM_END};
	void *half[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_END};
	void *nulls[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, NULL, CU_LAUNCH_PARAM_BUFFER_SIZE, NULL, CU_LAUNCH_PARAM_END};
	void *strange[] = {(void *)9, buffer, CU_LAUNCH_PARAM_END};
	struct mixed m;

	launch(function("mixed"), NULL, none);
	launch(function("mixed"), NULL, huge);
	assert_int_equal(seen.n, 0);
	launch(function("mixed"), NULL, half);
	assert_int_equal(seen.n, 0);
	launch(function("mixed"), NULL, nulls);
	assert_int_equal(seen.n + seen.n_unknown, 0);
	launch(function("mixed"), NULL, strange);
	assert_int_equal(seen.n_unknown, 1);
	/* The driver takes an empty list beside parameters. */
	fill_mixed(&m);
	launch(function("mixed"), m.params, none);
	fake_expect("an empty list", mixed_names, 5);
}

/* ---- remembering and forgetting ---- */

TEST(a_layout_is_asked_for_once)
{
	struct mixed m;

	fill_mixed(&m);
	launch(function("mixed"), m.params, NULL);
	unsigned long before = questions();
	for (int i = 0; i < 100; i++)
		launch(function("mixed"), m.params, NULL);
	assert_int_equal(questions(), before);
	kernel_params_drop();
	launch(function("mixed"), m.params, NULL);
	assert_int_equal(questions(), before + 8); /* seven, and that there is no eighth */
}

TEST(unloading_forgets)
{
	struct mixed m;
	CUmodule other;
	CUlibrary another;

	fill_mixed(&m);
	ok(cuModuleLoadData(&other, &image));
	ok(cuLibraryLoadData(&another, &image, NULL, NULL, 0, NULL, NULL, 0));
	launch(function("mixed"), m.params, NULL);
	unsigned long before = questions();
	ok(cuModuleUnload(other));
	launch(function("mixed"), m.params, NULL);
	assert_int_equal(questions(), before + 8);
	ok(cuLibraryUnload(another));
	launch(function("mixed"), m.params, NULL);
	assert_int_equal(questions(), before + 16);
	/* The driver's answer is what the program gets. */
	assert_int_equal(cuModuleUnload(other), CUDA_ERROR_INVALID_HANDLE);
}

TEST(a_function_that_is_gone_is_unknown)
{
	struct mixed m;
	CUmodule other;
	CUfunction gone;

	fill_mixed(&m);
	ok(cuModuleLoadData(&other, &image));
	ok(cuModuleGetFunction(&gone, other, "mixed"));
	launch(gone, m.params, NULL);
	ok(cuModuleUnload(other));
	launch(gone, m.params, NULL);
	assert_int_equal(seen.n, 0);
	assert_int_equal(seen.n_unknown, 1);
}

static bool is_called(CUfunction of, const char *expected)
{
	char name[KERNEL_PARAMS_NAME];

	return kernel_params_name((uintptr_t)of, name) && !strcmp(name, expected);
}

TEST(the_name_is_kept_when_the_function_is_gone)
{
	CUdeviceptr buffer[1] = {A};
	size_t bytes = 8;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
			 CU_LAUNCH_PARAM_END};
	char name[KERNEL_PARAMS_NAME];
	struct mixed m;
	CUmodule other;
	CUfunction gone;

	fill_mixed(&m);
	assert_false(kernel_params_name(12345, name));
	launch(kernel("mixed"), m.params, NULL);
	assert_true(is_called(kernel("mixed"), "mixed"));
	ok(cuModuleLoadData(&other, &image));
	ok(cuModuleGetFunction(&gone, other, "mixed"));
	assert_false(kernel_params_name((uintptr_t)gone, name));
	launch(gone, m.params, NULL);
	unsigned long before = sim_calls("cuFuncGetName");
	for (int i = 0; i < 10; i++)
		launch(gone, m.params, NULL);
	assert_int_equal(sim_calls("cuFuncGetName"), before);
	ok(cuModuleUnload(other));
	assert_true(is_called(gone, "mixed"));
	/* Parameters in one buffer need no layout; the name is kept all the same. */
	launch(function("none"), NULL, extra);
	assert_true(is_called(function("none"), "none"));
}

static CUresult answer = CUDA_ERROR_NOT_FOUND;

static CUresult CUDAAPI refuse(CUfunction of, size_t index, size_t *ret_offset, size_t *ret_bytes)
{
	return answer;
}

TEST(without_an_answer_it_is_unknown_and_asked_again)
{
	__typeof__(real.cuFuncGetParamInfo) own = REAL(cuFuncGetParamInfo);
	struct mixed m;

	fill_mixed(&m);
	kernel_params_drop();
	real.cuFuncGetParamInfo = refuse;
	launch(function("mixed"), m.params, NULL); /* one line in the log, not two */
	assert_int_equal(seen.n_unknown, 1);
	launch(function("mixed"), m.params, NULL);
	assert_int_equal(seen.n_unknown, 1);
	answer = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	launch(function("mixed"), m.params, NULL);
	assert_int_equal(seen.n_unknown, 1);
	real.cuFuncGetParamInfo = own;
	launch(function("mixed"), m.params, NULL);
	fake_expect("known again", mixed_names, 5);
}

/* ---- many functions, many threads ---- */

/*
 * A driver of 3 * 4096 functions, handles 1 MiB apart, whose layout is known from handle and generation: 1 + that many
 * pointers. Handles change their meaning with each generation, as they do when modules come and go.
 */
#define FUNCTIONS (3u * 4096)
static atomic_uint meaning;

static unsigned params_of(CUfunction of)
{
	return 1 + (unsigned)(((uintptr_t)of >> 20) + 7 * atomic_load(&meaning)) % 20;
}

static CUresult CUDAAPI invented(CUfunction of, size_t index, size_t *ret_offset, size_t *ret_bytes)
{
	if (index >= params_of(of))
		return CUDA_ERROR_INVALID_VALUE;
	*ret_offset = 8 * index;
	*ret_bytes = 8;
	return CUDA_SUCCESS;
}

static pthread_rwlock_t unloading = PTHREAD_RWLOCK_INITIALIZER;
static atomic_uint n_wrong;

/* Launches may overlap, also with the unloading of others; what is unloaded is not launched meanwhile: the lock. */
static void *launch_all(void *argument)
{
	CUdeviceptr word[20];
	void *params[20];
	uint64_t seed = (uintptr_t)argument;

	for (unsigned i = 0; i < 20; i++) {
		word[i] = A + i;
		params[i] = &word[i];
	}
	for (unsigned i = 0; i < 60000; i++) {
		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
		uint64_t pick = seed >> 40;
		CUfunction of = (CUfunction)((1 + (i % 2 ? pick % FUNCTIONS : pick % 100)) << 20);

		pthread_rwlock_rdlock(&unloading);
		fake_forget();
		operands_cuLaunchKernel(NULL, of, 1, 1, 1, 1, 1, 1, 0, S, params, NULL);
		if (seen.n != params_of(of))
			atomic_fetch_add(&n_wrong, 1);
		pthread_rwlock_unlock(&unloading);
	}
	return NULL;
}

/* Their handles are made up, so the driver cannot be asked for their names. */
static CUresult CUDAAPI no_symbols(const char *symbol, void **ret_address, int version, cuuint64_t flags,
				   CUdriverProcAddressQueryResult *ret_status)
{
	return CUDA_ERROR_NOT_FOUND;
}

TEST(many_threads_and_functions_get_the_right_layouts)
{
	__typeof__(real.cuFuncGetParamInfo) own = REAL(cuFuncGetParamInfo);
	pthread_t threads[4];

	kernel_params_drop();
	__typeof__(real.cuGetProcAddress_v2) own_symbols = REAL(cuGetProcAddress_v2);
	real.cuGetProcAddress_v2 = no_symbols;
	real.cuFuncGetParamInfo = invented;
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, launch_all, (void *)(i + 1));
	for (int i = 0; i < 200; i++) {
		kernel_params_drop();
		pthread_rwlock_wrlock(&unloading);
		atomic_fetch_add(&meaning, 1);
		kernel_params_drop();
		pthread_rwlock_unlock(&unloading);
		sched_yield();
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	real.cuFuncGetParamInfo = own;
	real.cuGetProcAddress_v2 = own_symbols;
	kernel_params_drop();
	assert_int_equal(n_wrong, 0);
}
