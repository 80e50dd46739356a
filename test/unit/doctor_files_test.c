// SPDX-License-Identifier: Apache-2.0
/*
 * Files that `spillway doctor` reads and others write: ELF files, and what programs may have written into the file of
 * doors. Damaged ones, cut off at every length, must be read without harm (this runs under sanitizers, too).
 */
#include "test/test.h"
#include "test/unit/seed.h"
#include "tools/doctor/doctor_doors.h"
#include "tools/common/elf_file.h"

#include <elf.h>
#include <sys/stat.h>

static char path[] = "/tmp/doctor_files_test.XXXXXX";
static char *image; /* of the library */
static size_t n_image;

static int set_up(void **state)
{
	struct stat status;
	int fd = open(LIBRARY, O_RDONLY);

	if (fd < 0 || fstat(fd, &status) != 0)
		return -1;
	n_image = (size_t)status.st_size;
	image = malloc(n_image);
	if (!image || read(fd, image, n_image) != (ssize_t)n_image)
		return -1;
	close(fd);
	fd = mkstemp(path);
	close(fd);
	return fd < 0 ? -1 : 0;
}

FIXTURE(tear_down)
{
	unlink(path);
	free(image);
}

GROUP(set_up, tear_down)

static void write_file(const char *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_TRUNC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, n), (ssize_t)n);
	close(fd);
}

static bool any(const char *name)
{
	return *name != '\0';
}

/* Everything that is asked of such a file. */
static void ask_all(void)
{
	struct elf_file *file = elf_open(path);

	if (!file)
		return;
	elf_loader(file);
	elf_defines(file, "no such name");
	elf_defines_prefix(file, "zz", any);
	elf_needs_version(file, "GLIBC_");
	elf_has_text(file, "no such text in it");
	elf_close(file);
}

TEST(a_library_is_read_right)
{
	struct elf_file *file = elf_open(LIBRARY), *self = elf_open("/proc/self/exe");

	assert_non_null(file);
	assert_true(elf_defines(file, "cuMemAlloc_v2"));
	assert_false(elf_defines(file, "cuMemAlloc_v"));
	assert_false(elf_defines(file, "malloc")); /* it needs that, and does not have it */
	assert_non_null(elf_defines_prefix(file, "spillway_", any));
	assert_in_range(elf_needs_version(file, "GLIBC_"), 2002, 2999);
	assert_int_equal(elf_needs_version(file, "NOSUCH_"), 0);
	assert_true(elf_has_text(file, "libcuda.so.1"));
	assert_null(elf_loader(file));
	elf_close(file);
	assert_non_null(self);
	assert_non_null(elf_loader(self));
	assert_non_null(strstr(elf_loader(self), "ld-"));
	elf_close(self);
}

/* Files made up to cost time: 8 MiB in which every table is as large as it can be, and says to look at all of it. */
enum { MADE_UP = 8 << 20, MADE_UP_SECTIONS = 65535, NAME_AT = MADE_UP - 16 };

static Elf64_Shdr *make_up(char *bytes)
{
	Elf64_Ehdr *header = (Elf64_Ehdr *)bytes;

	memcpy(bytes, image, sizeof(*header));
	header->e_phoff = header->e_phnum = 0;
	header->e_shoff = sizeof(*header);
	header->e_shentsize = sizeof(Elf64_Shdr);
	header->e_shnum = MADE_UP_SECTIONS;
	header->e_shstrndx = 0;
	return (Elf64_Shdr *)(bytes + sizeof(*header));
}

/* All sections are read-only data, and the same: the whole file. */
static void of_sections(char *bytes)
{
	Elf64_Shdr *section = make_up(bytes);

	for (unsigned i = 0; i < MADE_UP_SECTIONS; i++)
		section[i] = (Elf64_Shdr){.sh_name = NAME_AT, .sh_type = SHT_PROGBITS, .sh_size = MADE_UP};
	memcpy(bytes + NAME_AT, ".rodata", 8);
}

