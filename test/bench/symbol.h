// SPDX-License-Identifier: Apache-2.0
/*
 * symbol.h: the driver's own functions for the benchmarks, whoever stands in front of dlsym.
 */
#ifndef SPILLWAY_TEST_SYMBOL_H
#define SPILLWAY_TEST_SYMBOL_H

#include <dlfcn.h>
#include <link.h>
#include <string.h>

/*
 * A symbol of an object, by reading its table, so that nobody who stands in front of dlsym has a say. Linkers put the
 * names right behind the symbols, which tells how many there are.
 */
static void *symbol_of(void *library, const char *name)
{
	const ElfW(Sym) *symbol = NULL;
	const char *names = NULL;
	struct link_map *map;

	if (dlinfo(library, RTLD_DI_LINKMAP, &map))
		return NULL;
	for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
		if (entry->d_tag == DT_SYMTAB)
			symbol = (const ElfW(Sym) *)entry->d_un.d_ptr;
		else if (entry->d_tag == DT_STRTAB)
			names = (const char *)entry->d_un.d_ptr;
	}
	for (; symbol && (const char *)(symbol + 1) <= names; symbol++)
		if (symbol->st_value && !strcmp(names + symbol->st_name, name))
			return (void *)(map->l_addr + symbol->st_value);
	return NULL;
}

#endif
