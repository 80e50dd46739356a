// SPDX-License-Identifier: Apache-2.0
/*
 * Functions of glibc that other C libraries lack, reached through weak references; threads of the library; and what is
 * loaded, from the loader.
 */
#include "shim/base/libc.h"
#include "shim/base/base_state.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>

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

/* ---- symbols of objects that are loaded ---- */

static const ElfW(Dyn) * dynamic_of(uintptr_t base, const ElfW(Phdr) * parts, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (parts[i].p_type == PT_DYNAMIC)
			return (const void *)(base + parts[i].p_vaddr);
	return NULL;
}

/* musl has such a table, too: its configure asks for both kinds. */
void *libc_find(const char *name)
{
	struct elf_symbols symbols;
	Dl_info info;

	if (dlvsym || !dladdr((void *)(uintptr_t)dladdr, &info) || !info.dli_fbase)
		return NULL;
	const ElfW(Ehdr) *header = info.dli_fbase;
	uintptr_t base = (uintptr_t)header;
	const ElfW(Dyn) *dynamic = dynamic_of(base, (const void *)(base + header->e_phoff), header->e_phnum);
	return elf_symbols_of(base, dynamic, &symbols) ? (void *)elf_symbol(&symbols, name) : NULL;
}

struct search {
	const char *object;
	const char *const *names;
	unsigned n;
	uintptr_t *addresses;
	uintptr_t base;      /* of what was found */
	char path[PATH_MAX]; /* of it */
};

static int look_in(struct dl_phdr_info *info, size_t size, void *argument)
{
	struct search *search = argument;
	const char *name = strrchr(info->dlpi_name, '/');
	struct elf_symbols symbols;

	(void)size;
	name = name ? name + 1 : info->dlpi_name;
	/* The kernel's own object has no file, and addresses in its dynamic section are offsets. */
	if (!strncmp(name, "linux-vdso", 10) ||
	    (search->object && strncmp(name, search->object, strlen(search->object))))
		return 0;
	if (!elf_symbols_of(info->dlpi_addr, dynamic_of(info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum), &symbols))
		return 0;
	search->addresses[0] = elf_symbol(&symbols, search->names[0]);
	if (!search->addresses[0])
		return 0;
	for (unsigned i = 1; i < search->n; i++)
		search->addresses[i] = elf_symbol(&symbols, search->names[i]);
	search->base = info->dlpi_addr;
	snprintf(search->path, sizeof(search->path), "%s", info->dlpi_name);
	return 1;
}

bool elf_symbols_find(const char *object, const char *const names[], unsigned n, uintptr_t ret_addresses[],
		      void **ret_held)
{
	struct search search = {.object = object, .names = names, .n = n, .addresses = ret_addresses};
	const struct link_map *map;

	if (dl_iterate_phdr(look_in, &search) != 1)
		return false;
	void *handle = dlopen(search.path, RTLD_LAZY | RTLD_NOLOAD);
	/*
	 * What was found may have been closed before it was held: what is found now is held, if it is at that address.
	 */
	if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &map) || dl_iterate_phdr(look_in, &search) != 1 ||
	    search.base != map->l_addr) {
		if (handle)
			dlclose(handle);
		dlerror(); /* the program must not find an error of ours */
		return false;
	}
	if (ret_held)
		*ret_held = handle;
	return true;
}

/* Returns the number behind that of the last symbol. */
static uint32_t n_symbols(const struct elf_symbols *symbols)
{
	uint32_t last = 0;

	for (uint32_t i = 0; i < symbols->n_buckets; i++)
		if (symbols->bucket[i] > last)
			last = symbols->bucket[i];
	if (last < symbols->first)
		return 0;
	while (!(symbols->chain[last - symbols->first] & 1))
		last++;
	return last + 1;
}

/*
 * Returns the name of the exported function that contains the address, or NULL. base, dynamic: of the object that
 * contains it, which must stay loaded. *ret_start: where the function begins. Reads the whole table: up to 1 ms for
 * 100,000 symbols.
 */
