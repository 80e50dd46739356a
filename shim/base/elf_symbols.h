/*
 * elf_symbols.h: looks up symbols in the tables of the objects that are loaded, without dlsym(): the library stands in
 * its place, and it does not see what was opened with RTLD_LOCAL, as Python opens libraries.
 *
 * Locking: elf_symbols_find() takes the loader's lock; elf_symbols_around() takes none.
 */
#ifndef SPILLWAY_ELF_SYMBOLS_H
#define SPILLWAY_ELF_SYMBOLS_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Finds the first object that defines names[0], and in it all n names; ret_addresses[i] is 0 for those that it lacks.
 * object: the beginning of its file's name; NULL for any. Returns false if there is none. The object is held, though
 * the program may close it: until a dlclose() of *ret_held, or for good if ret_held is NULL.
 */
bool elf_symbols_find(const char *object, const char *const names[], unsigned n, uintptr_t ret_addresses[],
		      void **ret_held);

/*
 * Returns the name of the exported function that contains the address, or NULL. base, dynamic: of the object that
 * contains it, which must stay loaded. *ret_start: where the function begins. Reads the whole table: up to 1 ms for
 * 100,000 symbols.
 */
const char *elf_symbols_around(uintptr_t base, const ElfW(Dyn) * dynamic, uintptr_t address, uintptr_t *ret_start);

#endif
