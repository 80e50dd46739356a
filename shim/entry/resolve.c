/*
 * Substitute by address, not by name: the real resolver is asked with the caller's own arguments, so the driver chooses
 * the version and the per-thread-stream spelling; we only look whether the address it gave is one of our rows'
 * (docs/facts.md, Reaching the driver: cuGetProcAddress returns only exported addresses). There is no version ladder to
 * get wrong.
 */
#include "shim/entry/resolve.h"
#include "shim/driver/door_log.h"
#include "shim/process/process.h"
#include "shim/stats/stats.h"
#include "shim/entry/hook.h"
#include "shim/base/log.h"

#include <dlfcn.h>
#include <string.h>

/* clang-format off */
static void *const bodies[HOOK_COUNT] = {
#define HOOK(name, params, args) (void *)name,
#include "shim/driver/hooks.def"
};
/* clang-format on */

/* Our body of a hooked row. */
static void *hook_body(int id)
{
	return bodies[id];
}

/* The row whose body this is; -1: none. */
static int hook_find(const void *body)
{
	for (int id = 0; id < HOOK_COUNT; id++)
		if (bodies[id] == body)
			return id;
	return -1;
}

static void note_unknown(const char *name, const void *address)
{
	/* Other libraries have names that begin so, too (cuFile); they are not the driver's and not our business. */
	if (real_is_exempt(address) || !real_in_driver(address))
		return;
	stats_unknown(name);
	if (real_knows_name(name))
		log_once("the driver has a %s we do not know (a newer version than this library): memory it touches is "
			 "not seen",
			 name);
}

void *resolve_substitute(const char *name, void *address)
{
	if (!address || process_is_off() || process_stage() == STAGE_FORKED || !real_bind())
		return address;
	int id = real_find(address);
	if (id >= 0)
		return hook_body(id);
	if (hook_find(address) < 0)
		note_unknown(name, address);
	return address;
}

static void *look_up(real_dlsym_function *c_dlsym, void *handle, const char *name)
{
	/* Before the search, whose own error the program may ask for afterwards. */
	real_bind();
	void *address = c_dlsym(handle, name);
	int ours = address ? hook_find(address) : -1;

	if (ours < 0)
		return resolve_substitute(name, address);
	/*
	 * A search through the whole program finds our own export first. That answers for a driver that is there and has
	 * the function; without it the program must see what it would see without us.
	 */
	void *real_one = real_address((enum hook_id)ours);
	if (real_one)
		return process_is_off() ? real_one : address;
	/* Whatever is next after us, or the C library's own error. Not a tail call: "next" is next after the caller. */
	void *volatile next = c_dlsym(RTLD_NEXT, name);
	return next;
}

void *resolve_dlsym(real_dlsym_function *c_dlsym, void *handle, const char *name, const void *caller)
{
	void *address = look_up(c_dlsym, handle, name);

	if (__builtin_expect(door_log_wanted(), 0))
		door_log_note(DOOR_DLSYM, name, address, caller);
	return address;
}

bool resolve_is_hooked(const char *name)
{
	for (int id = 0; id < HOOK_COUNT; id++)
		if (!strcmp(real_name(id), name))
			return true;
	return false;
}

HOOK_EXPORT CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
						 CUdriverProcAddressQueryResult *symbolStatus)
{
	stats_call(HOOK_cuGetProcAddress_v2);
	CUresult result = REAL(cuGetProcAddress_v2)(symbol, pfn, cudaVersion, flags, symbolStatus);
	if (result == CUDA_SUCCESS && pfn && symbol)
		*pfn = resolve_substitute(symbol, *pfn);
	if (__builtin_expect(door_log_wanted(), 0) && pfn && symbol)
		door_log_note(DOOR_PROC, symbol, result == CUDA_SUCCESS ? *pfn : NULL, __builtin_return_address(0));
	return result;
}

/* The four-argument ABI of CUDA 11.3 to 11.8; asked for at version 11030 even by today's runtime. */
HOOK_EXPORT CUresult CUDAAPI cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	stats_call(HOOK_cuGetProcAddress);
	CUresult result = REAL(cuGetProcAddress)(symbol, pfn, cudaVersion, flags);
	if (result == CUDA_SUCCESS && pfn && symbol)
		*pfn = resolve_substitute(symbol, *pfn);
	if (__builtin_expect(door_log_wanted(), 0) && pfn && symbol)
		door_log_note(DOOR_PROC, symbol, result == CUDA_SUCCESS ? *pfn : NULL, __builtin_return_address(0));
	return result;
}
