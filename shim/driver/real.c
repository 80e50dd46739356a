// SPDX-License-Identifier: Apache-2.0
/*
 * The table of the driver's real functions and how it is bound. The members of struct real are all function pointers,
 * so the struct is also an array of addresses in the order of enum hook_id. real_bind() looks up every name in the
 * loaded libcuda.so.1 and stores the addresses that it finds. An address is looked up by a linear search of that
 * array (about 400 words). This happens a few hundred times at start-up and never on a hot path; a hash table would
 * need a lock and is not worth it.
 */
#include "shim/driver/real.h"
#include "shim/base/libc.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

/* clang-format off */
#define LAZY(name, params, args)                                                                                       \
	static CUresult CUDAAPI lazy_##name params                                                                     \
	{                                                                                                              \
		if (!real_bind() || REAL(name) == lazy_##name)                                                         \
			return CUDA_ERROR_NOT_FOUND;                                                                   \
		return REAL(name) args;                                                                                \
	}
#define HOOK     LAZY
#define HOOK_USE LAZY
#include "shim/driver/hooks.def"

struct real real = {
#define HOOK_NAME(name) .name = lazy_##name,
#define USE_NAME(name)  .name = lazy_##name,
#include "shim/driver/hooks.def"
};

static const struct row {
	const char *name;
	void *lazy;
} rows[] = {
#define HOOK_NAME(name) {#name, (void *)lazy_##name},
#define USE_NAME(name)  {#name, (void *)lazy_##name},
#include "shim/driver/hooks.def"
};

static const char *const exempt_names[] = {
#define EXEMPT(name, reason) #name,
#include "shim/driver/hooks.def"
};
#define EXEMPT_COUNT (sizeof(exempt_names) / sizeof(exempt_names[0]))
/* clang-format on */

_Static_assert(sizeof(struct real) == REAL_COUNT * sizeof(void *), "struct real is an array of addresses");
_Static_assert(sizeof(rows) / sizeof(rows[0]) == REAL_COUNT, "one row for each slot");

/* Has no lock: each field is only ever written with the same value, by atomic stores. */
static struct {
	_Atomic(real_dlsym_function *) c_dlsym; /* what real_dlsym() has found */
	atomic_bool bound;                      /* all addresses have been looked up; released after them */
	void *exempt_address[EXEMPT_COUNT]; /* of the exempt functions, in the order of hooks.def; NULL: not there */
} binding;

static void **real_slot(unsigned id)
{
	return (void **)&real + id;
}

static void *slot_load(unsigned id)
{
	return __atomic_load_n(real_slot(id), __ATOMIC_RELAXED);
}

/*
 * Not instrumented, like dlsym.c: a sanitizer's runtime looks up the functions that it intercepts before it is ready
 * for checks.
 */
__attribute__((no_sanitize("address", "thread", "undefined"))) real_dlsym_function *real_dlsym(void)
{
	/*
	 * All versions under which the C library has exported dlsym, newest first; the second is the first of
	 * aarch64.
	 */
	static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
	real_dlsym_function *function = atomic_load_explicit(&binding.c_dlsym, memory_order_relaxed);

	for (unsigned i = 0; i < sizeof(versions) / sizeof(versions[0]) && !function; i++)
		function = (real_dlsym_function *)libc_dlvsym_next("dlsym", versions[i]);
	if (!function)
		function = (real_dlsym_function *)libc_find("dlsym");
	atomic_store_explicit(&binding.c_dlsym, function, memory_order_relaxed);
	return function;
}

bool real_bind(void)
{
	if (atomic_load_explicit(&binding.bound, memory_order_acquire))
		return true;
	void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	real_dlsym_function *c_dlsym = real_dlsym();
	if (!library || !c_dlsym) {
		dlerror();
		return false;
	}
	for (unsigned id = 0; id < REAL_COUNT; id++) {
		void *address = c_dlsym(library, rows[id].name);
		if (address)
			__atomic_store_n(real_slot(id), address, __ATOMIC_RELAXED);
	}
	for (unsigned i = 0; i < EXEMPT_COUNT; i++)
		__atomic_store_n(&binding.exempt_address[i], c_dlsym(library, exempt_names[i]), __ATOMIC_RELAXED);
	/* Clears the error of a name that this driver lacks, so that the program does not find it. */
	dlerror();
	atomic_store_explicit(&binding.bound, true, memory_order_release);
	return true;
}

const char *real_error_name(CUresult result)
{
	const char *name = NULL;

	return REAL(cuGetErrorName)(result, &name) == CUDA_SUCCESS && name ? name : "an unknown CUDA error";
}

bool real_has(enum hook_id id)
{
	return real_bind() && slot_load(id) != rows[id].lazy;
}

void *real_address(enum hook_id id)
{
	return real_has(id) ? slot_load(id) : NULL;
}

int real_find(const void *address)
{
	for (unsigned id = 0; id < HOOK_COUNT; id++)
		if (slot_load(id) == address)
			return (int)id;
	return -1;
}

bool real_is_exempt(const void *address)
{
	for (unsigned id = HOOK_COUNT; id < REAL_COUNT; id++)
		if (slot_load(id) == address)
			return true;
	for (unsigned i = 0; i < EXEMPT_COUNT; i++)
		if (__atomic_load_n(&binding.exempt_address[i], __ATOMIC_RELAXED) == address)
			return true;
	return false;
}

bool real_in_driver(const void *address)
{
	Dl_info asked, driver;
	bool known = false;

	for (unsigned id = 0; id < REAL_COUNT && !known; id++)
		known = slot_load(id) != rows[id].lazy && dladdr(slot_load(id), &driver);
	return known && dladdr(address, &asked) && asked.dli_fbase == driver.dli_fbase;
}

bool real_is_hooked(const char *name)
{
	for (unsigned id = 0; id < HOOK_COUNT; id++)
		if (!strcmp(rows[id].name, name))
			return true;
	return false;
}

const char *real_name(int id)
{
	return id >= 0 && id < REAL_COUNT ? rows[id].name : "?";
}

bool real_knows_name(const char *name)
{
	size_t length = strlen(name);

	for (unsigned id = 0; id < HOOK_COUNT; id++)
		if (!strncmp(rows[id].name, name, length) &&
		    (!rows[id].name[length] || !strncmp(rows[id].name + length, "_v", 2) ||
		     !strncmp(rows[id].name + length, "_pt", 3)))
			return true;
	return false;
}

/* ---- who got hold of the driver's functions ---- */

/*
 * The log of which objects obtained the driver's functions, and how. The file is opened for each line, because a
 * program may close descriptors that it does not know.
 *
 * Linked functions are not looked up through the library. They are read from the loader's results instead, at the
 * first request (since a process may be killed) and at exit: the slots of each object's relocations hold the
 * addresses that its calls lead to. These are also correct with RTLD_DEEPBIND and with other libraries that come
 * first in the search order. The list of objects is taken under the loader's lock and read without it.
 */

enum { OBJECTS_MOST = 4096 };

#if defined(__x86_64__)
#define RELOCATION_IS_SLOT(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT || (type) == R_X86_64_64)
#elif defined(__aarch64__)
#define RELOCATION_IS_SLOT(type)                                                                                       \
	((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT || (type) == R_AARCH64_ABS64)
#endif

bool door_log_wanted(void)
{
	static _Atomic int wanted; /* 0: not read yet, 1: no, 2: yes */
	int now = atomic_load_explicit(&wanted, memory_order_relaxed);

	if (__builtin_expect(!now, 0)) {
		const char *file = secure_getenv("SPILLWAY_DOORS");

		now = file && *file ? 2 : 1;
		atomic_store_explicit(&wanted, now, memory_order_relaxed);
	}
	return now == 2;
}

/* ---- the file ---- */

/* Replaces control characters, since names may contain any character, but a field neither tab nor newline. */
static void door_log_clean(char *line, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		if ((unsigned char)line[i] < ' ')
			line[i] = '?';
}

/* Writes a line: "PID kind", the fields of format (with their tabs), and last the name of an object unless it is "". */
__attribute__((format(printf, 3, 4))) static void line_out(const char *kind, const char *object, const char *format,
							   ...)
{
	const char *file = secure_getenv("SPILLWAY_DOORS");
	char line[PATH_MAX + 512];
	struct stat status;
	int saved = errno;
	va_list list;

	int n = snprintf(line, sizeof(line), "%d\t%s", getpid(), kind);
	va_start(list, format);
	n += vsnprintf(line + n, 400, format, list);
	va_end(list);
	n = n > 440 ? 440 : n;
	if (*object) {
		int from = n + 1;

		n += snprintf(line + n, sizeof(line) - (size_t)n - 1, "\t%s", object);
		n = n > (int)sizeof(line) - 2 ? (int)sizeof(line) - 2 : n;
		door_log_clean(line, (size_t)from, (size_t)n);
	}
	line[n++] = '\n';
	int fd = file ? open(file, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
	if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
		ssize_t unused = write(fd, line, (size_t)n);

		(void)unused;
	}
	if (fd >= 0)
		close(fd);
	errno = saved;
}

static const char *door_log_executable(char path[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);

	path[n > 0 ? n : 0] = 0;
	return n > 0 ? path : "?";
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* ---- look-ups ---- */

/*
 * Returns the object that contains the address, or "?" for code that was generated at run time. For the executable the
 * loader gives the name that it was called by, so its path is used.
 */
static const char *object_of(const void *address, char path[PATH_MAX])
{
	Dl_info info, program;

	if (!dladdr(address, &info) || !info.dli_fname)
		return "?";
	if (dladdr((void *)getauxval(AT_PHDR), &program) && program.dli_fbase == info.dli_fbase)
		return door_log_executable(path);
	return *info.dli_fname ? info.dli_fname : door_log_executable(path);
}

static const char *result_of(const void *address)
{
	Dl_info info, self;

	if (!address)
		return "none";
	if (!dladdr(address, &info) || !info.dli_fname || !dladdr((void *)(uintptr_t)door_log_note, &self))
		return "other";
	if (info.dli_fbase == self.dli_fbase)
		return "ours";
	return real_in_driver(address)                                 ? "driver"
	       : !strncmp(base_name(info.dli_fname), "libcuda.so", 10) ? "copy"
								       : "other";
}

void door_log_note(enum door door, const char *name, const void *address, const void *caller)
{
	char path[PATH_MAX], quoted[128];
	int saved = errno;

	snprintf(quoted, sizeof(quoted), "%s", name);
	door_log_clean(quoted, 0, strlen(quoted));
	line_out("look", object_of(caller, path), "\t%s\t%s\t%s", door == DOOR_DLSYM ? "dlsym" : "cuGetProcAddress",
		 result_of(address), quoted);
	errno = saved;
}

/* ---- what the loader has bound ---- */

struct object {
	uintptr_t base, from, to; /* from, to: span of all segments */
	const ElfW(Dyn) * dynamic;
	char *path;
};

struct objects {
	struct object *list;
	size_t n;
};

static int add_object(struct dl_phdr_info *info, size_t size, void *argument)
{
	struct objects *objects = argument;
	struct object object = {.base = info->dlpi_addr, .from = UINTPTR_MAX};
	char path[PATH_MAX];

	(void)size;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		uintptr_t from = info->dlpi_addr + part->p_vaddr, to = from + part->p_memsz;

		if (part->p_type == PT_DYNAMIC)
			object.dynamic = (const void *)from;
		if (part->p_type != PT_LOAD)
			continue;
		object.from = from < object.from ? from : object.from;
		object.to = to > object.to ? to : object.to;
	}
	if (objects->n == OBJECTS_MOST)
		return 1;
	object.path = strdup(info->dlpi_name && *info->dlpi_name ? info->dlpi_name : door_log_executable(path));
	if (object.path)
		objects->list[objects->n++] = object;
	return 0;
}

static const struct object *object_at(const struct objects *objects, uintptr_t address)
{
	for (size_t i = 0; i < objects->n; i++)
		if (address >= objects->list[i].from && address < objects->list[i].to)
			return &objects->list[i];
	return NULL;
}

struct links {
	unsigned ours, past, unbound, elsewhere;
	const char *c_dlsym, *runtime;
};

static bool is_driver(const struct object *object)
{
	return object && !strncmp(base_name(object->path), "libcuda.so", 10);
}

static const char *runtime_needed(const struct object *object, const char *names)
{
	for (const ElfW(Dyn) *entry = object->dynamic; entry && entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == DT_NEEDED && !strncmp(names + entry->d_un.d_val, "libcudart", 9))
			return names + entry->d_un.d_val;
	return NULL;
}

static void look_at_slot(const struct objects *objects, const struct object *object, const char *name,
			 const struct object *target, struct links *links)
{
	const struct object *self = object_at(objects, (uintptr_t)look_at_slot);

	if (!strcmp(name, "dlsym")) {
		/* A slot that is not bound yet (target == object) counts as ours; the first call decides. */
		links->c_dlsym = target == self || target == object ? "ours" : "past";
	} else if (!strncmp(name, "cuda", 4) && name[4] >= 'A' && name[4] <= 'Z') {
		if (target && target != object && !strncmp(base_name(target->path), "libcudart", 9))
			links->runtime = base_name(target->path);
	} else if (name[0] == 'c' && name[1] == 'u' && real_is_hooked(name)) {
		links->ours += target == self;
		links->past += is_driver(target);
		links->unbound += target == object || !target;
		links->elsewhere += target && target != self && target != object && !is_driver(target);
	}
}

static struct links links_of(const struct objects *objects, const struct object *object)
{
	/* Relocations of data, and of the procedure linkage table: where, and how many bytes. */
	static const ElfW(Sxword) tables[][2] = {{DT_RELA, DT_RELASZ}, {DT_JMPREL, DT_PLTRELSZ}};
	const ElfW(Sym) *symbols = elf_address(object->base, object->dynamic, DT_SYMTAB);
	const char *names = elf_address(object->base, object->dynamic, DT_STRTAB);
	struct links links = {.c_dlsym = "-"};

	if (!symbols || !names)
		return links;
	for (size_t t = 0; t < 2; t++) {
		const ElfW(Rela) *at = elf_address(object->base, object->dynamic, tables[t][0]);
		size_t n = at ? elf_value(object->dynamic, tables[t][1]) / sizeof(*at) : 0;

		for (size_t i = 0; i < n; i++) {
			const ElfW(Sym) *symbol = &symbols[ELF64_R_SYM(at[i].r_info)];
			uintptr_t slot = object->base + at[i].r_offset;

			if (!RELOCATION_IS_SLOT(ELF64_R_TYPE(at[i].r_info)) || symbol->st_shndx != SHN_UNDEF ||
			    slot < object->from || slot + sizeof(slot) > object->to)
				continue;
			look_at_slot(objects, object, names + symbol->st_name,
				     object_at(objects, *(const uintptr_t *)slot), &links);
		}
	}
	if (!links.runtime)
		links.runtime = runtime_needed(object, names);
	return links;
}

static void write_object(const struct objects *objects, const struct object *object)
{
	if (is_driver(object) || object == object_at(objects, (uintptr_t)write_object))
		return;
	struct links links = links_of(objects, object);
	line_out("object", object->path, "\t%u\t%u\t%u\t%u\t%s\t%.60s", links.ours, links.past, links.unbound,
		 links.elsewhere, links.c_dlsym, links.runtime ? links.runtime : "-");
}

/*
 * Writes code of libraries that the loader did not list, which are those opened by dlmopen(). Does not use sscanf(),
 * whose newer names are not in every C library (libc.h).
 */
static void write_mapped(const struct objects *objects)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[PATH_MAX + 128];

	while (maps && fgets(line, sizeof(line), maps)) {
		/* "from-to rwxp offset device inode   path" */
		char *rights = strchr(line, ' '), *path = strchr(line, '/');

		line[strcspn(line, "\n")] = 0;
		if (rights && path && rights[3] == 'x' && !object_at(objects, (uintptr_t)strtoull(line, NULL, 16)))
			line_out("mapped", path, "%s", "");
	}
	if (maps)
		fclose(maps);
}

/* ---- start and end ---- */

void door_log_begin(void)
{
	char path[PATH_MAX];

	if (door_log_wanted())
		line_out("start", door_log_executable(path), "%s", "");
}

void door_log_scan(void)
{
	struct objects objects = {0};

	if (!door_log_wanted())
		return;
	objects.list = calloc(OBJECTS_MOST, sizeof(*objects.list));
	if (!objects.list)
		return;
	dl_iterate_phdr(add_object, &objects);
	for (size_t i = 0; i < objects.n; i++)
		write_object(&objects, &objects.list[i]);
	write_mapped(&objects);
	for (size_t i = 0; i < objects.n; i++)
		free(objects.list[i].path);
	free(objects.list);
}

void door_log_end(void)
{
	door_log_scan();
	if (door_log_wanted())
		line_out("end", "", "%s", "");
}
