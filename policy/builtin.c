/*
 * Embeds the built-in policies. The assembler reads the YAML files (CMake sets POLICY_FOLDER and rebuilds this object
 * if one changes), so the embedded text is the file that ships.
 */
#include "policy/builtin.h"

#include <stdint.h>
#include <string.h>

#include "policy/policy.h"

/* One row for each policy: ROW(symbol, name). */
#define BUILTINS(ROW)                                                                                                  \
	ROW(heap, "heap")                                                                                              \
	ROW(passthrough, "passthrough")                                                                                \
	ROW(managed, "managed")                                                                                        \
	ROW(system, "system")                                                                                          \
	ROW(training, "training")                                                                                      \
	ROW(training_fast, "training-fast")                                                                            \
	ROW(inference, "inference")                                                                                    \
	ROW(observe, "observe")

#define EMBED(symbol, name)                                                                                            \
	__asm__(".pushsection .rodata\n"                                                                               \
		".hidden policy_builtin_" #symbol "\n"                                                                 \
		".hidden policy_builtin_" #symbol "_end\n"                                                             \
		".globl policy_builtin_" #symbol "\n"                                                                  \
		".globl policy_builtin_" #symbol "_end\n"                                                              \
		"policy_builtin_" #symbol ":\n"                                                                        \
		".incbin \"" POLICY_FOLDER "/" name ".yaml\"\n"                                                        \
		"policy_builtin_" #symbol "_end:\n"                                                                    \
		".popsection\n");                                                                                      \
	extern const char policy_builtin_##symbol[], policy_builtin_##symbol##_end[];
BUILTINS(EMBED)

static const struct builtin {
	const char *name, *begin, *end;
} builtins[] = {
#define ENTRY(symbol, name) {name, policy_builtin_##symbol, policy_builtin_##symbol##_end},
    BUILTINS(ENTRY)};

static const char *const names[] = {
#define NAME(symbol, name) name,
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
