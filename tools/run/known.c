// SPDX-License-Identifier: Apache-2.0
/*
 * Programs that need other settings than the standard ones, and how they are known by their arguments.
 */
#include "tools/run/run.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "policy/text.h"
#include "tools/common/tool.h"

#define HOST_COUNTS "report.capacity=device+host"
#define MOVED_VMM   "vmm.spill=move"

static const struct known_program programs[] = {
    {"llama.cpp", "heap", HOST_COUNTS, {"llama-*"}, "it moves layers to the CPU if they exceed free memory"},
    {"comfyui", "heap", HOST_COUNTS, {"*ComfyUI/main.py"}, "it unloads models if they exceed free memory"},
    {"device-map", "heap", HOST_COUNTS, {NULL}, "it maps layers to the CPU if they exceed free memory"},
    {"vllm", "inference", "", {"vllm", "vllm.*"}, "its cache is a share of the memory that it sees"},
    {"sglang", "inference", "", {"sglang", "sglang.*"}, "its cache is a share of the memory that it sees"},
    {"relion", "inference", "", {"relion_refine*"}, "it takes all memory that it sees as free"},
    {"jax", "heap", MOVED_VMM, {NULL}, "its pool is virtual memory that it maps itself"},
    {"alphafold", "heap", MOVED_VMM, {"run_alphafold.py"}, "JAX's pool is virtual memory that it maps itself"},
    {"batch-finder", "heap", "spill.limit=25%", {NULL}, "it asks how much fits by running out of memory"},
};
#define N_PROGRAMS (sizeof(programs) / sizeof(*programs))

void known_print(void)
{
	for (size_t i = 0; i < N_PROGRAMS; i++)
		printf(" %s", programs[i].name);
}

const struct known_program *known_find(const char *name)
{
	struct policy_suggestion suggestion = {.typed = name};

	for (size_t i = 0; i < N_PROGRAMS; i++) {
		if (strcmp(programs[i].name, name) == 0)
			return &programs[i];
		policy_suggest(&suggestion, programs[i].name);
	}
	tool_say("--for: there is no program '%s'%s%s%s; `spillway run --help` lists them", name,
		 suggestion.best ? "; did you mean " : "", suggestion.best ? suggestion.best : "",
		 suggestion.best ? "?" : "");
	return NULL;
}

/* Returns what names the program: of Python, the module or the script. */
static const char *naming_word(char **program)
{
	const char *slash = strrchr(program[0], '/'), *name = slash ? slash + 1 : program[0];

	if (strncmp(name, "python", 6) != 0)
		return name;
	for (char **word = program + 1; *word; word++) {
		if (strcmp(*word, "-m") == 0)
			return word[1] ? word[1] : name;
		/* These take a value. */
		if (strcmp(*word, "-W") == 0 || strcmp(*word, "-X") == 0)
			word += word[1] != NULL;
		else if (**word != '-')
			return *word;
	}
	return name;
}

const struct known_program *known_by_arguments(char **program)
{
	const char *word = naming_word(program), *slash = strrchr(word, '/');

	for (size_t i = 0; i < N_PROGRAMS; i++)
		for (const char *const *pattern = programs[i].patterns; *pattern; pattern++)
			if (fnmatch(*pattern, word, 0) == 0 || (slash && fnmatch(*pattern, slash + 1, 0) == 0))
				return &programs[i];
	return NULL;
}
