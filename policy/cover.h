/* cover.h: finds rules that can never be reached. Private to this folder. */
#ifndef POLICY_COVER_H
#define POLICY_COVER_H

#include "policy/error.h"
#include "policy/model.h"

/*
 * Warns about every rule that can never be the first to match. Without memory it gives no warnings and does no other
 * harm.
 */
void policy_warn_unreachable(const struct policy *policy, struct policy_errors *errors);

#endif
