/*
 * Functions of glibc that other C libraries lack, reached through weak references.
 */
#include "shim/base/libc.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

extern __typeof__(dlvsym) dlvsym __attribute__((weak));

/*
 * glibc's pthread_atfork() is linked statically into its caller and calls this; the name is in the Linux Standard
 * Base.
 */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso)
    __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

void libc_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
	if (__register_atfork)
		__register_atfork(prepare, parent, child, &__dso_handle);
}

__attribute__((no_sanitize("address", "thread", "undefined"))) void *libc_dlvsym_next(const char *name,
										      const char *version)
{
	return dlvsym ? dlvsym(RTLD_NEXT, name, version) : NULL;
}

void *libc_dlvsym_default(const char *name, const char *version)
{
	return dlvsym ? dlvsym(RTLD_DEFAULT, name, version) : NULL;
}

static const ElfW(Dyn) * dynamic_of(uintptr_t base)
{
	const ElfW(Ehdr) *header = (const void *)base;
	const ElfW(Phdr) *part = (const void *)(base + header->e_phoff);

	for (unsigned i = 0; i < header->e_phnum; i++)
		if (part[i].p_type == PT_DYNAMIC)
			return (const void *)(base + part[i].p_vaddr);
	return NULL;
}

/* musl is linked with a DT_HASH table (its configure asks for both kinds) and does not relocate the addresses there. */
void *libc_find(const char *name)
{
	const uint32_t *table = NULL;
	const ElfW(Sym) *symbols = NULL;
	const char *names = NULL;
	Dl_info info;

	if (dlvsym || !dladdr((void *)(uintptr_t)dladdr, &info) || !info.dli_fbase)
		return NULL;
	uintptr_t base = (uintptr_t)info.dli_fbase;
	for (const ElfW(Dyn) *entry = dynamic_of(base); entry && entry->d_tag != DT_NULL; entry++) {
		const void *at = (const void *)(base + entry->d_un.d_ptr);

		if (entry->d_tag == DT_HASH)
			table = at;
		else if (entry->d_tag == DT_SYMTAB)
			symbols = at;
		else if (entry->d_tag == DT_STRTAB)
			names = at;
	}
	for (uint32_t i = 0; table && symbols && names && i < table[1]; i++)
		if (symbols[i].st_shndx != SHN_UNDEF && !strcmp(names + symbols[i].st_name, name))
			return (void *)(base + symbols[i].st_value);
	return NULL;
}
