/*
 * crtbegin is linked before all else that has data. So its handle is the first word that contains its own address
 * behind what is read-only after relocation; or it is in that part, where such words are few, and none is left out.
 * Seen in .data (GCC, Clang) and in .data.rel.ro (GCC of Red Hat for aarch64).
 */
#include "shim/base/closing.h"

#include "shim/base/caller_name.h"

#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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
