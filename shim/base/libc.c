/*
 * Functions of glibc that other C libraries lack, reached through weak references; threads of the library.
 */
#include "shim/base/libc.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
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

/* ---- threads ---- */

#define STACK_ENOUGH ((size_t)8 << 20)

int thread_start(void *(*run)(void *), void *argument, size_t stack, bool joined, pthread_t *ret_thread)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, joined ? PTHREAD_CREATE_JOINABLE : PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, stack);
	int error = pthread_create(ret_thread ? ret_thread : &thread, &attributes, run, argument);
	if (error == EINVAL) {
		pthread_attr_setstacksize(&attributes, STACK_ENOUGH);
		error = pthread_create(ret_thread ? ret_thread : &thread, &attributes, run, argument);
	}
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}
