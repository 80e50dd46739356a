// SPDX-License-Identifier: Apache-2.0
/*
 * Substitutes entry points that the program resolves, by address rather than by name. The real resolver is called
 * with the caller's arguments, so the driver chooses the version and the per-thread-stream spelling; if the address
 * that it returns belongs to a hooked row, the program gets our body (docs/facts.md, Reaching the driver:
 * cuGetProcAddress returns only exported addresses). So this file needs no list of versions.
 */
#include "shim/base/log.h"
#include "shim/entry/entry.h"
#include "shim/process/process.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

/* clang-format off */
static void *const bodies[HOOK_COUNT] = {
#define HOOK_NAME(name) (void *)name,
#include "shim/driver/hooks.def"
};
/* clang-format on */

/* Returns the id of the row that has this body, or -1. */
static int hook_find(const void *body)
{
	for (int id = 0; id < HOOK_COUNT; id++)
		if (bodies[id] == body)
			return id;
	return -1;
}

/* Not in musl, whose programs may have the library before them though they cannot use it. */
#pragma weak dladdr1

/* Debuggers look up variables of the driver by name. */
static bool is_function(const void *address)
{
	const ElfW(Sym) *symbol = NULL;
	Dl_info info;

	return dladdr1 && dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT) &&
	       (!symbol || ELF64_ST_TYPE(symbol->st_info) == STT_FUNC);
}

/* Returns what the program gets for a function of the driver that no row knows; for anything else, the address. */
static void *substitute_unknown(const char *name, void *address)
{
	/* Names of other libraries begin with "cu", too (cuFile); they are not the driver's and are not counted. */
	if (real_is_exempt(address) || !real_in_driver(address) || !is_function(address))
		return address;
	stats_unknown(name);
	void *body = unknown_body(address);
	if (!body)
		log_once("more than %d functions of the driver are unknown: what %s and others do is not seen",
			 UNKNOWN_MOST, name);
	else if (real_knows_name(name))
		log_once("the driver has a %s we do not know (a newer version than this library): each call counts as "
			 "one that may touch anything",
			 name);
	return body ? body : address;
}

/* Returns the address to hand out for what the real resolver returned. name: for counting names that are not known. */
static void *resolve_substitute(const char *name, void *address)
{
	if (!address || process_is_off() || process_stage() == STAGE_FORKED || !real_bind())
		return address;
	int id = real_find(address);
	if (id >= 0)
		return bodies[id];
	return hook_find(address) < 0 ? substitute_unknown(name, address) : address;
}

static void *look_up(real_dlsym_function *c_dlsym, void *handle, const char *name)
{
	/* Before the search, because the program may ask for the error of that search afterwards. */
	real_bind();
	void *address = c_dlsym(handle, name);
	int ours = address ? hook_find(address) : -1;

	if (ours < 0)
		return resolve_substitute(name, address);
	/*
	 * A search through the whole program finds our export first. Our export is the answer if the driver is loaded
	 * and has the function; otherwise the program must see what it would see without the library.
	 */
	void *real_one = real_address((enum hook_id)ours);
	if (real_one)
		return process_is_off() ? real_one : address;
	/*
	 * The next definition after ours, or the C library's error. Must not be a tail call: the C library searches
	 * after the object that called it.
	 */
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

static CUresult hand_out(CUresult result, const char *symbol, void **pfn, const void *caller)
{
	if (result == CUDA_SUCCESS && pfn && symbol)
		*pfn = resolve_substitute(symbol, *pfn);
	if (__builtin_expect(door_log_wanted(), 0) && pfn && symbol)
		door_log_note(DOOR_PROC, symbol, result == CUDA_SUCCESS ? *pfn : NULL, caller);
	return result;
}

HOOK_INLINE CUresult serve_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
					       CUdriverProcAddressQueryResult *symbolStatus)
{
	return hand_out(REAL(cuGetProcAddress_v2)(symbol, pfn, cudaVersion, flags, symbolStatus), symbol, pfn,
			__builtin_return_address(0));
}

/* The ABI with four arguments of CUDA 11.3 to 11.8. Today's runtime still asks for it, at version 11030. */
HOOK_INLINE CUresult serve_cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	return hand_out(REAL(cuGetProcAddress)(symbol, pfn, cudaVersion, flags), symbol, pfn,
			__builtin_return_address(0));
}

#define HOOK_BODY HOOK_SHELL
#define HOOKS_OF  HOOKS_RESOLVE
#include "shim/driver/hooks.def"
