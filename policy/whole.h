/* whole.h: checks values that are each valid but contradict each other. Private to this folder. */
#ifndef POLICY_WHOLE_H
#define POLICY_WHOLE_H

#include "policy/error.h"
#include "policy/model.h"

/*
 * Checks a policy that was read without an error, including the settings on top. A combination without a meaning is
 * an error; one that is harmless but does not do what it says is a warning.
 */
void policy_check_whole(const struct policy *policy, struct policy_errors *errors);

#endif