/* All names of sections go on to the end of the file, or nearly. */
static void of_names(char *bytes)
{
	Elf64_Shdr *section = make_up(bytes);

	memset(bytes + MADE_UP / 2, 'x', MADE_UP / 2);
	for (unsigned i = 0; i < MADE_UP_SECTIONS; i++)
		section[i] = (Elf64_Shdr){.sh_name = MADE_UP / 2 + 4096, .sh_type = SHT_PROGBITS, .sh_size = MADE_UP};
}

/* One table that fills the file, of that type and with entries of that size, whose texts do not end for long. */
static void of_table(char *bytes, unsigned type, size_t entry, const void *one)
{
	Elf64_Shdr *section = make_up(bytes);
	size_t first = 4096, texts = MADE_UP / 2;

	((Elf64_Ehdr *)bytes)->e_shnum = 2;
	section[0] = (Elf64_Shdr){.sh_type = type, .sh_link = 1, .sh_offset = first, .sh_size = texts - first};
	section[1] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = texts, .sh_size = MADE_UP - texts};
	for (size_t at = first; at + entry <= texts; at += entry)
		memcpy(bytes + at, one, entry);
	memset(bytes + texts, 'z', MADE_UP - texts);
	bytes[MADE_UP - 1] = 0;
}

static void of_symbols(char *bytes)
{
	of_table(bytes, SHT_DYNSYM, sizeof(Elf64_Sym), &(Elf64_Sym){.st_shndx = 1});
}

static void of_versions(char *bytes)
{
	const struct {
		Elf64_Verneed library;
		Elf64_Vernaux version;
	} one = {{.vn_version = 1, .vn_cnt = 1, .vn_aux = sizeof(one.library), .vn_next = sizeof(one)}, {0}};

	of_table(bytes, SHT_GNU_verneed, sizeof(one), &one);
}

/* By bytes looked at: time is the machine's. */
TEST(a_file_made_up_costs_no_more_than_a_large_one)
{
	static void (*const made_up[])(char *) = {of_sections, of_names, of_symbols, of_versions};
	char *bytes = malloc(MADE_UP);

	assert_non_null(bytes);
	for (unsigned i = 0; i < sizeof(made_up) / sizeof(*made_up); i++) {
		memset(bytes, 0, MADE_UP);
		made_up[i](bytes);
		write_file(bytes, MADE_UP);
		struct elf_file *file = elf_open(path);
		assert_non_null(file);
		elf_loader(file);
		elf_defines(file, "no such name");
		elf_defines_prefix(file, "zz", any);
		elf_needs_version(file, "GLIBC_");
		elf_has_text(file, "no such text in it");
		assert_in_range(elf_looked(file), sizeof(Elf64_Shdr), 512 << 20);
		elf_close(file);
	}
	free(bytes);
	/* A real one is far from that limit, or things in it would not be found. */
	struct elf_file *file = elf_open(LIBRARY);
	assert_non_null(file);
	assert_false(elf_defines(file, "no such name"));
	assert_false(elf_has_text(file, "no such text in it"));
	assert_in_range(elf_looked(file), 1, 2 * n_image);
	elf_close(file);
}

TEST(what_is_no_elf_file_is_none)
{
	assert_null(elf_open("/nonexistent"));
	assert_null(elf_open("/tmp"));
	assert_null(elf_open("/dev/null"));
	write_file("#!/bin/sh\n", 10);
	assert_null(elf_open(path));
	char *other = malloc(n_image);
	assert_non_null(other);
	memcpy(other, image, n_image);
	other[4] = 1; /* 32 bits */
	write_file(other, n_image);
	assert_null(elf_open(path));
	free(other);
}

TEST(a_cut_off_elf_file_does_no_harm)
{
	for (size_t n = 0; n < 300; n++) {
		write_file(image, n);
		ask_all();
	}
	for (int i = 1; i < 40; i++) {
		write_file(image, n_image - n_image / 40 * (size_t)i);
		ask_all();
	}
}

