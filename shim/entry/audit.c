// SPDX-License-Identifier: Apache-2.0
/*
 * libspillway-audit.so, for LD_AUDIT: the fourth way that calls reach the library. The loader reports each binding of
 * a function to an audit library, which may redirect it. So calls of the driver reach the library that preloading
 * does not see: calls of libraries opened with RTLD_DEEPBIND, which search what they have linked before anything
 * preloaded, and find the C library's dlsym rather than ours; of libraries in another namespace (dlmopen), where
 * nothing is preloaded; and through handles of a second libcuda.so.1 that was opened by its path.
 *
 * An audit library lives in a separate namespace with a separate C library. It cannot link to libspillway.so, nor
 * look symbols up by dlopen while the loader is at work. So it learns from the loader's list of objects (la_objopen)
 * where libspillway.so is, and reads its dynamic symbols in memory.
 *
 * Each libcuda.so.1 is one of:
 *
 *   the driver   the first one in the program's namespace, which libspillway.so finds and calls. Bindings to its hooked
 *                functions lead to ours, the others stay.
 *   a copy       any other. A second copy has separate state, and handles of one mean nothing to the other; so bindings
 *                to its driver functions (cu*) lead to ours or to the driver's, and it is never called.
 *   a stranger   a copy that was loaded before the driver, in another namespace. Some of its functions may have been
 *                bound by then, so all bindings stay. Its allocations are not seen, and a message says so.
 *
 * Bindings from libspillway.so to the driver, and from any libcuda.so.1, are left alone. libspillway.so looks a
 * symbol up in a copy only if its dlsym is called with a handle of that copy.
 *
 * The loader reports calls through the procedure linkage table, whenever they are bound, and results of dlsym and
 * dlvsym (from glibc 2.35 on; older versions do not report functions bound at load time). It does not report
 * addresses of functions that are taken as data, which includes all calls of code compiled with -fno-plt.
 *
 * Locking: none. The loader calls these functions under its own lock, except la_symbind64, which only reads what was
 * written before any object that it concerns could be bound.
 */
#include "shim/base/libc.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* The cookie that the loader keeps with each object. */
enum kind {
	OTHER,
	SHIM,
	DRIVER,
	COPY,
	STRANGER,
};

static _Atomic(const struct link_map *) shim, driver;

/* Returns the address of the object's function of that name, or 0 if it has none. */
static uintptr_t audit_find(const struct link_map *map, const char *name)
{
	struct elf_symbols symbols;

	return map && elf_symbols_of(map->l_addr, map->l_ld, &symbols) ? elf_symbol(&symbols, name) : 0;
}

/* ---- calls of the loader ---- */

static const char *base_name(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	return slash ? slash + 1 : path ? path : "";
}

static void audit_say(const char *line)
{
	ssize_t unused = write(STDERR_FILENO, line, strlen(line));

	(void)unused;
}

static enum kind kind_of_driver(const struct link_map *map, Lmid_t namespace)
{
	if (driver)
		return COPY;
	if (namespace == LM_ID_BASE) {
		driver = map;
		return DRIVER;
	}
	if (shim)
		audit_say(
		    "spillway: a library in a namespace of its own (dlmopen) uses a libcuda.so.1 of its own, before "
		    "the program itself has one: what it allocates is not seen\n");
	return STRANGER;
}

static enum kind kind_of(const struct link_map *map, Lmid_t namespace)
{
	struct elf_symbols symbols;

	if (elf_symbols_of(map->l_addr, map->l_ld, &symbols) && symbols.soname &&
	    !strcmp(symbols.soname, "libcuda.so.1"))
		return kind_of_driver(map, namespace);
	if (namespace != LM_ID_BASE || shim || !strstr(base_name(map->l_name), "spillway") ||
	    !audit_find(map, "spillway_version"))
		return OTHER;
	shim = map;
	return SHIM;
}

/* Accepts older loaders: all versions have the functions that this file needs. */
unsigned int la_version(unsigned int version)
{
	return version < LAV_CURRENT ? version : LAV_CURRENT;
}

unsigned int la_objopen(struct link_map *map, Lmid_t namespace, uintptr_t *cookie)
{
	enum kind kind = kind_of(map, namespace);

	*cookie = kind;
	return kind == OTHER ? LA_FLG_BINDFROM : kind == DRIVER || kind == COPY ? LA_FLG_BINDTO : 0;
}

/*
 * libspillway.so has not bound to the driver that is closed: the next libcuda.so.1 that is opened in the program's
 * namespace becomes the driver.
 */
unsigned int la_objclose(uintptr_t *cookie)
{
	if (*cookie == DRIVER)
		driver = NULL;
	else if (*cookie == SHIM)
		shim = NULL;
	*cookie = STRANGER;
	return 0;
}

static bool is_driver_name(const char *name)
{
	return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned int index, uintptr_t *from, uintptr_t *to, unsigned int *flags,
		       const char *name)
{
	bool is_asked = (*to == DRIVER && *from == OTHER) || (*to == COPY && (*from == OTHER || *from == SHIM));
	uintptr_t ours = 0;

	(void)index;
	(void)flags;
	if (is_asked && shim && driver && is_driver_name(name)) {
		ours = audit_find(shim, name);
		if (!ours && *to == COPY)
			ours = audit_find(driver, name);
	}
	return ours ? ours : symbol->st_value;
}
