/*
 * problem.h: what is wrong with a text before it is a tree, in words that help. Private to this folder.
 */
#ifndef POLICY_PROBLEM_H
#define POLICY_PROBLEM_H

#include <yaml.h>

#include "policy/error.h"

/*
 * Look for what libyaml reports badly or spends long on: NUL bytes, tabs used to indent, directives. False when one was
 * found (and noted); such a text cannot be read on with any sense.
 */
bool policy_text_check(const char *file, const char *text, size_t bytes, struct policy_errors *errors);

/* Note the error that libyaml stopped with, in our words where we know them. */
void policy_problem_add(const char *file, const char *text, size_t bytes, const yaml_parser_t *parser,
			struct policy_errors *errors);

#endif
