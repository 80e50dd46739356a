// SPDX-License-Identifier: Apache-2.0
/*
 * libc.h: functions that glibc has and other C libraries lack or name differently, threads, and the objects that are
 * loaded. The children of a program inherit LD_PRELOAD, and a child built for musl loads the library with musl in
 * glibc's place (musl accepts the name libc.so.6); a missing symbol then ends that child before its main(). So symbols
 * that musl lacks are only referenced weakly, no thread-local variable uses __tls_get_addr, which would require glibc's
 * loader by name, and such a child must find musl's dlsym() behind the library's.
 */
#ifndef SPILLWAY_LIBC_H
#define SPILLWAY_LIBC_H

#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* Does what pthread_atfork() does. Has no effect if the C library is not glibc: the library does no work there. */
void libc_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/* Calls dlvsym() with RTLD_NEXT, as the library. Returns NULL if the C library has no dlvsym(). */
void *libc_dlvsym_next(const char *name, const char *version);

/* Does what gettid() does, which glibc has from 2.30 on. */
static inline pid_t libc_gettid(void)
{
	return (pid_t)syscall(SYS_gettid);
}

/* Returns the C library's function of that name from its symbol table. Returns NULL under glibc, or if it has none. */
void *libc_find(const char *name);

/* ---- threads ---- */

/*
 * Starts a thread of the library, which blocks all signals: they belong to the program. It has a stack of `stack`
 * bytes, of which only touched pages use memory, or of 8 MiB if the thread-local memory of all libraries does not fit.
 * joined: the caller will join it. Returns 0 or an errno. ret_thread may be NULL.
 */
int thread_start(void *(*run)(void *), void *argument, size_t stack, bool joined, pthread_t *ret_thread);

/* ---- objects that are loaded ---- */

/*
 * Libraries and the program: which one contains an address, what symbols it has, and when it is closed.
 *
 * Locking: queries the loader, whose lock is taken by glibc before 2.35; the caller must hold no lock that can be taken
 * under the loader's. elf_symbols_find() always takes it.
 */

/* ---- addresses ---- */

/*
 * Looks up what glibc offers. May be called repeatedly. Locking: the caller must hold no lock: the loader's may be
 * needed.
 */
void caller_name_bind(void);
/* Returns the path of the object that contains the address, or NULL. The text is valid while that object is loaded. */
const char *caller_name_library(const void *address);
/* Returns where that object is mapped, which no other one has while it is loaded, or NULL. */
const void *caller_name_object(const void *address);
/*
 * Writes "libtorch_cuda.so+0x1234" to room, or "libmodel.so:load_weights+0x1c" if the object exports the function that
 * contains the address, or "" if the object is not known. Returns room. May take 1 ms.
 */
char *caller_name_text(const void *address, char *room, size_t bytes);

/* ---- symbols ---- */

/*
 * Symbols are looked up in the tables of the objects, without dlsym(): the library stands in its place, and it does not
 * see what was opened with RTLD_LOCAL, as Python opens libraries.
 */

/* The symbols of an object that is loaded, by its GNU hash table, which all linkers make today. */
struct elf_symbols {
	uintptr_t base;
	const ElfW(Sym) * symbol;
	const char *names, *soname;         /* soname: NULL if it has none */
	uint32_t n_buckets, first, n_bloom; /* first: number of the first symbol in the table */
	const uint32_t *bucket, *chain;     /* chain: of the first symbol on */
};

/* Pure, like the next ones: libspillway-audit.so has them, too. Returns the first value of that tag, or 0. */
static inline uintptr_t elf_value(const ElfW(Dyn) * dynamic, ElfW(Sxword) tag)
{
	for (const ElfW(Dyn) *entry = dynamic; entry && entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == tag)
			return entry->d_un.d_val;
	return 0;
}

/*
 * Returns the first address of that tag, or NULL. glibc has added the base to addresses in the dynamic section, except
 * in sections that it cannot write. musl does not add it.
 */
static inline const void *elf_address(uintptr_t base, const ElfW(Dyn) * dynamic, ElfW(Sxword) tag)
{
	uintptr_t value = elf_value(dynamic, tag);

	return value ? (const void *)(value < base ? base + value : value) : NULL;
}

/* Returns false if the object has no such table. */
static inline bool elf_symbols_of(uintptr_t base, const ElfW(Dyn) * dynamic, struct elf_symbols *ret_symbols)
{
	struct elf_symbols symbols = {.base = base,
				      .symbol = elf_address(base, dynamic, DT_SYMTAB),
				      .names = elf_address(base, dynamic, DT_STRTAB)};
	const uint32_t *hash = elf_address(base, dynamic, DT_GNU_HASH);
	uintptr_t soname = elf_value(dynamic, DT_SONAME);

	if (!symbols.symbol || !symbols.names || !hash || !hash[0])
		return false;
	symbols.soname = soname ? symbols.names + soname : NULL;
	symbols.n_buckets = hash[0];
	symbols.first = hash[1];
	symbols.n_bloom = hash[2];
	symbols.bucket = hash + 4 + symbols.n_bloom * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
	symbols.chain = symbols.bucket + symbols.n_buckets;
	*ret_symbols = symbols;
	return true;
}

/* Returns the address of the symbol of that name, which the object defines; 0: it has none. */
static inline uintptr_t elf_symbol(const struct elf_symbols *symbols, const char *name)
{
	uint32_t hash = 5381;

	for (const unsigned char *c = (const unsigned char *)name; *c; c++)
		hash = hash * 33 + *c;
	uint32_t i = symbols->bucket[hash % symbols->n_buckets];
	if (i < symbols->first)
		return 0;
	for (;; i++) {
		const ElfW(Sym) *symbol = &symbols->symbol[i];
		uint32_t link = symbols->chain[i - symbols->first];

		if ((link | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
		    !strcmp(symbols->names + symbol->st_name, name))
			return symbols->base + symbol->st_value;
		if (link & 1)
			return 0;
	}
}

/*
 * Finds the first object that defines names[0], and in it all n names; ret_addresses[i] is 0 for those that it lacks.
 * object: the beginning of its file's name; NULL for any. Returns false if there is none. The object is held, though
 * the program may close it: until a dlclose() of *ret_held, or for good if ret_held is NULL.
 */
bool elf_symbols_find(const char *object, const char *const names[], unsigned n, uintptr_t ret_addresses[],
		      void **ret_held);

/* ---- objects that are closed ---- */

/*
 * The closing of an object is heard of, whoever closes it, as the object's own destructors hear of it: the C library
 * calls what was registered for the handle of an object (__cxa_atexit) before it unmaps it. The handle is the address
 * of __dso_handle, which each object has from its compiler (crtbegin): not exported, it contains its own address.
 */

/*
 * From now on heard() is called, perhaps repeatedly, when the object that contains the address is closed or the process
 * exits, by the thread that does it, and perhaps under the loader's lock. The caller must hold the object, or be called
 * by it. Returns false if that would not be heard. Returns true for a program at a fixed address, which has no handle,
 * and is never closed.
 */
bool closing_hear(const void *address, void (*heard)(void *argument), void *argument);

#endif
