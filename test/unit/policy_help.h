// SPDX-License-Identifier: Apache-2.0
/*
 * policy_help.h: what the tests of the policy language share: policies that must be good, and problems that must be
 * these, word by word and with their places. A text is read as if it were the file p.yaml.
 */
#ifndef UNIT_POLICY_HELP_H
#define UNIT_POLICY_HELP_H

#include "policy/parse.h"
#include "test/test.h"

/* A policy without errors and warnings. It lasts until the test ends. set: what SPILLWAY_SET says. */
struct policy *good_policy(const char *text);
struct policy *good_policy_set(const char *text, const char *set);
/* The same of a file, or of a built-in policy. */
struct policy *good_policy_read(const char *name, const char *set);
/* Its settings. */
const struct policy_settings *good_settings(const char *text, const char *set);
/* A policy whose warnings do not matter. */
struct policy *any_policy(const char *text);
struct policy *any_policy_read(const char *name, const char *set);

/* All problems, one a line; there must be a policy just when none of them is an error. */
void expect_problems(const char *text, const char *expected);
void expect_problems_set(const char *text, const char *set, const char *expected);
void expect_problems_read(const char *name, const char *expected);
/* The same of what has been read; ends both. */
void expect_problems_of(struct policy *policy, struct policy_errors *errors, const char *expected);
/* All problems, one a line. */
const char *problems_of(const struct policy_errors *errors);

/* An empty folder, which is the working folder from the first test to the last, so that paths in messages are short. */
extern char own_folder[64];
int enter_folder(void **state);
int leave_folder(void **state);
void write_file(const char *name, const char *text);

#endif
