/*
 * policy_help.h: what the tests of the policy language share: policies that must be good, and problems that must be
 * these, word by word and with their places. A text is read as if it were the file p.yaml.
 */
#ifndef UNIT_POLICY_HELP_H
#define UNIT_POLICY_HELP_H

#include "policy/parse.h"
#include "test/test.h"

/* A policy without errors and warnings, which the caller frees. set: what SPILLWAY_SET says. */
struct policy *good_policy(const char *text);
struct policy *good_policy_set(const char *text, const char *set);
/* The same of what has been read; ends the errors. */
struct policy *good_policy_of(struct policy *policy, struct policy_errors *errors);

/* All problems, one a line; there must be a policy just when none of them is an error. */
void expect_problems(const char *text, const char *expected);
void expect_problems_set(const char *text, const char *set, const char *expected);
/* The same of what has been read; ends both. */
void expect_problems_of(struct policy *policy, struct policy_errors *errors, const char *expected);

#endif
