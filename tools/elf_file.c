#include "tools/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Versions that are looked at, at most: a file made up may have chains that cross. */
enum { VERSIONS_MOST = 10000 };
/* Read-only data that is searched, at most: libraries hold gigabytes of kernels elsewhere. */
enum { TEXT_MOST = 256 << 20 };

struct elf_file {
	const char *bytes;
	size_t n;
};

struct part {
	const char *at;
	size_t n;
};

/* Those bytes of the file; {0} when they are not all there. */
static struct part part_of(const struct elf_file *file, uint64_t offset, uint64_t n)
{
	if (offset > file->n || n > file->n - offset)
		return (struct part){0};
	return (struct part){file->bytes + offset, (size_t)n};
}

static Elf64_Ehdr header_of(const struct elf_file *file)
{
	Elf64_Ehdr header;

	memcpy(&header, file->bytes, sizeof(header)); /* elf_open() made sure of it */
	return header;
}

/* The i-th section; false: there is none. */
static bool section_at(const struct elf_file *file, unsigned i, Elf64_Shdr *ret_section)
{
	Elf64_Ehdr header = header_of(file);

	if (i >= header.e_shnum || header.e_shentsize != sizeof(*ret_section) ||
	    header.e_shoff > file->n) /* so that the sum below does not wrap */
		return false;
	struct part part = part_of(file, header.e_shoff + (uint64_t)i * sizeof(*ret_section), sizeof(*ret_section));
	if (!part.at)
		return false;
	memcpy(ret_section, part.at, sizeof(*ret_section));
	return true;
}

static struct part contents(const struct elf_file *file, const Elf64_Shdr *section)
{
	return section->sh_type == SHT_NOBITS ? (struct part){0} : part_of(file, section->sh_offset, section->sh_size);
}

/* The text at offset of a table of texts; NULL where it does not end in it. */
static const char *text_at(struct part table, uint64_t offset)
{
	return offset < table.n && memchr(table.at + offset, 0, table.n - offset) ? table.at + offset : NULL;
}

/* The section of that type, and the table of texts that it goes with. */
static bool find_section(const struct elf_file *file, unsigned type, struct part *ret_part, struct part *ret_texts)
{
	Elf64_Shdr section, texts;

	for (unsigned i = 0; section_at(file, i, &section); i++) {
		if (section.sh_type != type || !section_at(file, section.sh_link, &texts))
			continue;
		*ret_part = contents(file, &section);
		*ret_texts = contents(file, &texts);
		return ret_part->at && ret_texts->at;
	}
	return false;
}

struct elf_file *elf_open(const char *path, bool *ret_is_elf)
{
	const unsigned order = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct elf_file *file = fd >= 0 ? calloc(1, sizeof(*file)) : NULL;
	struct stat status;
	bool is_elf = false;

	if (file && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size >= (off_t)sizeof(Elf64_Ehdr)) {
		void *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

		file->bytes = bytes == MAP_FAILED ? NULL : bytes;
		file->n = (size_t)status.st_size;
	}
	if (fd >= 0)
		close(fd);
	if (file && file->bytes) {
		is_elf = memcmp(file->bytes, ELFMAG, SELFMAG) == 0;
		if (is_elf && file->bytes[EI_CLASS] == ELFCLASS64 && (unsigned char)file->bytes[EI_DATA] == order) {
			if (ret_is_elf)
				*ret_is_elf = true;
			return file;
		}
	}
	if (ret_is_elf)
		*ret_is_elf = is_elf;
	elf_close(file);
	return NULL;
}

void elf_close(struct elf_file *file)
{
	if (file && file->bytes)
		munmap((void *)file->bytes, file->n);
	free(file);
}

const char *elf_loader(const struct elf_file *file)
{
	Elf64_Ehdr header = header_of(file);
	Elf64_Phdr segment;

	if (header.e_phentsize != sizeof(segment) || header.e_phoff > file->n)
		return NULL;
	for (unsigned i = 0; i < header.e_phnum; i++) {
		struct part part = part_of(file, header.e_phoff + (uint64_t)i * sizeof(segment), sizeof(segment));

		if (!part.at)
			return NULL;
		memcpy(&segment, part.at, sizeof(segment));
		if (segment.p_type == PT_INTERP)
			return text_at(part_of(file, segment.p_offset, segment.p_filesz), 0);
	}
	return NULL;
}

/* The first symbol it defines that is exactly this name, or begins so and is wanted. */
static const char *find_symbol(const struct elf_file *file, const char *name, bool (*is_wanted)(const char *name))
{
	struct part symbols, texts;

	if (!find_section(file, SHT_DYNSYM, &symbols, &texts))
		return NULL;
	for (size_t at = 0; at + sizeof(Elf64_Sym) <= symbols.n; at += sizeof(Elf64_Sym)) {
		Elf64_Sym symbol;

		memcpy(&symbol, symbols.at + at, sizeof(symbol));
		const char *own = symbol.st_shndx != SHN_UNDEF ? text_at(texts, symbol.st_name) : NULL;
		if (own &&
		    (is_wanted ? strncmp(own, name, strlen(name)) == 0 && is_wanted(own) : strcmp(own, name) == 0))
			return own;
	}
	return NULL;
}

bool elf_defines(const struct elf_file *file, const char *name)
{
	return find_symbol(file, name, NULL) != NULL;
}

const char *elf_defines_prefix(const struct elf_file *file, const char *prefix, bool (*is_wanted)(const char *name))
{
	return find_symbol(file, prefix, is_wanted);
}

/* "GLIBC_2.34" -> 2034, 0 for what is no such name ("GLIBC_PRIVATE"). */
static int version_number(const char *name, const char *prefix)
{
	char *end;

	if (strncmp(name, prefix, strlen(prefix)) != 0)
		return 0;
	long major = strtol(name + strlen(prefix), &end, 10), minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
	return major > 0 && major < 1000 && minor >= 0 && minor < 1000 ? (int)(major * 1000 + minor) : 0;
}

int elf_needs_version(const struct elf_file *file, const char *prefix)
{
	struct part needs, texts;
	int most = 0, left = VERSIONS_MOST;

	if (!find_section(file, SHT_GNU_verneed, &needs, &texts))
		return 0;
	/* A library, then its versions; both are chains. Steps forward only, so that they end. */
	for (uint64_t at = 0; at + sizeof(Elf64_Verneed) <= needs.n && left > 0;) {
		Elf64_Verneed library;

		memcpy(&library, needs.at + at, sizeof(library));
		uint64_t aux = at + library.vn_aux;
		for (unsigned i = 0; i < library.vn_cnt && aux + sizeof(Elf64_Vernaux) <= needs.n && left-- > 0; i++) {
			Elf64_Vernaux version;

			memcpy(&version, needs.at + aux, sizeof(version));
			const char *name = text_at(texts, version.vna_name);
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

bool elf_has_text(const struct elf_file *file, const char *text)
{
	Elf64_Ehdr header = header_of(file);
	Elf64_Shdr names_section, section;

	if (!section_at(file, header.e_shstrndx, &names_section))
		return false;
	struct part names = contents(file, &names_section);
	for (unsigned i = 0; section_at(file, i, &section); i++) {
		const char *name = text_at(names, section.sh_name);
		struct part part = contents(file, &section);

		if (!name || strncmp(name, ".rodata", 7) != 0 || !part.at)
			continue;
		if (memmem(part.at, part.n < TEXT_MOST ? part.n : TEXT_MOST, text, strlen(text)))
			return true;
	}
	return false;
}
