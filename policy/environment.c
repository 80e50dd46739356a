/* Variables of the environment that look like ours and are not. */
#include <stdio.h>
#include <string.h>

#include "policy/error.h"
#include "policy/keys.h"
#include "policy/text.h"

/* Those that the library or a command reads; also those that one sets for the other. */
static const char *const known[] = {"POLICY", "SET",    "TRACE",   "JOB",      "STRICT",
				    "DOORS",  "WARNED", "FIGURES", "SLURM_SET"};

/* Returns the key that is meant by DEVICE_BUDGET, or MODE; NULL if none is. */
static const char *key_meant(const char *name)
{
	struct policy_suggestion suggestion = {.typed = name};

	for (size_t i = 0; i < policy_file_keys.n; i++)
		policy_suggest(&suggestion, policy_file_keys.keys[i].name);
	return suggestion.best ? suggestion.best : policy_key_ending(&policy_file_keys, name);
}

static void look_at_variable(const char *name, struct policy_errors *errors)
{
	static const char place[] = "environment";
	struct policy_suggestion suggestion = {.typed = name};
	char safe[POLICY_QUOTED_BYTES];

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		if (!strcmp(known[i], name))
			return;
		policy_suggest(&suggestion, known[i]);
	}
	const char *key = suggestion.best ? NULL : key_meant(name);
	policy_printable(name, safe, sizeof(safe));
	if (suggestion.best)
		policy_warning_add(errors, place, (struct policy_place){0},
				   "nobody reads SPILLWAY_%s; did you mean SPILLWAY_%s?", safe, suggestion.best);
	else if (key)
		policy_warning_add(errors, place, (struct policy_place){0},
				   "nobody reads SPILLWAY_%s; did you mean SPILLWAY_SET=%s=...?", safe, key);
	else
		policy_warning_add(errors, place, (struct policy_place){0},
				   "nobody reads SPILLWAY_%s; spillway(1) names the variables that are read", safe);
}

void policy_warn_environment(char *const *environment, struct policy_errors *errors)
{
	static const char ours[] = "SPILLWAY_";
	char name[128];

	for (; environment && *environment; environment++) {
		const char *rest = *environment + strlen(ours);

		if (strncmp(*environment, ours, strlen(ours)) != 0)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(rest, "="), rest);
		look_at_variable(name, errors);
	}
}
