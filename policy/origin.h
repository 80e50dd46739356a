/* origin.h: settings of a policy as text, and where they come from. Private to this folder. */
#ifndef POLICY_ORIGIN_H
#define POLICY_ORIGIN_H

#include "policy/keys.h"

/* Writes the value of a key as in a policy; "..." for a list. target: as for policy_value_parse(). Returns text. */
char *policy_value_write(const struct policy_key *key, const void *target, char text[POLICY_SETTING_BYTES]);

#endif