TEST(a_damaged_elf_file_does_no_harm)
{
	struct seed seed = seed_start("doctor_files_test");
	char *damaged = malloc(n_image);

	assert_non_null(damaged);
	for (int round = 0; round < 300; round++) {
		memcpy(damaged, image, n_image);
		/* Mostly where the offsets are: the head of the file, and the table of sections at its end. */
		for (int i = 0; i < 20; i++) {
			size_t at = seed_next(&seed) % 2048;

			at = i % 3 == 0 ? at % 64 : i % 3 == 1 ? at : n_image - 1 - at;
			damaged[at] = (char)seed_next(&seed);
		}
		memcpy(damaged, "\177ELF\2\1", 6);
		write_file(damaged, n_image);
		ask_all();
	}
	free(damaged);
}

/* ---- doors ---- */

static struct doors read_doors(const char *text, size_t n)
{
	struct doors doors = {0};

	write_file(text, n);
	int fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	assert_true(doors_read(fd, &doors));
	close(fd);
	return doors;
}

TEST(lines_are_added_up_by_process_and_library)
{
	static const char text[] = "7\tstart\t/bin/a\n"
				   "7\tlook\tdlsym\tours\tcuGetProcAddress_v2\t/lib/x.so\n"
				   "7\tlook\tcuGetProcAddress\tdriver\t\t/lib/x.so\n"
				   "7\tlook\tcuGetProcAddress\tours\tcuMemAlloc\t/lib/x.so\n"
				   "8\tlook\tdlsym\tcopy\tcuInit\t/lib/y.so\n"
				   "7\tobject\t1\t2\t3\t4\tpast\tlibcudart.so.13\t/lib/x.so\n"
				   "7\tmapped\t/lib/z.so\n"
				   "7\tend\n"
				   "7\tstart\t/bin/b\033[31m\n";
	struct doors doors = read_doors(text, sizeof(text) - 1);

	assert_int_equal(doors.n, 3);
	const struct door_process *first = &doors.processes[0];
	assert_string_equal(first->executable, "/bin/a");
	assert_true(first->ended);
	assert_int_equal(first->n_objects, 2);
	const struct door_object *x = &first->objects[0];
	assert_true(x->dlsym_past && !x->apart);
	assert_int_equal(x->looked.through, 3); /* one of them is not hooked */
	assert_int_equal(x->looked.past, 0);
	assert_int_equal(x->linked.through, 1);
	assert_int_equal(x->linked.past, 2 + 4); /* to the driver, and to some other library */
	assert_int_equal(x->linked.unbound, 3);
	assert_true(first->objects[1].apart);
	assert_int_equal(doors.processes[1].objects[0].looked.past, 1);
	assert_false(doors.processes[2].ended);
	assert_string_equal(doors.processes[2].executable, "/bin/b?[31m"); /* no colours of somebody else's */
	doors_free(&doors);
}

TEST(garbage_in_the_file_of_doors_does_no_harm)
{
	static const char *const words[] = {"7",     "look", "object", "start", "mapped", "end",
					    "dlsym", "ours", "",       "-1",    "\377"};
	struct seed seed = seed_start("doctor_files_test");
	char text[4096];

	for (int round = 0; round < 500; round++) {
		size_t n = 0;

		while (n < sizeof(text) - 64) {
			const char *word = words[seed_next(&seed) % (sizeof(words) / sizeof(*words))];
			unsigned kind = (unsigned)(seed_next(&seed) % 8);

			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%c", word,
					      kind == 0   ? '\n'
					      : kind == 1 ? 0
							  : '\t');
		}
		struct doors doors = read_doors(text, n);
		doors_free(&doors);
	}
}

TEST(there_is_an_end_to_what_is_kept)
{
	struct doors doors = {0};
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	for (int i = 1; i <= 3000; i++)
		fprintf(file, "%d\tstart\t/bin/a\n", i);
	fclose(file);
	int fd = open(path, O_RDONLY);
	assert_true(doors_read(fd, &doors));
	close(fd);
	assert_true(doors.cut);
	assert_in_range(doors.n, 100, 2999);
	doors_free(&doors);
}
