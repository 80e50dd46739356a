/*
 * decide.h: which ranges hold a number, and which rules can never be reached. Private to this folder.
 */
#ifndef POLICY_DECIDE_H
#define POLICY_DECIDE_H

#include "policy/error.h"
#include "policy/model.h"

/* Warn about every rule that can never be the first to match. Lack of memory loses warnings, nothing else. */
void policy_warn_unreachable(const struct policy *policy, const char *file, struct policy_errors *errors);

#endif
