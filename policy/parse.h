/*
 * parse.h: text into a policy. Private to this folder; the tests and the fuzzer may look.
 */
#ifndef POLICY_PARSE_H
#define POLICY_PARSE_H

#include "policy/error.h"
#include "policy/model.h"

/* One text that is being read, with those that include it. */
struct policy_source {
	const char *file; /* what messages call it; its folder is where its includes are looked for */
	unsigned index;   /* of that name in the policy */
	unsigned depth;   /* 0: the policy itself */
	struct policy *policy;
	struct policy_errors *errors;
};

/*
 * Read YAML text into policy, which holds the standard values or those of what was read before. Problems go to errors;
 * policy is then half filled. real_path: of the file, NULL when it is none.
 */
void policy_parse(const char *file, const char *real_path, const char *text, size_t bytes, struct policy *policy,
		  struct policy_errors *errors);

/*
 * Finds the text that one name of an include means. Returns false if there is none: the problem has been added to the
 * errors. policy_include_close() ends what was found.
 */
struct policy_node;
struct policy_included {
	struct policy_source source;
	const char *text;
	size_t bytes;
	char *owned; /* the text of a file; NULL if it is a built-in policy's */
};
bool policy_include_open(const struct policy_source *outer, const struct policy_node *name,
			 struct policy_included *ret_included);
void policy_include_close(struct policy_included *included);

/* Put "key=value,key=value" on top. The file of its problems is "SPILLWAY_SET", the column that of the key, from 1. */
void policy_set_parse(const char *set, struct policy *policy, struct policy_errors *errors);

/* As policy_read(), of a text in memory; name becomes the policy's name and the file of its problems. */
struct policy *policy_read_text(const char *name, const char *text, size_t bytes, const char *set,
				struct policy_errors *errors);

/*
 * The whole of a regular file of at most 1 MiB; never waits on a FIFO or a device. The caller frees the text. NULL: ret_why
 * (POLICY_MAX_WHY bytes) says why.
 */
char *policy_file_read(const char *path, size_t *ret_bytes, char *ret_why);

#endif
