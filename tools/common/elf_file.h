// SPDX-License-Identifier: Apache-2.0
/*
 * elf_file.h: reads 64-bit ELF files in the machine's byte order. Every offset is checked, because a file may be
 * damaged or forged. Nothing is loaded or run.
 *
 * At most ELF_LOOK_MOST bytes of one file are examined in all, whatever its tables say; after that every search finds
 * nothing. This takes some tenths of a second. Libraries hold gigabytes of kernels, but not in read-only data.
 */
#ifndef TOOLS_ELF_FILE_H
#define TOOLS_ELF_FILE_H

#include <stdbool.h>
#include <stddef.h>

#define ELF_LOOK_MOST ((size_t)512 << 20)

struct elf_file; /* a file that is mapped for reading */

/* Returns NULL if the file cannot be opened or is no such ELF file. */
struct elf_file *elf_open(const char *path);
void elf_close(struct elf_file *file);

/* Returns the loader that the program names ("/lib64/ld-linux-x86-64.so.2"), or NULL if it names none. */
const char *elf_loader(struct elf_file *file);

/* Returns whether the file defines this dynamic symbol. */
bool elf_defines(struct elf_file *file, const char *name);

/*
 * Returns the first dynamic symbol that the file defines, that begins with prefix and that is_wanted() accepts; NULL
 * if none does.
 */
const char *elf_defines_prefix(struct elf_file *file, const char *prefix, bool (*is_wanted)(const char *name));

/*
 * Returns the highest version that the file needs among those that begin with prefix ("GLIBC_"), as 1000 * major +
 * minor; 0 if it needs none.
 */
int elf_needs_version(struct elf_file *file, const char *prefix);

/* Returns whether the file's read-only data (sections .rodata*) contain this text. */
bool elf_has_text(struct elf_file *file, const char *text);

/* Returns the number of bytes examined so far, by all calls. */
size_t elf_looked(const struct elf_file *file);

#endif
