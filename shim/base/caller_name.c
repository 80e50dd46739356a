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

struct found {
	const char *path;
	uintptr_t base;            /* load address */
	const void *begin;         /* where it is mapped */
	const ElfW(Dyn) * dynamic; /* NULL: not known */
};

/* Finds the object that contains the address; path is NULL if there is none. */
static struct found find(const void *address)
{
	struct found found = {0};
	struct dl_find_object object;
	Dl_info info;

	if (!address)
		return found;
	__typeof__(_dl_find_object) *ask =
	    atomic_load_explicit(&base_state.caller_name.find_object, memory_order_relaxed);
	if (ask) {
		if (ask((void *)(uintptr_t)address, &object) == 0)
			found = (struct found){object.dlfo_link_map->l_name, object.dlfo_link_map->l_addr,
					       object.dlfo_map_start, object.dlfo_link_map->l_ld};
	} else if (dladdr(address, &info)) {
		found = (struct found){info.dli_fname, (uintptr_t)info.dli_fbase, info.dli_fbase, NULL};
	}
	/* The loader has no name for the program itself. */
	if (found.path && !*found.path)
		found.path = program_invocation_name;
	return found;
}

const char *caller_name_library(const void *address)
{
	return find(address).path;
}

const void *caller_name_object(const void *address)
{
	return find(address).begin;
}

char *caller_name_text(const void *address, char *room, size_t bytes)
{
	const struct found found = find(address);
	const char *name = found.path ? strrchr(found.path, '/') : NULL;
	uintptr_t start;

	if (!found.path) {
		room[0] = 0;
		return room;
	}
	name = name ? name + 1 : found.path;
	const char *symbol = elf_symbols_around(found.base, found.dynamic, (uintptr_t)address, &start);
	if (symbol && strlen(symbol) <= SYMBOL_MOST)
		snprintf(room, bytes, "%s:%s+0x%llx", name, symbol, (unsigned long long)((uintptr_t)address - start));
	else
		snprintf(room, bytes, "%s+0x%llx", name, (unsigned long long)((uintptr_t)address - found.base));
	return room;
}
