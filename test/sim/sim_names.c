// SPDX-License-Identifier: Apache-2.0
/*
 * sim_names.c: every exported name with its address, for cuGetProcAddress. Not by dlsym: a shim in front interposes
 * that. This file does not know cuda.h, so one made-up prototype serves all names; nothing is called through it.
 */
#include <stddef.h>
#include <string.h>

void *sim_export(const char *name);

/* not in the list */
extern int cuBrandNew(void);
extern int cuBrandNewCopyAsync(void);

#define EXEMPT(name, reason) extern int name(void);
#define HOOK_NAME(name)      extern int name(void);
#define USE_NAME(name)       extern int name(void);
#include "shim/driver/hooks.def"

static const struct {
	const char *name;
	int (*address)(void);
} names[] = {
    {"cuBrandNew", cuBrandNew},
    {"cuBrandNewCopyAsync", cuBrandNewCopyAsync},
#define EXEMPT(name, reason) {#name, name},
#define HOOK_NAME(name)      {#name, name},
#define USE_NAME(name)       {#name, name},
#include "shim/driver/hooks.def"
};

void *sim_export(const char *name)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i].name, name))
			return (void *)names[i].address;
	return NULL;
}
