// SPDX-License-Identifier: Apache-2.0
/*
 * Reads symbols, versions and texts from an ELF file that is mapped for reading.
 */
#include "tools/common/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Maximum number of versions examined: the chains of a forged file may cross. */
enum { VERSIONS_MOST = 10000 };
/* A longer text counts as missing: names of files and versions are far shorter. */
enum { TEXT_MOST = 64 << 10 };

struct elf_file {
	const char *bytes;
	size_t n;
	size_t looked; /* bytes looked at so far, over all calls */
};

struct part {
	const char *at;
	size_t n;
};

/* Returns these bytes of the file; {0} if they are not all in the file. */
static struct part part_of(const struct elf_file *file, uint64_t offset, uint64_t n)
{
	if (offset > file->n || n > file->n - offset)
		return (struct part){0};
	return (struct part){file->bytes + offset, (size_t)n};
}

/*
 * Accounts for n more bytes. Returns false if that would exceed ELF_LOOK_MOST. The limit applies to the whole file and
 * not to each table: sections of a forged file may all be the same bytes, and each of its symbols may have a name that
 * extends to its end.
 */
static bool may_look(struct elf_file *file, size_t n)
{
	if (n > ELF_LOOK_MOST - file->looked) {
		file->looked = ELF_LOOK_MOST;
		return false;
	}
	file->looked += n;
	return true;
}

size_t elf_looked(const struct elf_file *file)
{
	return file->looked;
}

static Elf64_Ehdr header_of(const struct elf_file *file)
{
	Elf64_Ehdr header;

	memcpy(&header, file->bytes, sizeof(header)); /* elf_open() checked that it fits */
	return header;
}

/* Finds the i-th section. Returns false if it does not exist or the limit was reached. */
static bool section_at(struct elf_file *file, unsigned i, Elf64_Shdr *ret_section)
{
	Elf64_Ehdr header = header_of(file);

	if (i >= header.e_shnum || header.e_shentsize != sizeof(*ret_section) ||
	    header.e_shoff > file->n) /* so that the sum below does not overflow */
		return false;
	struct part part = part_of(file, header.e_shoff + (uint64_t)i * sizeof(*ret_section), sizeof(*ret_section));
	if (!part.at || !may_look(file, sizeof(*ret_section)))
		return false;
	memcpy(ret_section, part.at, sizeof(*ret_section));
	return true;
}

static struct part elf_file_contents(const struct elf_file *file, const Elf64_Shdr *section)
{
	return section->sh_type == SHT_NOBITS ? (struct part){0} : part_of(file, section->sh_offset, section->sh_size);
}

/*
 * Returns the text at offset of a string table; NULL if it does not end within the table or is longer than TEXT_MOST.
 */
static const char *text_at(struct elf_file *file, struct part table, uint64_t offset)
{
	size_t n = offset < table.n ? table.n - (size_t)offset : 0;

	n = n < TEXT_MOST ? n : TEXT_MOST;
	const char *end = n && may_look(file, n) ? memchr(table.at + offset, 0, n) : NULL;
	if (!end)
		return NULL;
	/* The bytes after the end of the text were not examined. */
	file->looked -= n - (size_t)(end + 1 - (table.at + offset));
	return table.at + offset;
}

/* Returns whether these n bytes are at offset of a string table. */
static bool has_at(struct elf_file *file, struct part table, uint64_t offset, const char *bytes, size_t n)
{
	return offset <= table.n && n <= table.n - offset && may_look(file, n) &&
	       memcmp(table.at + offset, bytes, n) == 0;
}

/* Finds the section of that type and its string table. */
static bool find_section(struct elf_file *file, unsigned type, struct part *ret_part, struct part *ret_texts)
{
	Elf64_Shdr section, texts;

	for (unsigned i = 0; section_at(file, i, &section); i++) {
		if (section.sh_type != type || !section_at(file, section.sh_link, &texts))
			continue;
		*ret_part = elf_file_contents(file, &section);
		*ret_texts = elf_file_contents(file, &texts);
		return ret_part->at && ret_texts->at;
	}
	return false;
}

struct elf_file *elf_open(const char *path)
{
	const unsigned order = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct elf_file *file = fd >= 0 ? calloc(1, sizeof(*file)) : NULL;
	struct stat status;

	if (file && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size >= (off_t)sizeof(Elf64_Ehdr)) {
		void *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

		file->bytes = bytes == MAP_FAILED ? NULL : bytes;
		file->n = (size_t)status.st_size;
	}
	if (fd >= 0)
		close(fd);
	if (file && file->bytes && memcmp(file->bytes, ELFMAG, SELFMAG) == 0 && file->bytes[EI_CLASS] == ELFCLASS64 &&
	    (unsigned char)file->bytes[EI_DATA] == order)
		return file;
	elf_close(file);
	return NULL;
}

