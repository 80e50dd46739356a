/*
 * cover.h: which rules can never be reached. Private to this folder.
 */
#ifndef POLICY_COVER_H
#define POLICY_COVER_H

#include "policy/error.h"
#include "policy/model.h"

/* Warn about every rule that can never be the first to match. Lack of memory loses warnings, nothing else. */
void policy_warn_unreachable(const struct policy *policy, struct policy_errors *errors);

#endif
