/*
 * elf_file.h: looking into an ELF file of 64 bits in our byte order, with every offset checked: it may be damaged or made
 * up. Nothing is loaded or run.
 *
 * Of one file ELF_LOOK_MOST bytes are looked at in all, whatever its tables say: after that it has nothing more of what is
 * asked for. That is some tenths of a second. Libraries hold gigabytes of kernels, but elsewhere than in read-only data.
 */
#ifndef TOOLS_ELF_FILE_H
#define TOOLS_ELF_FILE_H

#include <stdbool.h>
#include <stddef.h>

#define ELF_LOOK_MOST ((size_t)512 << 20)

struct elf_file; /* a file mapped for reading */

/* NULL: it cannot be opened, or is no such file. *ret_is_elf (may be NULL): it is an ELF file of some kind. */
struct elf_file *elf_open(const char *path, bool *ret_is_elf);
void elf_close(struct elf_file *file);

/* The loader that the program names ("/lib64/ld-linux-x86-64.so.2"), or NULL. */
const char *elf_loader(struct elf_file *file);

/* Does it define this dynamic symbol? */
bool elf_defines(struct elf_file *file, const char *name);

/* Does it define one whose name begins so? The first one, or NULL. */
const char *elf_defines_prefix(struct elf_file *file, const char *prefix, bool (*is_wanted)(const char *name));

/*
 * The highest version that it needs of those that begin with prefix ("GLIBC_"), as 1000 * major + minor; 0: none.
 */
int elf_needs_version(struct elf_file *file, const char *prefix);

/* Does its read-only data (sections .rodata*) hold this text? */
bool elf_has_text(struct elf_file *file, const char *text);

/* Bytes looked at so far, by all calls. */
size_t elf_looked(const struct elf_file *file);

#endif
