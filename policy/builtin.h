/*
 * builtin.h: the policies that ship. Each is the YAML file of its name in this folder, embedded when built; a new one is
 * a file and a row in builtin.c. Private to this folder.
 */
#ifndef POLICY_BUILTIN_H
#define POLICY_BUILTIN_H

#include <stddef.h>

/* The text of a built-in policy (static, not terminated), or NULL when there is none of that name. */
const char *policy_builtin_find(const char *name, size_t *ret_bytes);

#endif
