/*
 * The assembler reads the files (POLICY_FOLDER is set by CMake, which also rebuilds this object when one changes), so
 * that what ships and what is read here are one text.
 */
#include "policy/builtin.h"

#include <stdint.h>
#include <string.h>

#include "policy/policy.h"

#define BUILTINS(ROW)                                                                                                  \
	ROW(heap)                                                                                                      \
	ROW(passthrough)

#define EMBED(name)                                                                                                    \
	__asm__(".pushsection .rodata\n"                                                                               \
		".hidden policy_builtin_" #name "\n"                                                                   \
		".hidden policy_builtin_" #name "_end\n"                                                               \
		".globl policy_builtin_" #name "\n"                                                                    \
		".globl policy_builtin_" #name "_end\n"                                                                \
		"policy_builtin_" #name ":\n"                                                                          \
		".incbin \"" POLICY_FOLDER "/" #name ".yaml\"\n"                                                       \
		"policy_builtin_" #name "_end:\n"                                                                      \
		".popsection\n");                                                                                      \
	extern const char policy_builtin_##name[], policy_builtin_##name##_end[];
BUILTINS(EMBED)

static const struct builtin {
	const char *name, *begin, *end;
} builtins[] = {
#define ENTRY(name) {#name, policy_builtin_##name, policy_builtin_##name##_end},
    BUILTINS(ENTRY)};

static const char *const names[] = {
#define NAME(name) #name,
    BUILTINS(NAME) NULL};

const char *const *policy_builtin_names(void)
{
	return names;
}

const char *policy_builtin_find(const char *name, size_t *ret_bytes)
{
	for (size_t i = 0; i < sizeof(builtins) / sizeof(*builtins); i++) {
		if (strcmp(builtins[i].name, name) != 0)
			continue;
		*ret_bytes = (size_t)((uintptr_t)builtins[i].end - (uintptr_t)builtins[i].begin);
		return builtins[i].begin;
	}
	return NULL;
}
