/*
 * The table of the driver's real functions and how it is bound. The members of struct real are all function pointers,
 * so the struct is also an array of addresses in the order of enum hook_id. real_bind() looks up every name in the
 * loaded libcuda.so.1 and stores the addresses that it finds. An address is looked up by a linear search of that
 * array (about 350 words). This happens a few hundred times at start-up and never on a hot path; a hash table would
 * need a lock and is not worth it.
 */
#include "shim/driver/real.h"
#include "shim/base/libc.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

/* clang-format off */
#define LAZY(name, params, args)                                                                                       \
	static CUresult CUDAAPI lazy_##name params                                                                     \
	{                                                                                                              \
		if (!real_bind() || REAL(name) == lazy_##name)                                                         \
			return CUDA_ERROR_NOT_FOUND;                                                                   \
		return REAL(name) args;                                                                                \
	}
#define HOOK     LAZY
#define HOOK_USE LAZY
#include "shim/driver/hooks.def"

struct real real = {
#define HOOK_NAME(name) .name = lazy_##name,
#define USE_NAME(name)  .name = lazy_##name,
#include "shim/driver/hooks.def"
};

static const struct row {
	const char *name;
	void *lazy;
} rows[] = {
#define HOOK_NAME(name) {#name, (void *)lazy_##name},
#define USE_NAME(name)  {#name, (void *)lazy_##name},
#include "shim/driver/hooks.def"
};

static const char *const exempt_names[] = {
#define EXEMPT(name, reason) #name,
#include "shim/driver/hooks.def"
};
#define EXEMPT_COUNT (sizeof(exempt_names) / sizeof(exempt_names[0]))
/* clang-format on */

_Static_assert(sizeof(struct real) == REAL_COUNT * sizeof(void *), "struct real is an array of addresses");
_Static_assert(sizeof(rows) / sizeof(rows[0]) == REAL_COUNT, "one row for each slot");

/* Has no lock: each field is only ever written with the same value, by atomic stores. */
static struct {
	_Atomic(real_dlsym_function *) c_dlsym; /* what real_dlsym() has found */
	atomic_bool bound;                      /* all addresses have been looked up; released after them */
	void *exempt_address[EXEMPT_COUNT]; /* of the exempt functions, in the order of hooks.def; NULL: not there */
} binding;

static void **real_slot(unsigned id)
{
	return (void **)&real + id;
}

static void *slot_load(unsigned id)
{
	return __atomic_load_n(real_slot(id), __ATOMIC_RELAXED);
}

/*
 * Not instrumented, like dlsym.c: a sanitizer's runtime looks up the functions that it intercepts before it is ready
 * for checks.
 */
__attribute__((no_sanitize("address", "thread", "undefined"))) real_dlsym_function *real_dlsym(void)
{
	/*
	 * All versions under which the C library has exported dlsym, newest first; the second is the first of
	 * aarch64.
	 */
	static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
	real_dlsym_function *function = atomic_load_explicit(&binding.c_dlsym, memory_order_relaxed);

	for (unsigned i = 0; i < sizeof(versions) / sizeof(versions[0]) && !function; i++)
		function = (real_dlsym_function *)libc_dlvsym_next("dlsym", versions[i]);
	if (!function)
		function = (real_dlsym_function *)libc_find("dlsym");
	atomic_store_explicit(&binding.c_dlsym, function, memory_order_relaxed);
	return function;
}

bool real_bind(void)
{
	if (atomic_load_explicit(&binding.bound, memory_order_acquire))
		return true;
	void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	real_dlsym_function *c_dlsym = real_dlsym();
	if (!library || !c_dlsym) {
		dlerror();
		return false;
	}
	for (unsigned id = 0; id < REAL_COUNT; id++) {
		void *address = c_dlsym(library, rows[id].name);
		if (address)
			__atomic_store_n(real_slot(id), address, __ATOMIC_RELAXED);
	}
	for (unsigned i = 0; i < EXEMPT_COUNT; i++)
		__atomic_store_n(&binding.exempt_address[i], c_dlsym(library, exempt_names[i]), __ATOMIC_RELAXED);
	/* Clears the error of a name that this driver lacks, so that the program does not find it. */
	dlerror();
	atomic_store_explicit(&binding.bound, true, memory_order_release);
	return true;
}

const char *real_error_name(CUresult result)
{
	const char *name = NULL;

	return REAL(cuGetErrorName)(result, &name) == CUDA_SUCCESS && name ? name : "an unknown CUDA error";
}

bool real_has(enum hook_id id)
{
	return real_bind() && slot_load(id) != rows[id].lazy;
}

void *real_address(enum hook_id id)
{
	return real_has(id) ? slot_load(id) : NULL;
}

int real_find(const void *address)
{
	for (unsigned id = 0; id < HOOK_COUNT; id++)
		if (slot_load(id) == address)
			return (int)id;
	return -1;
}

bool real_is_exempt(const void *address)
{
	for (unsigned id = HOOK_COUNT; id < REAL_COUNT; id++)
		if (slot_load(id) == address)
			return true;
	for (unsigned i = 0; i < EXEMPT_COUNT; i++)
		if (__atomic_load_n(&binding.exempt_address[i], __ATOMIC_RELAXED) == address)
			return true;
	return false;
}

bool real_in_driver(const void *address)
{
	Dl_info asked, driver;
	bool known = false;

	for (unsigned id = 0; id < REAL_COUNT && !known; id++)
		known = slot_load(id) != rows[id].lazy && dladdr(slot_load(id), &driver);
	return known && dladdr(address, &asked) && asked.dli_fbase == driver.dli_fbase;
}

bool real_is_hooked(const char *name)
{
	for (unsigned id = 0; id < HOOK_COUNT; id++)
		if (!strcmp(rows[id].name, name))
			return true;
	return false;
}

const char *real_name(int id)
{
	return id >= 0 && id < REAL_COUNT ? rows[id].name : "?";
}

bool real_knows_name(const char *name)
{
	size_t length = strlen(name);

	for (unsigned id = 0; id < HOOK_COUNT; id++)
		if (!strncmp(rows[id].name, name, length) &&
		    (!rows[id].name[length] || !strncmp(rows[id].name + length, "_v", 2) ||
		     !strncmp(rows[id].name + length, "_pt", 3)))
			return true;
	return false;
}