static const char *symbol_around(uintptr_t base, const ElfW(Dyn) * dynamic, uintptr_t address, uintptr_t *ret_start)
{
	struct elf_symbols symbols;

	if (!elf_symbols_of(base, dynamic, &symbols))
		return NULL;
	for (uint32_t i = symbols.first, n = n_symbols(&symbols); i < n; i++) {
		const ElfW(Sym) *symbol = &symbols.symbol[i];

		/* The low bits of st_info are the same in both classes of ELF. */
		if (ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx != SHN_UNDEF &&
		    address - (base + symbol->st_value) < symbol->st_size) {
			*ret_start = base + symbol->st_value;
			return symbols.names + symbol->st_name;
		}
	}
	return NULL;
}

/* ---- addresses ---- */

void caller_name_bind(void)
{
	void *find_object = dlvsym ? dlvsym(RTLD_DEFAULT, "_dl_find_object", "GLIBC_2.35") : NULL;

	atomic_store(&base_state.find_object, find_object);
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
	__typeof__(_dl_find_object) *ask = atomic_load_explicit(&base_state.find_object, memory_order_relaxed);
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
	const char *symbol = symbol_around(found.base, found.dynamic, (uintptr_t)address, &start);
	if (symbol && strlen(symbol) <= SYMBOL_MOST)
		snprintf(room, bytes, "%s:%s+0x%llx", name, symbol, (unsigned long long)((uintptr_t)address - start));
	else
		snprintf(room, bytes, "%s+0x%llx", name, (unsigned long long)((uintptr_t)address - found.base));
	return room;
}

/* ---- objects that are closed ---- */

/*
 * crtbegin is linked before all else that has data. So its handle is the first word that contains its own address
 * behind what is read-only after relocation; or it is in that part, where such words are few, and none is left out.
 * Seen in .data (GCC, Clang) and in .data.rel.ro (GCC of Red Hat for aarch64).
 */

/* The C library's, as the C++ ABI (Itanium, 3.3.6) has it. */
extern int __cxa_atexit(void (*function)(void *), void *argument, void *handle);

/* parts: of the object at base. */
static uintptr_t read_only_end(uintptr_t base, const ElfW(Phdr) * parts, unsigned n)
{
	uintptr_t end = 0;

	for (unsigned i = 0; i < n; i++)
		if (parts[i].p_type == PT_GNU_RELRO)
			end = base + parts[i].p_vaddr + parts[i].p_memsz;
	return end;
}

/* Not instrumented: it reads what is between the variables, too. */
__attribute__((no_sanitize("address", "thread"))) static bool is_handle(uintptr_t address)
{
	return *(const uintptr_t *)address == address;
}

/* Returns true if there is a handle, or what may be one, and it is heard of. */
static bool hear(uintptr_t base, const ElfW(Phdr) * parts, unsigned n, void (*heard)(void *argument), void *argument)
{
	const uintptr_t step = sizeof(uintptr_t), behind = read_only_end(base, parts, n);
	bool hears = false;

	for (unsigned i = 0; i < n; i++) {
		uintptr_t at = (base + parts[i].p_vaddr + step - 1) / step * step;
		uintptr_t end = (base + parts[i].p_vaddr + parts[i].p_filesz) / step * step;

		for (; parts[i].p_type == PT_LOAD && parts[i].p_flags & PF_W && at < end; at += step) {
			if (!is_handle(at))
				continue;
			hears |= __cxa_atexit(heard, argument, (void *)at) == 0;
			if (at >= behind)
				return hears;
		}
	}
	return hears;
}

bool closing_hear(const void *address, void (*heard)(void *argument), void *argument)
{
	const ElfW(Ehdr) *header = caller_name_object(address);
	uintptr_t begin = (uintptr_t)header;

	if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
		return false;
	if (header->e_type == ET_EXEC)
		return true;
	const ElfW(Phdr) *parts = (const void *)(begin + header->e_phoff);
	for (unsigned i = 0; i < header->e_phnum; i++)
		if (parts[i].p_type == PT_LOAD && parts[i].p_offset == 0)
			return hear(begin - parts[i].p_vaddr, parts, header->e_phnum, heard, argument);
	return false;
}
