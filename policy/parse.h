/*
 * parse.h: text into a policy. Private to this folder; the tests and the fuzzer may look.
 */
#ifndef POLICY_PARSE_H
#define POLICY_PARSE_H

#include "policy/error.h"
#include "policy/model.h"

/* Read YAML text into policy, which holds the standard values. Problems go to errors; policy is then half filled. */
void policy_parse(const char *file, const char *text, size_t bytes, struct policy *policy,
		  struct policy_errors *errors);

/* Put "key=value,key=value" on top. The file of its problems is "SPILLWAY_SET", the column that of the key, from 1. */
void policy_set_parse(const char *set, struct policy *policy, struct policy_errors *errors);

/* As policy_read(), of a text in memory; name becomes the policy's name and the file of its problems. */
struct policy *policy_read_text(const char *name, const char *text, size_t bytes, const char *set,
				struct policy_errors *errors);

/*
 * The whole of a regular file of at most 1 MiB; never waits on a FIFO or a device. The caller frees the text. NULL: the
 * problem is in errors.
 */
char *policy_file_read(const char *path, size_t *ret_bytes, struct policy_errors *errors);

#endif
