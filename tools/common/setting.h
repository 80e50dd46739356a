/*
 * setting.h: what a policy sets, where that was written, and what a limit of the machine has cut.
 */
#ifndef TOOLS_SETTING_H
#define TOOLS_SETTING_H

#include "policy/policy.h"
#include "tools/common/json.h"

/* Prints the settings that the machine limits, and, if `written`, all that were written, to stdout, each on a line. */
void setting_print_all(const struct policy *policy, bool written);
/* Writes a member "settings": all that were written or are limited. policy may be NULL. */
void setting_put_all(struct json *json, const struct policy *policy);

#endif
