/*
 * builtin.h: the built-in policies. Each is the YAML file of its name in this folder, embedded at build time; a new
 * one is a file and a row in builtin.c. Private to this folder.
 */
#ifndef POLICY_BUILTIN_H
#define POLICY_BUILTIN_H

#include <stddef.h>

/* Returns the text of a built-in policy (static, not terminated), or NULL if none has that name. */
const char *policy_builtin_find(const char *name, size_t *ret_bytes);

#endif
