/* problem.h: describes syntax errors of a policy text in helpful words. Private to this folder. */
#ifndef POLICY_PROBLEM_H
#define POLICY_PROBLEM_H

#include <yaml.h>

#include "policy/error.h"

/*
 * Checks for what libyaml reports badly or spends long on: NUL bytes, tabs used to indent, directives. Returns false
 * if it found one and added it to errors; reading such a text further is useless.
 */
bool policy_text_check(const char *file, const char *text, size_t bytes, struct policy_errors *errors);

/* Adds the error that libyaml stopped with, in our words if the error is a known one. */
void policy_problem_add(const char *file, const char *text, size_t bytes, const yaml_parser_t *parser,
			struct policy_errors *errors);

#endif
