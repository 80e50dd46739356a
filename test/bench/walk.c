// SPDX-License-Identifier: Apache-2.0
/*
 * walk: which of the library's functions run, in order, on which thread. For scripts/walk.sh, which builds the library
 * with -finstrument-functions and preloads this in front of it: the compiler then calls the two functions below at the
 * beginning and the end of every function of the library.
 *
 * Prints to the file that WALK names, at the end of the process, one line for each function entered: thread, depth, and
 * the address in the library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 4000000 /* functions entered; later ones are not recorded */

static struct step {
	uint32_t thread, depth;
	uintptr_t function;
} *steps;
static _Atomic unsigned n_steps;
static __thread uint32_t depth __attribute__((tls_model("initial-exec")));

void __cyg_profile_func_enter(void *function, void *from);
void __cyg_profile_func_exit(void *function, void *from);

void __cyg_profile_func_enter(void *function, void *from)
{
	(void)from;
	unsigned at = steps ? atomic_fetch_add(&n_steps, 1) : MOST;

	if (at < MOST)
		steps[at] = (struct step){(uint32_t)gettid(), depth, (uintptr_t)function};
	depth++;
}

void __cyg_profile_func_exit(void *function, void *from)
{
	(void)function;
	(void)from;
	depth--;
}

__attribute__((constructor)) static void walk_begin(void)
{
	if (getenv("WALK"))
		steps = calloc(MOST, sizeof(*steps));
}

__attribute__((destructor)) static void walk_end(void)
{
	FILE *file = steps ? fopen(getenv("WALK"), "w") : NULL;
	unsigned n = n_steps < MOST ? n_steps : MOST;
	Dl_info info;

	for (unsigned i = 0; file && i < n; i++)
		/* The simulated driver has inline functions of the library's headers, too. */
		if (dladdr((void *)steps[i].function, &info) && strstr(info.dli_fname, "libspillway"))
			fprintf(file, "%u %u 0x%lx\n", steps[i].thread, steps[i].depth,
				(unsigned long)(steps[i].function - (uintptr_t)info.dli_fbase));
	if (file)
		fclose(file);
}