void elf_close(struct elf_file *file)
{
	if (file && file->bytes)
		munmap((void *)file->bytes, file->n);
	free(file);
}

const char *elf_loader(struct elf_file *file)
{
	Elf64_Ehdr header = header_of(file);
	Elf64_Phdr segment;

	if (header.e_phentsize != sizeof(segment) || header.e_phoff > file->n)
		return NULL;
	for (unsigned i = 0; i < header.e_phnum; i++) {
		struct part part = part_of(file, header.e_phoff + (uint64_t)i * sizeof(segment), sizeof(segment));

		if (!part.at || !may_look(file, sizeof(segment)))
			return NULL;
		memcpy(&segment, part.at, sizeof(segment));
		if (segment.p_type == PT_INTERP)
			return text_at(file, part_of(file, segment.p_offset, segment.p_filesz), 0);
	}
	return NULL;
}

/* Returns the first defined symbol that equals name or, if is_wanted is set, that begins with name and is wanted. */
static const char *find_symbol(struct elf_file *file, const char *name, bool (*is_wanted)(const char *name))
{
	size_t n = strlen(name) + (is_wanted ? 0 : 1);
	struct part symbols, texts;

	if (!find_section(file, SHT_DYNSYM, &symbols, &texts))
		return NULL;
	for (size_t at = 0; at + sizeof(Elf64_Sym) <= symbols.n && may_look(file, sizeof(Elf64_Sym));
	     at += sizeof(Elf64_Sym)) {
		Elf64_Sym symbol;

		memcpy(&symbol, symbols.at + at, sizeof(symbol));
		if (symbol.st_shndx == SHN_UNDEF || !has_at(file, texts, symbol.st_name, name, n))
			continue;
		const char *own = text_at(file, texts, symbol.st_name);
		if (own && (!is_wanted || is_wanted(own)))
			return own;
	}
	return NULL;
}

bool elf_defines(struct elf_file *file, const char *name)
{
	return find_symbol(file, name, NULL) != NULL;
}

const char *elf_defines_prefix(struct elf_file *file, const char *prefix, bool (*is_wanted)(const char *name))
{
	return find_symbol(file, prefix, is_wanted);
}

/* "GLIBC_2.34" gives 2034; a name without a version ("GLIBC_PRIVATE") gives 0. */
static int version_number(const char *name, const char *prefix)
{
	char *end;

	if (strncmp(name, prefix, strlen(prefix)) != 0)
		return 0;
	long major = strtol(name + strlen(prefix), &end, 10), minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
	return major > 0 && major < 1000 && minor >= 0 && minor < 1000 ? (int)(major * 1000 + minor) : 0;
}

int elf_needs_version(struct elf_file *file, const char *prefix)
{
	struct part needs, texts;
	int most = 0, left = VERSIONS_MOST;

	if (!find_section(file, SHT_GNU_verneed, &needs, &texts))
		return 0;
	/*
	 * The outer loop visits libraries, the inner one their versions; both are chains. Steps must go forward, so
	 * that the loops end.
	 */
	for (uint64_t at = 0; at + sizeof(Elf64_Verneed) <= needs.n && left > 0;) {
		Elf64_Verneed library;

		memcpy(&library, needs.at + at, sizeof(library));
		uint64_t aux = at + library.vn_aux;
		for (unsigned i = 0; i < library.vn_cnt && aux + sizeof(Elf64_Vernaux) <= needs.n && left-- > 0; i++) {
			Elf64_Vernaux version;

			memcpy(&version, needs.at + aux, sizeof(version));
			const char *name = text_at(file, texts, version.vna_name);
			int number = name ? version_number(name, prefix) : 0;
			most = number > most ? number : most;
			if (!version.vna_next)
				break;
			aux += version.vna_next;
		}
		if (!library.vn_next || left-- <= 0)
			break;
		at += library.vn_next;
	}
	return most;
}

bool elf_has_text(struct elf_file *file, const char *text)
{
	Elf64_Ehdr header = header_of(file);
	Elf64_Shdr names_section, section;

	if (!section_at(file, header.e_shstrndx, &names_section))
		return false;
	struct part names = elf_file_contents(file, &names_section);
	for (unsigned i = 0; section_at(file, i, &section); i++) {
		struct part part = elf_file_contents(file, &section);

		if (!part.at || !has_at(file, names, section.sh_name, ".rodata", 7))
			continue;
		/* A section that exceeds the limit is searched as far as the limit allows. */
		size_t left = ELF_LOOK_MOST - file->looked, n = part.n < left ? part.n : left;
		if (may_look(file, n) && memmem(part.at, n, text, strlen(text)))
			return true;
	}
	return false;
}
