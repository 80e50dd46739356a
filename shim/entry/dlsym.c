// SPDX-License-Identifier: Apache-2.0
/*
 * The exported dlsym, the second way that calls reach the library. It is alone in this file because the file is
 * always built with -O2 and without sanitizers.
 *
 * For RTLD_NEXT, and for every name that is not the driver's, this dlsym must leave by a jump, not by a call: the C
 * library works out "next" from the return address, and would take this library for the caller (HAMi-core #315 was an
 * endless loop for that reason). At -O2 a call in tail position is a jump; other levels and sanitizers do not promise
 * that.
 *
 * RTLD_NEXT of a driver name is passed on unchanged, too: libraries chained behind this one go on working, and a
 * program that is searched before it finds our export anyway.
 *
 * RTLD_DEFAULT depends on the caller, too: libraries that only the caller has loaded are searched last. It is handled
 * here only for names of hooked rows, which are found among our exports anyway.
 *
 * The symbol has no version node (no linker map): a plain dlsym satisfies dlsym@GLIBC_2.2.5 and @GLIBC_2.34 alike.
 */
#include "shim/entry/entry.h"

#include <dlfcn.h>

/* "cu" alone is not enough: names of cuDNN, cuBLAS and curl begin with it too. */
static int is_driver_name(const char *name)
{
	return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

__attribute__((visibility("default"))) void *dlsym(void *restrict handle, const char *restrict name)
{
	real_dlsym_function *c_dlsym = real_dlsym();

	if (__builtin_expect(!c_dlsym, 0))
		return NULL;
	if (handle == RTLD_NEXT || !is_driver_name(name) || (handle == RTLD_DEFAULT && !real_is_hooked(name)))
		return c_dlsym(handle, name);
	return resolve_dlsym(c_dlsym, handle, name, __builtin_return_address(0));
}
