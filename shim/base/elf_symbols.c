/*
 * Symbols of loaded objects, by their GNU hash tables, which all linkers make today. See elf_symbols.h.
 */
#include "shim/base/elf_symbols.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

struct symbols {
	uintptr_t base;
	const ElfW(Sym) * symbol;
	const char *names;
	uint32_t n_buckets, first, n_bloom; /* first: number of the first symbol in the table */
	const uint32_t *bucket, *chain;     /* chain: of the first symbol on */
};

/* glibc has added the base to addresses in the dynamic section, except in sections that it cannot write. */
static const void *at(uintptr_t base, ElfW(Addr) value)
{
	return (const void *)(value < base ? base + value : value);
}

static bool symbols_of(uintptr_t base, const ElfW(Dyn) * dynamic, struct symbols *ret_symbols)
{
	struct symbols symbols = {.base = base};
	const uint32_t *hash = NULL;

	for (const ElfW(Dyn) *entry = dynamic; entry && entry->d_tag != DT_NULL; entry++) {
		if (entry->d_tag == DT_SYMTAB)
			symbols.symbol = at(base, entry->d_un.d_ptr);
		else if (entry->d_tag == DT_STRTAB)
			symbols.names = at(base, entry->d_un.d_ptr);
		else if (entry->d_tag == DT_GNU_HASH)
			hash = at(base, entry->d_un.d_ptr);
	}
	if (!symbols.symbol || !symbols.names || !hash || !hash[0])
		return false;
	symbols.n_buckets = hash[0];
	symbols.first = hash[1];
	symbols.n_bloom = hash[2];
	symbols.bucket = hash + 4 + symbols.n_bloom * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
	symbols.chain = symbols.bucket + symbols.n_buckets;
	*ret_symbols = symbols;
	return true;
}

static uintptr_t look_up(const struct symbols *symbols, const char *name)
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
	const ElfW(Dyn) *dynamic = NULL;
	struct symbols symbols;

	(void)size;
	name = name ? name + 1 : info->dlpi_name;
	/* The kernel's own object has no file, and addresses in its dynamic section are offsets. */
	if (!strncmp(name, "linux-vdso", 10) ||
	    (search->object && strncmp(name, search->object, strlen(search->object))))
		return 0;
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	if (!symbols_of(info->dlpi_addr, dynamic, &symbols))
		return 0;
	search->addresses[0] = look_up(&symbols, search->names[0]);
	if (!search->addresses[0])
		return 0;
	for (unsigned i = 1; i < search->n; i++)
		search->addresses[i] = look_up(&symbols, search->names[i]);
	search->base = info->dlpi_addr;
	snprintf(search->path, sizeof(search->path), "%s", info->dlpi_name);
	return 1;
}

bool elf_symbols_find(const char *object, const char *const names[], unsigned n, uintptr_t ret_addresses[],
		      void **ret_held)
{
	struct search search = {.object = object, .names = names, .n = n, .addresses = ret_addresses};
	const struct link_map *map;
	void *handle;

	if (dl_iterate_phdr(look_in, &search) != 1)
		return false;
	handle = dlopen(search.path, RTLD_LAZY | RTLD_NOLOAD);
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
static uint32_t n_symbols(const struct symbols *symbols)
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

const char *elf_symbols_around(uintptr_t base, const ElfW(Dyn) * dynamic, uintptr_t address, uintptr_t *ret_start)
{
	struct symbols symbols;

	if (!symbols_of(base, dynamic, &symbols))
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
