/*
 * Names of the program's code addresses, from the loader.
 */
#include "shim/base/caller_name.h"
#include "shim/base/base_state.h"
#include "shim/base/libc.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void caller_name_bind(void)
{
	atomic_store(&base_state.caller_name.find_object, libc_dlvsym_default("_dl_find_object", "GLIBC_2.35"));
}

/* *ret_base: the load address of the object. */
static const char *caller_name_find(const void *address, uintptr_t *ret_base)
{
	struct dl_find_object object;
	const char *path = NULL;
	Dl_info info;

	if (!address)
		return NULL;
	__typeof__(_dl_find_object) *ask =
	    atomic_load_explicit(&base_state.caller_name.find_object, memory_order_relaxed);
	if (ask) {
		if (ask((void *)(uintptr_t)address, &object) == 0) {
			path = object.dlfo_link_map->l_name;
			*ret_base = object.dlfo_link_map->l_addr;
		}
	} else if (dladdr(address, &info)) {
		path = info.dli_fname;
		*ret_base = (uintptr_t)info.dli_fbase;
	}
	/* The loader has no name for the program itself. */
	return path && !*path ? program_invocation_name : path;
}

const char *caller_name_library(const void *address)
{
	uintptr_t base;

	return caller_name_find(address, &base);
}

char *caller_name_text(const void *address, char *room, size_t bytes)
{
	uintptr_t base;
	const char *path = caller_name_find(address, &base), *name = path ? strrchr(path, '/') : NULL;

	if (path)
		snprintf(room, bytes, "%s+0x%llx", name ? name + 1 : path,
			 (unsigned long long)((uintptr_t)address - base));
	else
		room[0] = 0;
	return room;
}
