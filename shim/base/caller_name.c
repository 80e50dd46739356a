/*
 * Names of the program's code addresses, from the loader.
 */
#include "shim/base/caller_name.h"
#include "shim/base/base_state.h"
#include "shim/base/elf_symbols.h"
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

/* Of a longer name nothing is shown: the names of C++ say types, too. */
#define SYMBOL_MOST 40

/* *ret_base: the load address of the object. *ret_dynamic: its dynamic section; NULL: not known. */
static const char *caller_name_find(const void *address, uintptr_t *ret_base, const ElfW(Dyn) * *ret_dynamic)
{
	struct dl_find_object object;
	const char *path = NULL;
	Dl_info info;

	*ret_dynamic = NULL;
	if (!address)
		return NULL;
	__typeof__(_dl_find_object) *ask =
	    atomic_load_explicit(&base_state.caller_name.find_object, memory_order_relaxed);
	if (ask) {
		if (ask((void *)(uintptr_t)address, &object) == 0) {
			path = object.dlfo_link_map->l_name;
			*ret_base = object.dlfo_link_map->l_addr;
			*ret_dynamic = object.dlfo_link_map->l_ld;
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
	const ElfW(Dyn) * dynamic;
	uintptr_t base;

	return caller_name_find(address, &base, &dynamic);
}

char *caller_name_text(const void *address, char *room, size_t bytes)
{
	const ElfW(Dyn) * dynamic;
	uintptr_t base, start;
	const char *path = caller_name_find(address, &base, &dynamic), *name = path ? strrchr(path, '/') : NULL;

	if (!path) {
		room[0] = 0;
		return room;
	}
	name = name ? name + 1 : path;
	const char *symbol = elf_symbols_around(base, dynamic, (uintptr_t)address, &start);
	if (symbol && strlen(symbol) <= SYMBOL_MOST)
		snprintf(room, bytes, "%s:%s+0x%llx", name, symbol, (unsigned long long)((uintptr_t)address - start));
	else
		snprintf(room, bytes, "%s+0x%llx", name, (unsigned long long)((uintptr_t)address - base));
	return room;
}
