// SPDX-License-Identifier: Apache-2.0
/*
 * policy_file.h: parts of a policy file that a command writes, of the settings that --set has; and what a policy sets,
 * where that was written, and what a limit of the machine has cut.
 */
#ifndef TOOLS_POLICY_FILE_H
#define TOOLS_POLICY_FILE_H

#include <stdbool.h>
#include <stdio.h>

#include "policy/policy.h"
#include "tools/common/json.h"

/* Writes the text in double quotes for YAML. Returns false if it contains characters that a policy cannot contain. */
bool policy_file_put_quoted(FILE *file, const char *text);
/*
 * Reads the file that was written and prints its problems. Returns TOOL_OK, also if the name is not one that a policy
 * can be read by; TOOL_BROKEN if the policy has an error.
 */
int policy_file_check(const char *path);

/* Returns whether settings, "key=value,key=value" or NULL, name this key. */
bool policy_set_names(const char *set, const char *key);
/* Returns the settings (NULL: none) with those of more that they do not name, for free(); NULL if memory runs out. */
char *policy_set_join(const char *set, const char *more);

/* Prints the settings that the machine limits, and, if `written`, all that were written, to stdout, each on a line. */
void setting_print_all(const struct policy *policy, bool written);
/* Writes a member "settings": all that were written or are limited. policy may be NULL. */
void setting_put_all(struct json *json, const struct policy *policy);

#endif
